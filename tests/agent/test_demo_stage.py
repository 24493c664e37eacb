"""The demo's processes: none outlives its stage, and no wait outlives its deadline."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import psutil
import pytest

from rankside_agent.demo.stage import Stage, StageError

SLEEPER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER
FAILING = "import sys\nprint('no disk')\nsys.exit(3)\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    for name, text in {"sleeper": SLEEPER, "stubborn": STUBBORN, "failing": FAILING}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return Stage(tmp_path, patience=0.5)


def started(stage: Stage, name: str, module: str) -> list[psutil.Process]:
    """The process and its child, once both run."""
    stage.start(name, module)
    log = stage.folder / f"{name}.log"
    stage.wait(f"{name} prints nothing", lambda: log.read_text().endswith("\n"), 20)
    child = psutil.Process(int(log.read_text()))
    return [child, *child.parents()[:1]]


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that run, in a moment from now; what only waits for init to collect it does not."""
    _, left = psutil.wait_procs(family, timeout=0.2)
    return [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("module", ["sleeper", "stubborn"])
def test_leaving_ends_every_process_and_what_it_started(stage: Stage, module: str) -> None:
    with stage:
        family = started(stage, "training", module)
        assert set(living(family)) == set(family)
    assert living(family) == []
    assert not stage.short.exists()


def test_a_signal_at_any_instant_of_a_start_leaves_no_process_behind(stage: Stage) -> None:
    def start_until_interrupted(seconds: float) -> None:
        timer = threading.Timer(seconds, signal.raise_signal, [signal.SIGINT])
        with stage:
            timer.start()
            while True:
                stage.start("sleeper", "sleeper")

    for turn in range(20):
        with pytest.raises(KeyboardInterrupt):
            start_until_interrupted(turn / 2000)
        assert living(psutil.Process().children()) == []


def test_an_error_on_the_way_ends_them_too(stage: Stage) -> None:
    family: list[psutil.Process] = []

    def interrupted() -> None:
        with stage:
            family.extend(started(stage, "agent", "sleeper"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert living(family) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_wait_in_which_nothing_moves_has_an_end(stage: Stage) -> None:
    with stage:
        started(stage, "training", "sleeper")
        with pytest.raises(StageError, match="never: nothing has moved for 0 s"):
            stage.wait("never", lambda: False, 0.2)


def test_a_wait_goes_on_as_long_as_a_log_grows(stage: Stage) -> None:
    log = stage.folder / "training.log"
    log.touch()

    def until() -> bool:
        with log.open("a") as file:
            file.write("another line\n")
        return log.stat().st_size > 100

    with stage:
        stage.wait("slow", until, 0.3)


def test_an_agent_that_ends_is_told_with_the_end_of_its_log(stage: Stage) -> None:
    with stage:
        stage.start("agent", "failing")
        with pytest.raises(
            StageError, match=r"agent ended with status 3; the end of .*agent\.log:\n  no disk"
        ):
            stage.wait("listening", lambda: False, 20)


def test_a_training_that_fails_is_told(stage: Stage) -> None:
    with stage:
        stage.start("training", "failing")
        stage.wait("training", lambda: stage.ended("training") is not None, 20)
        with pytest.raises(StageError, match="training ended with status 3"):
            stage.must_have_succeeded("training")


def test_its_processes_know_its_own_agent_and_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSIDE_CONFIG", "/etc/other.yaml")
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WANDB_MODE", "online")
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_URI", "DATABRICKS_HOST"):
        monkeypatch.setenv(name, "the user's own")
    (stage.folder / "tell.py").write_text("import os\nfor item in os.environ.items(): print(*item)\n")
    with stage:
        stage.start("training", "tell")
        stage.wait("telling", lambda: stage.ended("training") is not None, 20)
    told = dict(line.split(" ", 1) for line in (stage.folder / "training.log").read_text().splitlines())
    assert told["RANKSIDE_ENDPOINT"] == f"ipc://{stage.short}/agent.sock"
    assert not {"RANKSIDE_CONFIG", "RANK"} & set(told)
    assert told["WANDB_MODE"] == "offline"
    assert "the user's own" not in told.values()


def test_a_long_temporary_folder_is_not_used_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with Stage(tmp_path) as stage:
        assert len(stage.endpoint.removeprefix("ipc://")) < 107
