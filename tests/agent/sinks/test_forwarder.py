"""The loop: what it stores and when, and what a tracker that fails makes of it."""

from __future__ import annotations

import os

import pytest

from rankside_agent.journal import Journal
from rankside_agent.sinks.base import Sink
from rankside_agent.sinks.forwarder import FIRST_DELAY, LONGEST_DELAY, Forwarder
from rankside_agent.sinks.points import Scalars


class Tracker:
    """A tracker outside the process: what reached it, and how it is to fail."""

    def __init__(self):
        self.steps = []
        self.trouble = []  # names of calls that will fail, in this order
        self.made = 0
        self.settled = True
        self.away = False
        self.flushes = 0

    def sink(self, _name):
        """The class of its sink."""
        tracker = self

        class Plain(Sink):
            name = "plain"

            def __init__(self, run, state, counts):
                super().__init__(run, state, counts)
                tracker.made += 1
                tracker.fail("make")
                self._waiting = list(tracker.steps[: state.get("stored", 0)])

            @staticmethod
            def wanted(_config):
                return True

            @property
            def settled(self):
                return tracker.settled

            @property
            def provisional(self):
                return tracker.away

            def write(self, point):
                tracker.fail("write")
                if isinstance(point, Scalars):
                    self._waiting.append(point.step)

            def flush(self):
                tracker.fail("flush")
                tracker.flushes += 1
                tracker.steps = list(self._waiting)

            def state(self):
                return {"stored": len(tracker.steps)}

            def close(self):
                tracker.fail("close")

        return Plain

    def fail(self, call):
        if self.trouble and self.trouble[0] == call:
            self.trouble.pop(0)
            raise ConnectionError(f"{call} refused")


@pytest.fixture
def tracker():
    return Tracker()


@pytest.fixture
def forwarder(run, tracker):
    return Forwarder(run.path, "plain", make=tracker.sink, jitter=lambda: 0.5)


def rounds(forwarder, most=50):
    """Until all is delivered, without the waiting; returns how long it would have waited after failures."""
    waited = []
    forwarder.hurry()
    for _ in range(most):
        wait = forwarder.round()
        if forwarder.cursor.state == "waiting":
            waited.append(wait)
            forwarder.hurry()
        if forwarder.drained:
            break
    assert forwarder.drained
    return waited


@pytest.mark.parametrize("call", ["make", "write", "flush"])
def test_a_call_that_fails_is_made_again_and_nothing_is_lost(run, forwarder, tracker, call):
    channel = run.open()
    tracker.trouble = [call, call, call]
    for step in range(10):
        run.metrics(channel, step, loss=1.0)
    assert rounds(forwarder) == [FIRST_DELAY] * 3
    assert tracker.steps == list(range(10))
    assert forwarder.cursor.failures == 3
    assert "refused" in forwarder.cursor.last_error
    assert forwarder.cursor.state == "running"
    assert run.status("plain")["delivered"] == 10


def test_a_failing_close_does_no_harm(run, forwarder, tracker):
    tracker.trouble = ["write", "close"]
    run.metrics(run.open(), 1, loss=1.0)
    rounds(forwarder)
    assert tracker.steps == [1]


