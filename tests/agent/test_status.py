"""What the agent says of itself: the shape that `status --json` and everything behind it rely on."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankside import wire
from rankside.identity import Hello
from rankside.wire import Kind
from rankside_agent import status

House = Any  # of conftest.py
MakeHello = Callable[..., Hello]
Until = Callable[..., None]


@pytest.fixture
def report(house: House) -> Callable[[], dict[str, Any]]:
    agent: Any = SimpleNamespace(
        target="ipc:///x/a.sock",
        state_dir=house.state,
        started=1.7e9,
        auto=False,
        stopping_since=None,
        receiver=SimpleNamespace(counts={"batches": 3}),
        registry=house.registry,
        gauges=SimpleNamespace(status=lambda: {"source": "amdsmi", "cards": 8, "polls": 3}),
    )
    return lambda: status.report(agent)


def test_it_is_plain_values_that_travel_and_print(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]]
):
    house.open(hello(0))
    told = report()
    assert wire.unpack(wire.pack(told)) == json.loads(json.dumps(told)) == told


def test_an_agent_without_runs(house: House, report: Callable[[], dict[str, Any]]):
    told = report()
    assert told["runs"] == []
    assert told["agent"]["pid"] == os.getpid()
    assert told["agent"]["counts"] == {"batches": 3}
    assert set(told["agent"]) >= {"version", "endpoint", "state_dir", "started", "auto", "stopping"}


def test_ranks_and_files_are_told_with_what_was_received_written_and_dropped(
    house: House, hello: MakeHello, sealed: Any, report: Callable[[], dict[str, Any]], until: Until
):
    run, channel = house.open(hello(1, world_size=2))
    house.open(hello(0, world_size=2))
    log = (Kind.LOG, (1.7e9, 20, "INFO", "t", 1, "x"))
    dropped = (Kind.DROPPED, (1.7e9, {"log": 4}))
    run.accept(channel, sealed(1, [log, (Kind.METRICS, (1.7e9, 12, {"loss": 1.0})), dropped]))
    channel.progress.beat({"dropped": 5, "used": 1000, "last": 3})
    until(lambda: run.writer.caught_up(run.logs.end), "the files have it")
    (told,) = report()["runs"]
    assert (told["exp_name"], told["module"], told["attempt"], told["status"]) == (
        "exp",
        "pretrain",
        1,
        "running",
    )
    assert [rank["label"] for rank in told["ranks"]] == ["0", "1"]
    rank = told["ranks"][1]
    assert (rank["rank"], rank["pid"], rank["host"], rank["state"]) == (1, 4001, "here", "alive")
    assert (rank["step"], rank["received"], rank["dropped"], rank["spool_bytes"]) == (12, 3, 5, 1000)
    assert rank["last_seen"] >= 0
    (files,) = told["readers"]
    assert files["reader"] == "logfiles"
    assert files["state"] == "ok"
    assert (files["received"], files["written"], files["behind"], files["dropped"]) == (2, 2, 0, 0)


def test_a_file_that_cannot_be_written_is_named(
    house: House, hello: MakeHello, logged: Any, report: Callable[[], dict[str, Any]], until: Until
):
    blocked = house.root / "exp" / "logs" / "pretrain" / "rank-0" / "debug.log"
    blocked.mkdir(parents=True)
    run, channel = house.open(hello(0))
    run.accept(channel, logged(1, "x"))
    until(lambda: "waiting for" in report()["runs"][0]["readers"][0]["state"], "it is told")
    files = report()["runs"][0]["readers"][0]
    assert str(blocked) in files["state"]
    assert str(blocked) in files["last_error"]


def test_a_disk_that_does_not_answer_is_told_of(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    run, _ = house.open(hello(0))
    monkeypatch.setattr(run.writer, "hangs", lambda: 12.3)
    for _ in range(10):
        house.tick()
    assert report()["runs"][0]["readers"][0]["state"] == "no answer from the disk for 12 s"
    assert any(f"{run.exp_root} does not answer" in text for text in house.reports)


def test_only_the_latest_attempts_ranks_are_shown_and_ended_ones_say_how(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]]
):
    run, first = house.open(hello(0))
    run.end(first, "vanished")
    assert [rank["state"] for rank in report()["runs"][0]["ranks"]] == ["killed"]
    house.open(hello(0, job="job-2", channel="second", pid=5))
    (told,) = report()["runs"]
    assert told["attempt"] == 2
    assert [rank["pid"] for rank in told["ranks"]] == [5]


@pytest.mark.parametrize("content", ["", "[]", "5", '{"state": null}', '{"read": 1, "delivered": 1}'])
def test_a_sink_is_told_of_before_it_has_said_anything_and_whatever_it_wrote(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]], content: str
):
    run, _ = house.open(hello(0))
    run.facts["sinks"] = ["tensorboard"]
    (run.folder / "sinks" / "tensorboard.json").write_text(content)
    sink = report()["runs"][0]["readers"][1]
    assert sink["reader"] == "tensorboard"
    assert isinstance(sink["state"], str)
    assert sink["behind"] == 0


def put_cursor(run: Any, **told: Any) -> None:
    run.facts["sinks"] = ["tensorboard"]
    (run.folder / "sinks" / "tensorboard.json").write_text(json.dumps(told))


def test_a_sink_is_told_with_its_points_its_remark_and_its_process(
    house: House, hello: MakeHello, sealed: Any, report: Callable[[], dict[str, Any]]
):
    run, channel = house.open(hello(0))
    run.accept(channel, sealed(1, [(Kind.METRICS, (1.7e9, step, {"loss": 1.0})) for step in range(5)]))
    counts = {"delivered": 2, "points": 6, "refused": 1, "superseded": 3, "failed": 4}
    put_cursor(run, read=3, state="waiting", failures=7, remark="offline", next_try=1.8e9, **counts)
    run.sinks["tensorboard"] = SimpleNamespace(
        pid=None, last_exit=-9, starts=2, last_error="silent for 300 s"
    )
    sink = report()["runs"][0]["readers"][1]
    assert (sink["received"], sink["written"], sink["behind"]) == (5, 2, 2)
    assert (sink["points"], sink["superseded"], sink["refused"], sink["dropped"]) == (6, 3, 1, 4)
    assert (sink["state"], sink["failures"], sink["remark"], sink["next_try"]) == (
        "waiting",
        7,
        "offline",
        1.8e9,
    )
    assert (sink["pid"], sink["exit"], sink["starts"]) == (None, -9, 2)
    assert sink["process_error"] == "silent for 300 s"


def test_a_tracker_that_cannot_be_loaded_is_told_of(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]]
):
    run, _ = house.open(hello(0))
    run.unusable["wandb"] = "ModuleNotFoundError: No module named 'wandb'"
    sink = report()["runs"][0]["readers"][1]
    assert (sink["reader"], sink["state"]) == ("wandb", "unusable")
    assert sink["unusable"] == "ModuleNotFoundError: No module named 'wandb'"


def shown(report: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> list[str]:
    """What the command prints on a terminal of 100 columns."""
    from rankside_agent.commands import status as command

    monkeypatch.setenv("COLUMNS", "100")
    for run in report["runs"]:
        command._show(run)
    lines: list[str] = capsys.readouterr().out.split("\n")
    return lines


def test_the_table_of_readers_is_readable_at_100_columns(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]], monkeypatch: Any, capsys: Any
):
    run, _ = house.open(hello(0))
    far = {"delivered": 123_456_789, "points": 1_234_567_890, "read": 123_456_789}
    error = "ConnectionError: " + "HTTPConnectionPool(host='x', port=80) \x1b[2J\n" * 20
    put_cursor(run, state="waiting", failures=1234, last_error=error, next_try=1e10, **far)
    text = shown(report(), monkeypatch, capsys)
    (row,) = (line for line in text if line.lstrip().startswith("tensorboard "))
    assert row.split() == ["tensorboard", "waiting", "123456789", "1234567890", "0", "0", "0", "1234"]
    assert all(len(line) <= 100 for line in text[: text.index(row) + 1])
    (below,) = filter(None, text[text.index(row) + 1 :])
    assert below.startswith(" tensorboard: next try in ")
    assert below.endswith("... (the rest: --json)")
    assert "\x1b" not in below


def test_a_run_that_cannot_be_opened_is_told_of_with_the_reason(
    house: House, report: Callable[[], dict[str, Any]], monkeypatch: Any, capsys: Any
):
    house.registry.unopened["exp-1"] = "PermissionError: [Errno 13] Permission denied: 'run.json'"
    told = report()
    assert told["unopened"] == house.registry.unopened
    told["agent"]["gpus"]["polls"] = 0
    monkeypatch.setattr("rankside_agent.commands.status._answer", lambda *_: told)
    assert called() == 0
    wanted = "run exp-1 cannot be opened, and is tried again: PermissionError: [Errno 13]"
    assert wanted in capsys.readouterr().out


def test_what_a_reader_has_to_say_is_below_the_table(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]], monkeypatch: Any, capsys: Any
):
    run, _ = house.open(hello(0))
    put_cursor(run, state="offline", remark="offline; wandb sync exp/wandb/offline-run-1")
    run.sinks["tensorboard"] = SimpleNamespace(pid=None, last_exit=69, starts=4, last_error="")
    run.unusable["mlflow"] = "ImportError: broken"
    run.writer.failed = "waiting for /a/file"
    text = "\n".join(shown(report(), monkeypatch, capsys))
    assert "tensorboard: offline; wandb sync exp/wandb/offline-run-1" in text
    assert "tensorboard: its process ended (exit status 69) and was started 4 times" in text
    assert "mlflow: cannot be used: ImportError: broken" in text
    assert "logfiles: waiting for /a/file" in text


def test_a_call_of_a_tracker_that_does_not_come_back_is_told_of(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]], monkeypatch: Any, capsys: Any
):
    run, _ = house.open(hello(0))
    run.sinks["tensorboard"] = SimpleNamespace(pid=17, last_exit=None, starts=1, last_error="")
    put_cursor(run, state="running", updated=time.time() - 10)
    assert report()["runs"][0]["readers"][1]["quiet"] is None
    put_cursor(run, state="running", updated=time.time() - 100)
    text = "\n".join(shown(report(), monkeypatch, capsys))
    assert "tensorboard: a call of its tracker goes on since 10" in text


def test_a_command_is_on_a_line_of_its_own_and_whole(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]], monkeypatch: Any, capsys: Any
):
    run, _ = house.open(hello(0))
    command = f"    wandb sync '/{'long name/' * 60}'"
    put_cursor(run, state="offline", remark=f"{'why ' * 100}; rows wait for:\n{command}")
    text = shown(report(), monkeypatch, capsys)
    assert command.strip() in [line.strip() for line in text]
    assert any(line.startswith(" tensorboard: why why") and len(line) < 350 for line in text)


def test_what_only_a_stand_in_has_is_behind(
    house: House, hello: MakeHello, sealed: Any, report: Callable[[], dict[str, Any]]
):
    run, channel = house.open(hello(0))
    run.accept(channel, sealed(1, [(Kind.METRICS, (1.7e9, step, {"loss": 1.0})) for step in range(5)]))
    anchor = {"read": 1, "delivered": 1, "points": 1}
    put_cursor(run, state="offline", read=5, delivered=5, points=5, remark="not there", anchor=anchor)
    sink = report()["runs"][0]["readers"][1]
    assert (sink["behind"], sink["written"], sink["points"]) == (4, 1, 1)
    assert sink["last_error"] == "not there"


def test_a_rank_that_nobody_saw_alive_was_not_seen_just_now(
    house: House, hello: MakeHello, report: Callable[[], dict[str, Any]]
):
    run, found = house.open(hello(0, world_size=2))
    _, heard = house.open(hello(1, world_size=2))
    heard.identity = b"connected"
    run.end(found, "vanished")
    run.end(heard, "clean")
    assert [rank["last_seen"] is None for rank in report()["runs"][0]["ranks"]] == [True, False]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder, and no agent that listens."""
    monkeypatch.setenv("RANKSIDE_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("RANKSIDE_ENDPOINT", f"ipc://{tmp_path}/a.sock")
    monkeypatch.delenv("RANKSIDE_CONFIG", raising=False)
    folder = tmp_path / "done" / "mine-0a1b2c3d4e"
    (folder / "sinks").mkdir(parents=True)
    attempt = {"n": 1, "status": "killed", "ended": 1.7e9, "log_root": "logs"}
    facts = {"exp_name": "mine", "exp_root": "/my exp", "module": "sft", "attempts": [attempt]}
    (folder / "run.json").write_text(json.dumps(facts))
    told = {"state": "done", "remark": "offline; once the run has ended:\n    wandb sync '/my exp/w'"}
    (folder / "sinks" / "wandb.json").write_text(json.dumps(told))
    return tmp_path


def called(*words: str) -> int:
    """The command's exit status."""
    from rankside_agent.cli import main

    with pytest.raises(SystemExit) as left:
        main(["status", *words])
    return int(left.value.code or 0)


def test_without_an_agent_the_last_runs_are_shown(alone: Path, capsys: Any):
    assert called() == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "no agent runs now; one starts with the next training"
    assert any(line.startswith(" mine  sft  attempt 1  killed 2023-11-1") for line in lines)
    assert any(line.endswith("  '/my exp'") for line in lines)
    assert "wandb sync '/my exp/w'" in [line.strip() for line in lines]


def test_without_an_agent_the_document_has_the_same_keys(alone: Path, capsys: Any):
    assert called("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["agent"], told["runs"], told["interrupted"]) == (None, [], [])
    assert [run["exp_name"] for run in told["finished"]] == ["mine"]


def test_a_named_agent_that_is_not_there_is_a_failure(alone: Path, capsys: Any):
    assert called("--endpoint", f"ipc://{alone}/other.sock") == 1
    assert "no agent listens" in capsys.readouterr().err


def test_an_agent_that_is_about_to_leave_is_said_to(alone: Path, capsys: Any):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(alone / "a.sock"))
        silent.listen()
        assert called("--timeout", "0.1") == 1
        assert "did not answer" in capsys.readouterr().err
        (alone / "stopping").write_text(str(os.getpid()))
        assert called("--timeout", "0.1") == 1
        assert f"the agent with pid {os.getpid()} is stopping" in capsys.readouterr().err
