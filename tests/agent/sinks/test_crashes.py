"""TensorBoard's files after crashes at random instants hold, event for event, what they hold without any."""

from __future__ import annotations

import os
import random

import pytest

from rankside.wire import Kind
from rankside_agent.sinks import event_protos, forwarder, load
from rankside_agent.sinks.event_file import records
from rankside_agent.sinks.forwarder import Forwarder


class Crash(BaseException):
    """The process is gone, here and now."""


def test_crashes_change_nothing_in_the_files(make_run, monkeypatch):
    monkeypatch.setattr(forwarder, "READ_BYTES", 300)
    monkeypatch.setattr("rankside_agent.sinks.base.Sink.flush_seconds", 0.0)
    for seed in range(12):
        run, chance = make_run(segment_bytes=2000), random.Random(seed)
        train(run, chance)
        forward(run)
        straight = events_of(run.exp_root / "tensorboard")
        run.exp_root = run.exp_root.with_name("crashed")
        run.write_facts()
        (run.path / "sinks" / "tensorboard.json").unlink()
        while not forward(run, chance):
            tear(run, chance)
        assert events_of(run.exp_root / "tensorboard") == straight, f"seed {seed}"
        assert straight


def train(run, chance):
    """Attempts one after another, beside each other, with and without steps, and with late records."""
    older, step = [], 0
    for attempt in range(1, 6):
        beside = attempt > 1 and chance.random() < 0.3
        config = {"tensorboard_queue_size": chance.choice([1, 3, 1000])}
        log_root = f"logs/attempt-{attempt}" if beside else "logs"
        channel = run.open(attempt=attempt, config=config, log_root=log_root)
        step = max(0, step - chance.randrange(10))
        for _ in range(chance.randrange(30)):
            what = chance.random()
            if what < 0.6:
                step += 1
                run.metrics(channel, step, loss=chance.random(), other=float("nan"))
            elif what < 0.8:
                run.metrics(channel, None, early=chance.random())
            elif what < 0.9:
                run.add(channel, (Kind.PARAMS, ({"attempt": attempt},)), (Kind.EVENT, ("e", {})))
            elif older:
                run.metrics(chance.choice(older), max(0, step - chance.randrange(20)), loss=-1.0)
        if chance.random() < 0.7:
            run.end(channel)
        older.append(channel)


def forward(run, chance=None):
    """One life of the process: to the end, or to its crash. Whether it came to the end."""

    class Mortal(load("tensorboard")):
        def write(self, point):
            if chance and chance.random() < 0.03:
                raise Crash
            super().write(point)

        def flush(self):
            super().flush()
            if chance and chance.random() < 0.1:
                raise Crash

    life = Forwarder(run.path, "tensorboard", make=lambda _name: Mortal)
    try:
        while not life.drained:
            life.round()
            assert not life.cursor.failures, life.cursor.last_error
    except Crash:
        return False
    life.close("done")
    return True


def tear(run, chance):
    """The machine may have lost what was not yet brought to the disk."""
    if chance.random() < 0.5:
        return
    for name, state in run.status().get("private", {"": {}}).items():
        folder = run.exp_root / "tensorboard" / name
        newest = max(folder.glob("*tfevents*"), default=None)
        if newest is not None:
            safe = state["size"] if newest.name == state.get("file") else 0
            os.truncate(newest, chance.randint(min(safe, newest.stat().st_size), newest.stat().st_size))


def events_of(folder):
    """All events of each folder in the order of reading, without headers."""
    found = {}
    for path in sorted(folder.rglob("*tfevents*")):
        events = [data for _, data in list(records(path))[event_protos.HEADER_RECORDS :]]
        found.setdefault(path.parent.name, []).extend(events)
    return found


@pytest.mark.parametrize("damage", ["", "[]", '{"position": [1'])
def test_a_lost_cursor_changes_nothing_in_the_files(make_run, damage):
    run = make_run()
    train(run, random.Random(1))
    forward(run)
    straight = events_of(run.exp_root / "tensorboard")
    (run.path / "sinks" / "tensorboard.json").write_text(damage)
    forward(run)
    assert events_of(run.exp_root / "tensorboard") == straight