def test_the_wait_doubles_up_to_a_minute_and_is_told(run, forwarder, tracker, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    tracker.trouble = ["write"] * 9
    run.metrics(run.open(), 1, loss=1.0)
    waits = []
    while not forwarder.drained:
        waits.append(forwarder.round())
        clock[0] += waits[-1]
    assert waits[:9] == [1, 2, 4, 8, 16, 32, LONGEST_DELAY, LONGEST_DELAY, LONGEST_DELAY]
    assert tracker.steps == [1]


def test_a_waiting_sink_says_when_it_will_try_again(run, forwarder, tracker):
    tracker.trouble = ["write"]
    run.metrics(run.open(), 1, loss=1.0)
    wait = forwarder.round()
    status = run.status("plain")
    assert status["state"] == "waiting"
    assert status["last_error"] == "ConnectionError: write refused"
    assert status["next_try"] == pytest.approx(status["updated"] + wait, abs=0.1)
    assert 0 < forwarder.round() <= wait  # too early: not even asked


def test_a_stand_in_looks_for_its_tracker_though_no_more_points_come(run, forwarder, tracker, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    tracker.away = True
    run.metrics(run.open(), 1, loss=1.0)
    while not forwarder.drained:
        clock[0] += forwarder.round()
    written = tracker.flushes
    clock[0] += Sink.flush_seconds - 0.1
    forwarder.round()
    assert tracker.flushes == written
    clock[0] += 0.2
    forwarder.round()
    assert tracker.flushes == written + 1
    tracker.away = False
    clock[0] += 10
    forwarder.round()
    assert tracker.flushes == written + 1  # back, with nothing to write


def test_a_hurried_backlog_is_flushed_once_it_is_read(run, tracker, monkeypatch):
    monkeypatch.setattr("rankside_agent.sinks.forwarder.READ_BYTES", 1)  # an entry a round
    channel = run.open()
    for step in range(10):
        run.metrics(channel, step, loss=1.0)
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    forwarder = Forwarder(run.path, "plain", make=tracker.sink)
    forwarder.round()
    forwarder.hurry()
    before = tracker.flushes
    while not forwarder.drained:
        forwarder.round()
    assert tracker.steps == list(range(10))
    assert tracker.flushes == before + 1


def test_a_sink_that_holds_points_back_keeps_its_position(run, forwarder, tracker):
    channel = run.open()
    run.metrics(channel, 1, loss=1.0)
    rounds(forwarder)
    before = run.status("plain")["position"]
    tracker.settled = False
    run.metrics(channel, 2, loss=1.0)
    rounds(forwarder)
    assert run.status("plain")["position"] == before
    tracker.settled = True
    run.metrics(channel, 3, loss=1.0)
    rounds(forwarder)
    assert run.status("plain")["position"] > before


def test_a_state_folder_that_takes_nothing_delays_nothing(run, forwarder, tracker):
    channel = run.open()
    run.metrics(channel, 1, loss=1.0)
    rounds(forwarder)
    sinks = run.path / "sinks"
    sinks.rename(run.path / "hidden")
    run.metrics(channel, 2, loss=1.0)
    rounds(forwarder)
    assert tracker.steps == [1, 2]
    assert forwarder.cursor.failures == 0


def test_a_journal_that_lost_its_end_with_the_power_is_found_again(run, tracker):
    """The cursor points behind the journal's end, and other entries follow."""
    channel = run.open()
    for step in range(5):
        run.metrics(channel, step, loss=1.0)
    kept = run.journal.end
    for step in range(5, 10):
        run.metrics(channel, step, loss=1.0)
    rounds(Forwarder(run.path, "plain", make=tracker.sink))
    run.journal.close()
    segment = run.path / "journal" / "points" / f"{kept.segment:08d}.seg"
    os.truncate(segment, kept.offset)
    run.journal = Journal(run.path / "journal" / "points")
    run.end(channel, "killed")
    second = run.open(attempt=2)
    for step in range(20, 40):
        run.metrics(second, step, a_longer_name=1.0)
    rounds(Forwarder(run.path, "plain", make=tracker.sink))
    assert tracker.steps == [*range(10), *range(20, 40)]


def test_records_that_are_gone_are_counted_and_told(make_run, tracker, caplog):
    run = make_run(segment_bytes=1000)
    channel = run.open()
    for step in range(100):
        run.metrics(channel, step, loss=1.0)
    (run.path / "journal" / "points" / "00000003.seg").unlink()
    rounds(Forwarder(run.path, "plain", make=tracker.sink))
    status = run.status("plain")
    assert status["read"] == 100
    assert status["delivered"] == len(tracker.steps) < 100
    assert status["delivered"] + status["failed"] == 100
    assert "records are lost" in caplog.text


def test_a_folder_that_names_no_run_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match=r"run\.json does not name a run"):
        Forwarder(tmp_path, "tensorboard")
