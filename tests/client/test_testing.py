"""The recording double: users' tests see what their program said, by the real way, without any agent."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import rankside
from rankside import testing
from rankside.client import Options


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


def test_the_programs_own_monitor_is_recorded_with_its_own_status(here):
    with testing.recording(rank=3, world_size=4) as seen:
        mon = rankside.init(exp_root=here / "exp", rank=1, world_size=2)
        mon.metrics({"loss": 1.0}, step=1)
        seen.monitor.log("of the recording's")
        assert seen.metrics == [(1, {"loss": 1.0})]
        assert rankside.current() is mon
        mon._options = Options(flush_seconds=0)
        mon.close("failed")
    assert (seen.metrics, seen.texts, seen.status) == ([(1, {"loss": 1.0})], ["of the recording's"], "failed")


def test_a_monitor_that_the_program_leaves_open_is_closed_with_the_recording(here):
    with testing.recording() as seen:
        mon = rankside.init(exp_root=here / "exp", rank=1, world_size=2)
        mon.log("said")
    assert (seen.texts, seen.status, mon._closed) == (["said"], "finished", True)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bad loss"), "failed"),
        (KeyboardInterrupt(), "killed"),
        (SystemExit(0), "finished"),
        (SystemExit(3), "failed"),
    ],
)
def test_a_body_that_raises_has_not_finished(error, status):
    with pytest.raises(type(error)), testing.recording() as seen:
        raise error
    assert seen.status == status


def a_program_that_says_too_much() -> testing.Recording:
    with testing.recording(spool_bytes=1 << 20) as seen:
        for _ in range(12_000):
            seen.monitor.log("x" * 1000)
        assert seen.lost > 0
    return seen


def test_records_beyond_what_the_spool_holds_are_counted():
    with pytest.warns(RuntimeWarning, match="records are not seen"):
        seen = a_program_that_says_too_much()
    assert seen.lost + len(seen.texts) == 12_000


def test_nothing_is_lost_where_there_is_room():
    with testing.recording() as seen:
        program()
        assert seen.lost == 0
    assert seen.lost == 0


def test_what_is_printed_under_a_capture_of_the_descriptors_is_recorded(run):
    out, err = run("""
        import os, subprocess
        from rankside import testing
        with testing.recording() as seen:
            seen.monitor.capture_logging(fds=True)
            print("printed")
            assert seen.texts == ["printed"], seen.texts
            subprocess.run(["echo", "by a child"])
            seen.monitor.log("said")
            print("not a whole line", end="")
            assert sorted(seen.texts) == ["by a child", "printed", "said"], seen.texts
        assert sorted(seen.texts) == ["by a child", "not a whole line", "printed", "said"], seen.texts
        assert seen.status == "finished"
        with testing.recording() as seen:
            seen.monitor.capture_logging(fds=True)
            os.write(1, b"\\nshown by the second\\n")
        assert seen.texts == ["", "shown by the second"], seen.texts
        """)
    assert out == "printed\nby a child\nnot a whole line\nshown by the second\n"
    assert err == ""


def test_a_program_finds_the_rank_that_a_recording_names(monkeypatch, capfd):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with testing.recording(rank=3, world_size=4) as seen:
        mon = rankside.init(exp_name="of the program")
        assert (mon.rank, mon.world_size) == (3, 4)
        mon.log("said")
        mon.close()
    assert seen.texts == ["said"]
    assert "RANK" not in os.environ
    with testing.recording() as seen:
        assert rankside.init(exp_name="of the program").rank == 0
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with testing.recording() as seen:
        assert rankside.init(exp_name="of the program").rank == 5
    assert seen.texts == []
    assert capfd.readouterr().err == ""
