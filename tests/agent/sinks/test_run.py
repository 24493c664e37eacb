"""The process of a sink: how it begins, and how it ends."""

from __future__ import annotations

import fcntl
import subprocess
import sys

import pytest

from rankside_agent.sinks import SINKS, load
from rankside_agent.sinks import run as process
from rankside_agent.sinks.forwarder import Forwarder


class EndedStdin:
    def wait(self, _seconds):
        return True


def refuse(_name):
    raise ImportError("no such tracker here")


@pytest.mark.parametrize("arguments", [[], ["tensorboard"], ["wandbb", "/x"], ["tensorboard", "/x", "more"]])
def test_wrong_use_is_told(arguments):
    told = subprocess.run(
        [sys.executable, "-m", "rankside_agent.sinks.run", *arguments], capture_output=True, text=True
    )
    assert told.returncode == process.WRONG_USE
    assert f"{{{','.join(SINKS)}}} RUN_DIR" in told.stderr


def test_an_unknown_sink_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="unknown kind 'wandbb'; known: mlflow, tensorboard, wandb"):
        load("wandbb")


def test_it_gives_up_at_the_end_of_stdin_when_the_tracker_takes_nothing(run):
    run.metrics(run.open(), 1, loss=1.0)
    forwarder = Forwarder(run.path, "plain", make=refuse, jitter=lambda: 0.0)
    assert process.serve(forwarder, EndedStdin(), patience=0.5) == process.UNDELIVERED
    status = run.status("plain")
    assert status["state"] == "waiting"
    assert "no such tracker here" in status["last_error"]
    assert status["read"] == 0


def test_a_run_that_another_process_holds_is_left_alone(run, monkeypatch, caplog):
    monkeypatch.setattr(process, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
            "print('held', flush=True); sys.stdin.read()",
            str(run.path / "sinks" / "tensorboard.lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline() == b"held\n"
    assert process.main(["tensorboard", str(run.path)]) == process.BUSY
    holder.communicate()
    with (run.path / "sinks" / "tensorboard.lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_it_starts_without_the_weight_of_the_agent():
    heavy = [
        "typer",
        "rich",
        "pydantic",
        "yaml",
        "numpy",
        "torch",
        "tensorflow",
        "wandb",
        "mlflow",
        "psutil",
        "asyncio",
    ]
    code = (
        "import sys; from rankside_agent.sinks import run, event_run, tensorboard;"
        f"print(*[name for name in {heavy} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []


def test_the_agent_asks_whether_a_sink_is_wanted_without_its_library():
    code = (
        "import sys; from rankside_agent.sinks import load; import rankside_agent.sinks.supervisor;"
        "load('tensorboard').wanted({}); print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorboard", "google.protobuf"} & set(told.stdout.split())
