"""Kills at random instants, of the sink's process and of W&B's helper: each row is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess

import pytest
from wandb_double import sync

pytest_plugins = ["wandb_double"]
pytestmark = pytest.mark.chaos

KILLS = 20 if os.environ.get("RANKSIDE_CHAOS") == "long" else 3


def train(tracked, channel, steps):
    """Two calls a step, as training loops do."""
    for step in steps:
        tracked.run.metrics(channel, step, loss=float(step))
        tracked.run.metrics(channel, step, **{"grad norm": 1.0})


def killed_again_and_again(tracked, until, chance, kill):
    """Train while processes come and go; returns the steps."""
    channel, step = tracked.run.open(), 0
    for life in range(KILLS):
        if life % 3 == 2:
            channel = tracked.run.open(attempt=life)
        train(tracked, channel, range(step, step + 20))
        step += 20
        process = tracked.start()
        if chance.random() < 0.8:  # else it may die in its first breath
            behind = tracked.run.status("wandb").get("read", 0)
            until(lambda behind=behind: tracked.run.status("wandb").get("read", 0) > behind, timeout=60)
        more = chance.randrange(60)
        train(tracked, channel, range(step, step + more))
        step += more
        chance_to_be_in_the_middle(chance, process)
        kill(process)
    return list(range(step))


def chance_to_be_in_the_middle(chance, process):
    """Let the process live for a part of what a flush takes."""
    try:
        process.wait(chance.random() * 2.5)
    except subprocess.TimeoutExpired:
        return


def at_once(process):
    """SIGKILL."""
    process.send_signal(signal.SIGKILL)
    process.wait(10)


@pytest.fixture
def chance():
    """Random numbers that a failure can be repeated with."""
    seed = int(os.environ.get("RANKSIDE_SEED") or random.randrange(2**32))
    print(f"seed {seed}")
    return random.Random(seed)


def complete(rows, steps):
    """Every value once, in rows that follow each other."""
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    for name in ("loss", "grad norm"):
        assert [row["train_step"] for row in rows if name in row] == steps


def test_offline(offline, until, chance):
    steps = killed_again_and_again(offline, until, chance, at_once)
    offline.ended()
    offline.run.finish(offline.start(), timeout=60)
    complete(offline.reader.rows(), steps)
    for path in offline.reader.files():
        sync(offline.double, path.parent)
    complete(offline.rows, steps)


def test_online(online, until, chance):
    def fault(what):
        luck = chance.random()
        if what.startswith("stream"):
            return "drop" if luck < 0.15 else 503 if luck < 0.25 else None
        return 503 if luck < 0.02 else None

    def kill(process):
        if chance.random() < 0.4:
            online.kill_core(process)
            chance_to_be_in_the_middle(chance, process)
        at_once(process)

    online.double.fault = fault
    steps = killed_again_and_again(online, until, chance, kill)
    online.double.fault = lambda _what: None
    online.ended()
    online.run.finish(online.start(), timeout=90)
    complete(online.rows, steps)
    assert online.double.only().exit_code == 0


def test_a_server_that_comes_and_goes(online, until, chance):
    def kill(process):
        if chance.random() < 0.5:
            online.double.stop()
            chance_to_be_in_the_middle(chance, process)
            at_once(process)
            online.double.start()
        else:
            at_once(process)

    steps = killed_again_and_again(online, until, chance, kill)
    online.ended()
    online.run.finish(online.start(), timeout=90)
    complete(online.rows, steps)
