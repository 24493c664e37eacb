"""The process of a replay: when it is over, what it waits for, and what it tells of an end nobody saw."""

from __future__ import annotations

import json

import pytest

from rankside_agent.sinks import replay
from rankside_agent.sinks.base import GoBack, Sink
from rankside_agent.sinks.forwarder import Forwarder
from rankside_agent.sinks.points import Scalars


class OpenStdin:
    """Nobody closes it; no time passes."""

    def __init__(self):
        self.waits = []

    def wait(self, seconds):
        self.waits.append(seconds)
        return False


class ClosedStdin:
    def wait(self, _seconds):
        return True


class Memory(Sink):
    """A tracker that keeps what it is given; `fails` calls of it fail first, `away` openings are offline."""

    name = "memory"
    flush_seconds = 0.0
    fails = away = 0

    def __init__(self, run, state, counts):
        super().__init__(run, state, counts)
        kind = type(self)
        self._provisional = kind.away > 0
        kind.away -= 1
        if state.get("provisional") and not self._provisional:
            raise GoBack

    @staticmethod
    def wanted(_config):
        return False

    @property
    def provisional(self):
        return self._provisional

    def write(self, point):
        if isinstance(point, Scalars):
            type(self).got.append((point.step, point.values))

    def flush(self):
        if type(self).fails > 0:
            type(self).fails -= 1
            raise ConnectionError("no answer")

    def state(self):
        return {"provisional": self._provisional}

    def finish(self, outcome):
        type(self).outcomes.append((outcome.status, outcome.attempt))
        yield

    def close(self):
        pass


@pytest.fixture
def memory():
    return type("Fresh", (Memory,), {"got": [], "outcomes": []})


@pytest.fixture
def attempts(run):
    """Writes run.json with these ends of attempts."""

    def write(*ends):
        facts = json.loads((run.path / "run.json").read_text())
        listed = [
            {"n": n, "log_root": "logs", "ended": end, "status": "finished" if end else "running"}
            for n, end in enumerate(ends, 1)
        ]
        (run.path / "run.json").write_text(json.dumps({**facts, "attempts": listed, "updated": 5.0}))

    return write


def forwarder(run, memory, **more):
    return Forwarder(
        run.path, "memory", make=lambda _name: memory, jitter=lambda: 0.0, everything=True, **more
    )


def serve(run, memory, stdin=None, patience=60.0, **more):
    made = forwarder(run, memory, **more)
    return replay.serve(made, stdin or OpenStdin(), patience, run.path / "run.json")


def test_an_attempt_that_did_not_ask_for_the_tracker_is_forwarded_and_its_end_told(run, memory, attempts):
    channel = run.open()
    run.metrics(channel, 1, loss=1.0)
    run.end(channel)
    attempts(4.0)
    assert serve(run, memory) == replay.DONE
    assert memory.got == [(1, {"loss": 1.0})]
    assert memory.outcomes == [("finished", 1)]
    assert run.status("memory")["state"] == "done"


def test_a_second_time_nothing_is_told_twice(run, memory, attempts):
    run.metrics(run.open(), 1, loss=1.0)
    attempts(4.0)
    assert [serve(run, memory) for _ in range(2)] == [replay.DONE] * 2
    assert len(memory.got) == len(memory.outcomes) == 1


def test_a_run_that_goes_on_has_no_end(run, memory, attempts):
    run.metrics(run.open(), 1, loss=1.0)
    attempts(3.0, None)
    assert serve(run, memory) == replay.DONE
    assert memory.outcomes == []


def test_an_end_that_nobody_saw_was_a_killed_one(run, memory, attempts):
    run.metrics(run.open(), 1, loss=1.0)
    attempts(3.0, None)
    assert serve(run, memory, unseen=True) == replay.DONE
    assert memory.outcomes == [("killed", 2)]


def test_what_waits_for_ranks_that_are_gone_is_forwarded_then(run, memory, attempts):
    """The last rank has said nothing yet, so that another's loss waits for its first word."""
    run.open(rank=7)
    run.metrics(run.open(rank=3), 1, loss=2.0)
    attempts(None)
    assert serve(run, memory) == replay.DONE
    assert memory.got == []
    assert run.status("memory")["read"] == 0
    assert serve(run, memory, unseen=True) == replay.DONE
    assert memory.got == [(1, {"loss": 2.0})]
    assert run.status("memory")["read"] == 1
    assert serve(run, memory, unseen=True) == replay.DONE
    assert len(memory.got) == 1


def test_a_tracker_that_fails_is_tried_again_with_the_agents_back_off(run, memory):
    run.metrics(run.open(), 1, loss=1.0)
    memory.fails = 3
    stdin = OpenStdin()
    made = forwarder(run, memory)
    made._delay = 0.001
    assert replay.serve(made, stdin, 60.0, run.path / "run.json") == replay.DONE
    assert run.status("memory")["failures"] == 3
    assert max(stdin.waits) < 0.01


def test_patience_ends_a_wait(run, memory):
    run.metrics(run.open(), 1, loss=1.0)
    memory.fails = 10**9
    assert serve(run, memory, patience=0.05) == replay.UNDELIVERED
    status = run.status("memory")
    assert status["state"] == "waiting"
    assert "no answer" in status["last_error"]


def test_a_stand_in_is_left_once_the_tracker_is_back(run, memory):
    run.metrics(run.open(), 1, loss=1.0)
    memory.away = 2
    stdin = OpenStdin()
    assert serve(run, memory, stdin) == replay.DONE
    assert stdin.waits.count(replay.BACK_SECONDS) == 2
    assert memory.got == [(1, {"loss": 1.0})] * 2  # once to the stand-in
    assert run.status("memory")["anchor"] is None


def test_a_stand_in_that_has_everything_is_not_delivered(run, memory):
    run.metrics(run.open(), 1, loss=1.0)
    memory.away = 10**9
    assert serve(run, memory, patience=0.05) == replay.UNDELIVERED
    assert run.status("memory")["state"] == "offline"


def test_the_end_of_stdin_is_the_end_of_work(run, memory):
    run.metrics(run.open(), 1, loss=1.0)
    assert serve(run, memory, ClosedStdin()) == replay.UNDELIVERED
    assert run.status("memory")["state"] == "waiting"


def test_a_folder_that_was_moved_is_told(run, memory):
    run.metrics(run.open(), 1, loss=1.0)
    made = forwarder(run, memory)
    run.path.rename(run.path.with_name("elsewhere"))
    assert replay.serve(made, OpenStdin(), 60.0, run.path / "run.json") == replay.MOVED
    assert not run.path.exists()
    run.path.with_name("elsewhere").rename(run.path)


@pytest.mark.parametrize("arguments", [[], ["tensorboard"], ["wandbb", "/x"], ["tensorboard", "/x", "--no"]])
def test_wrong_use_is_told(arguments, capsys, monkeypatch):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        replay.main(arguments)
    assert ended.value.code == replay.WRONG_USE
    assert "usage: " in capsys.readouterr().err
