"""The sink's process is killed at random instants, and its tracker goes away: each point is there once."""

from __future__ import annotations

import math
import os
import random
import signal
import time

import pytest

from rankside.wire import Kind

pytest_plugins = ["mlflow_server"]

SHORT = os.environ.get("RANKSIDE_CHAOS", "short") == "short"
KILLS = 5 if SHORT else 20
BACKLOG = 20_000 if SHORT else 250_000

pytestmark = pytest.mark.chaos


def test_kills_at_any_instant_lose_and_double_nothing(troubled, mlflow_proxy, until):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    run, channel, step = troubled.run, troubled.open(), 0
    finite, nan, infinite = [], [], []

    def train(steps):
        nonlocal step
        for _ in range(steps):
            value = chance.choice([float(step)] * 8 + [math.nan, math.inf])
            (nan if math.isnan(value) else infinite if math.isinf(value) else finite).append(step)
            run.metrics(channel, step, **{"loss": value, "mfu(%)": 1.0})
            if chance.random() < 0.02:
                run.add(channel, (Kind.EVENT, ("e", {"step": step})), (Kind.PARAMS, ({f"p{step}": step},)))
            step += 1

    for _ in range(KILLS):
        train(chance.randrange(2000))
        mlflow_proxy.trouble = chance.choice([0, 0, 0, 503, "drop"])
        process, seen = run.start("mlflow"), len(mlflow_proxy.requests)
        wanted = seen + chance.randrange(12)  # requests it may make
        deadline = time.monotonic() + 10
        while len(mlflow_proxy.requests) < wanted and time.monotonic() < deadline:
            train(1)
            time.sleep(0.01)
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    mlflow_proxy.trouble = 0
    troubled.ended()
    run.finish(run.start("mlflow"), timeout=120)
    reader = troubled.reader
    assert len(reader.runs()) == 1
    rows = reader.rows("loss")
    assert [at for at, _, value in rows if not math.isnan(value)] == finite
    assert all(value == at for at, _, value in rows if not math.isnan(value))
    assert [at for at, _, value in rows if math.isnan(value)] == nan
    assert [at for at, _, _ in reader.rows("nonfinite/loss")] == infinite
    assert reader.scalars("mfu(%)") == [(at, 1.0) for at in range(step)]
    status = run.status("mlflow")
    assert status["read"] == status["delivered"] + status["skipped"] + status["failed"]
    assert reader.run.info.status == "FINISHED"


def test_a_backlog_of_days_is_delivered_at_the_servers_speed(tracked):
    channel = tracked.open()
    for step in range(BACKLOG // 100):
        tracked.run.metrics(channel, step, **{f"metric {number}": float(step) for number in range(100)})
    began = time.monotonic()
    tracked.run.finish(tracked.run.start("mlflow"), timeout=800)
    seconds = time.monotonic() - began
    print(f"{BACKLOG} points in {seconds:.1f} s: {BACKLOG / seconds:.0f} a second")
    assert tracked.run.status("mlflow")["points"] == BACKLOG
    assert len(tracked.reader.rows("metric 99")) == BACKLOG // 100
