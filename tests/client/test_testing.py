"""The recording double: users' tests see what their program said, by the real way, without any agent."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import rankside
from rankside import testing


def program() -> None:
    mon = rankside.current()
    mon.capture_logging()
    mon.params({"lr": 0.1, "api_key": "s3cret"})
    for step in (1, 2):
        mon.metrics({"loss": 1 / step}, step=step)
    logging.getLogger("a.train").warning("slow %d", 3)
    mon.throughput(step=2, elapsed_s=0.5)
    mon.event("checkpoint", path="/a")
    mon.artifact("/a/b")
    mon.set_module("sft")


def test_all_that_a_program_said_is_there_while_it_runs_and_afterwards():
    with testing.recording(rank=3, world_size=4) as seen:
        program()
        assert seen.metrics == [(1, {"loss": 1.0}), (2, {"loss": 0.5})]
        assert seen.status is None

    assert seen.metrics == [(1, {"loss": 1.0}), (2, {"loss": 0.5})]
    assert [(log.level, log.file, log.text) for log in seen.logs] == [("WARNING", "train", "slow 3")]
    assert seen.texts == ["slow 3"]
    assert seen.params["lr"] == 0.1
    assert "s3cret" not in str(seen.params)
    assert [(step, fields["elapsed_s"]) for step, fields in seen.throughput] == [(2, 0.5)]
    assert seen.events == [("checkpoint", {"path": "/a"})]
    assert seen.artifacts == ["/a/b"]
    assert seen.modules == ["sft"]
    assert seen.status == "finished"
    assert seen.monitor.is_last


def test_nothing_is_left_and_everything_is_as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANKSIDE_DISABLE", "1")
    before, environ = rankside.current(), dict(os.environ)

    with testing.recording() as seen:
        folder = Path(os.environ["RANKSIDE_SPOOL_DIR"]).parent
        seen.monitor.log("said")

    assert seen.texts == ["said"]
    assert rankside.current() is before
    assert dict(os.environ) == environ
    assert not folder.exists()


def test_a_bad_parameter_is_refused_as_init_does():
    with pytest.raises(rankside.ConfigError, match="disable_wandb"), testing.recording(disable_wandb="maybe"):
        pass
    assert isinstance(rankside.current(), rankside.NoMonitor)
