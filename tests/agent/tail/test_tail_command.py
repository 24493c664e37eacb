"""`rankside tail` as a person types it: what it shows, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from rankside_agent.commands.tail import tail as command

Text = Callable[..., str]
Start = Callable[..., Any]
COMMAND = [sys.executable, "-m", "rankside_agent", "tail"]


def called(*arguments: object, **environment: str) -> Result:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(command)
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "80", **environment})


def texts(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line.split("| ", 1)[1] for line in result.stdout.splitlines()]


@pytest.fixture
def spoken(run: Any) -> Any:
    """Two hosts and two ranks, thirty records a second apart."""
    for number in range(30):
        rank = number % 2
        at = f"20260102 03:04:{number:02d}.500000"
        run.say(rank, f"number {number}", at, "WARNING" if number % 10 == 0 else "INFO", host="ab"[rank])
    return run


def test_the_help_fits_a_screen_and_has_an_example() -> None:
    shown = called("--help").stdout
    assert len(shown.splitlines()) <= 40
    assert max(map(len, shown.splitlines())) <= 80
    assert "Example: rankside tail -f" in shown


def test_the_newest_twenty_records_of_all_hosts_are_shown_in_order(spoken: Any) -> None:
    assert texts(called(spoken.root)) == [f"number {number}" for number in range(10, 30)]


def test_as_many_as_asked_for_are_shown(spoken: Any) -> None:
    assert texts(called(spoken.root, "-n", 3)) == ["number 27", "number 28", "number 29"]
    assert texts(called(spoken.root, "-n", 0)) == []
    assert len(texts(called(spoken.root, "-n", 1000))) == 30


def test_since_shows_all_from_then_on_or_the_last_of_them(spoken: Any) -> None:
    since = ("--since", "2026-01-02T03:04:05")
    assert texts(called(spoken.root, *since)) == [f"number {number}" for number in range(5, 30)]
    assert texts(called(spoken.root, *since, "-n", 2)) == ["number 28", "number 29"]
    assert texts(called(spoken.root, "--since", "2026-01-02T03:04:28", "-n", 9)) == ["number 28", "number 29"]
    assert texts(called(spoken.root, "--since", "10m")) == []


def test_ranks_levels_and_words_are_chosen(spoken: Any) -> None:
    assert texts(called(spoken.root, "--rank", 1, "-n", 2)) == ["number 27", "number 29"]
    assert texts(called(spoken.root, "--level", "warning")) == ["number 0", "number 10", "number 20"]
    assert texts(called(spoken.root, "--grep", "number .7$")) == ["number 17", "number 27"]


def test_words_that_nothing_says_are_a_failure_as_with_grep(spoken: Any) -> None:
    result = called(spoken.root, "--grep", "nothing says this")
    assert (result.exit_code, result.output) == (1, "")
    assert called(spoken.root, "--grep", "number", "-n", 0).exit_code == 0


def test_a_run_without_errors_is_no_fault(run: Any) -> None:
    run.say(0, "all is well")
    result = called(run.root, "--level", "error")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_ranks_own_folder_may_be_given(spoken: Any) -> None:
    assert texts(called(spoken.logs / "pretrain" / "rank-1", "-n", 1)) == ["number 29"]


def test_a_module_is_chosen_by_name(spoken: Any) -> None:
    spoken.say(0, "of sft", module="sft")
    assert texts(called(spoken.root, "--module", "sft")) == ["of sft"]


def test_objects_are_unfolded_unless_asked(run: Any) -> None:
    for rank in range(4):
        run.say(rank, "same")
    plain = [json.loads(line) for line in called(run.root, "--json").stdout.splitlines()]
    assert [each["rank"] for each in plain] == [0, 1, 2, 3]
    assert "ranks" not in plain[0]
    (folded,) = [json.loads(line) for line in called(run.root, "--json", "--fold").stdout.splitlines()]
    assert folded["ranks"] == [0, 1, 2, 3]
    assert called(run.root).stdout.startswith("ranks 0-3 (4x) 01-02 12:00:00.000 INFO ")
    assert len(called(run.root, "--no-fold").stdout.splitlines()) == 4


def test_colours_come_on_demand_only(run: Any) -> None:
    run.say(0, "bad", level="ERROR")
    assert "\x1b[31m" in called(run.root, "--color", "always", NO_COLOR="1").stdout
    assert "\x1b" not in called(run.root, "--color", "never").stdout
    assert "\x1b" not in called(run.root).stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--level", "loud"), "--level: unknown level 'loud'; known: trace, debug"),
        (("--rank", "1-x"), "--rank: '1-x' is no rank; give numbers and ranges (0,3-5)"),
        (("--grep", "("), "--grep: '(' is no regular expression: missing )"),
        (("--since", "yesterday"), "--since: 'yesterday' is no time; write 10m"),
        (("--color", "maybe"), "--color: unknown 'maybe'; known: auto, always, never"),
        (("--run", "other"), "and --run 'other' given; give one"),
        (("-n", "-1"), "'--lines' / '-n'"),
        (("-n", "many"), "'--lines' / '-n'"),
    ],
)
def test_wrong_use_is_told_with_the_choices(spoken: Any, arguments: tuple[str, ...], told: str) -> None:
    result = called(spoken.root, *arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_a_file_is_no_folder(spoken: Any) -> None:
    result = called(spoken.node())
    assert result.exit_code == 2
    assert "is no folder; give that of a run, its logs, a module or a rank" in result.stderr


def test_nothing_found_is_told_with_the_choices(spoken: Any, tmp_path: Path) -> None:
    for arguments, told in (
        ((tmp_path / "absent",), "absent does not exist"),
        ((tmp_path,), f"no logs in {tmp_path}"),
        ((spoken.root, "--rank", "9"), "there are modules pretrain and ranks 0-1"),
        ((spoken.root, "--module", "sft"), "there are modules pretrain and ranks 0-1"),
    ):
        result = called(*arguments)
        assert result.exit_code == 1
        assert told in result.stderr
        assert result.stdout == ""


@pytest.fixture
def state(spoken: Any, tmp_path: Path) -> Path:
    """An agent's state that knows a finished run and a newer one."""
    for name, updated, place in (("old", 1.0, "done"), ("new", 2.0, "runs")):
        folder = tmp_path / "state" / place / name
        folder.mkdir(parents=True)
        facts(folder, name, updated, spoken.root if name == "new" else tmp_path / "elsewhere")
    return tmp_path / "state"


def facts(folder: Path, name: str, updated: float, root: Path) -> None:
    """run.json."""
    told = {"exp_root": str(root), "exp_name": name, "updated": updated, "attempts": [{"log_root": "logs"}]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(told))


def test_the_latest_run_is_shown_when_none_is_named(state: Path) -> None:
    assert texts(called("-n", 1, RANKSIDE_STATE_DIR=str(state))) == ["number 29"]


def test_where_the_latest_runs_folder_was_deleted_the_next_one_is_shown(state: Path, tmp_path: Path) -> None:
    facts(state / "done" / "newest", "newest", 3.0, tmp_path / "deleted")
    result = called("-n", 1, RANKSIDE_STATE_DIR=str(state))
    assert texts(result) == ["number 29"]
    assert f"the latest run, newest, has no logs in {tmp_path / 'deleted'}; new is shown" in result.stderr


@pytest.mark.parametrize("named", [("coming",), ("--run", "coming"), ()])
def test_a_run_that_is_to_come_is_waited_for_by_its_name(
    run: Any, tail: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    monkeypatch.setenv("RANKSIDE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("RANKSIDE_CONFIG", raising=False)
    follower = tail(*named, "-f")
    follower.wait_for_notice("no run is known in")
    facts(tmp_path / "state" / "runs" / "coming-1", "coming", 1.0, run.root)
    follower.wait_for_notice("does not exist; waiting for it")
    run.say(0, "here")
    follower.wait_for_line("here")
    assert follower.interrupt() == 0


def test_who_waits_for_a_run_by_its_name_may_stop(
    tail: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSIDE_STATE_DIR", str(tmp_path / "state"))
    follower = tail("coming", "-f")
    follower.wait_for_notice("waiting for it")
    assert follower.interrupt() == 0


def test_a_run_goes_by_its_name(state: Path) -> None:
    assert texts(called("new", "-n", 1, RANKSIDE_STATE_DIR=str(state))) == ["number 29"]
    assert texts(called("--run", "new", "-n", 1, RANKSIDE_STATE_DIR=str(state))) == ["number 29"]
    result = called("old", RANKSIDE_STATE_DIR=str(state))
    assert result.exit_code == 1
    assert "elsewhere/logs does not exist" in result.stderr


def test_an_unknown_run_is_told_with_those_there_are(state: Path, tmp_path: Path) -> None:
    result = called("odd", RANKSIDE_STATE_DIR=str(state))
    assert result.exit_code == 1
    assert "'odd' is not known in" in result.stderr
    assert "new, old" in result.stderr
    result = called(RANKSIDE_STATE_DIR=str(tmp_path / "nothing"))
    assert result.exit_code == 1
    assert "no run is known in" in result.stderr


def test_ctrl_c_ends_it_quietly(spoken: Any, tail: Start) -> None:
    follower = tail(spoken.root, "-f", "-n", "1")
    follower.wait_for_line("number 29")
    assert follower.interrupt() == 0
    assert follower.notices == []


def test_a_run_without_files_is_waited_for(run: Any, tail: Start) -> None:
    follower = tail(run.root, "-f")
    follower.wait_for_notice("does not exist; waiting for it")
    run.say(0, "here")
    follower.wait_for_line("here")
    assert follower.interrupt() == 0


def test_a_closed_pipe_ends_it_quietly_even_when_nothing_comes(spoken: Any) -> None:
    for arguments in (["-n", "1000", "--no-fold"], ["-n", "1", "-f"]):
        process = subprocess.Popen(
            [*COMMAND, str(spoken.root), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


def test_a_full_disk_under_the_output_is_told(spoken: Any) -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run([*COMMAND, str(spoken.root)], stdout=full, stderr=subprocess.PIPE)
    assert process.returncode == 1
    assert process.stderr == b"rankside: tail: [Errno 28] No space left on device\n"


def test_a_terminal_that_knows_only_ascii_is_served(run: Any) -> None:
    run.say(0, "größe 損失")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = subprocess.run([*COMMAND, str(run.root)], capture_output=True, env=environment)
    assert process.returncode == 0
    assert b"gr\\xf6\\xdfe \\u640d\\u5931" in process.stdout


def memory_of(*arguments: object, left: int = 0) -> int:
    """The most memory a call takes, in MiB."""
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == left
    return usage.ru_maxrss // 1024


def test_memory_is_bounded_whatever_is_asked(run: Any, node_text: Text) -> None:
    lines = "".join(node_text(number % 8, f"number {number} " + "x" * 2000) for number in range(500))
    for _ in range(10):
        run.append(run.node(), lines)
    run.append(run.node(), node_text(0, "y" * (64 << 20)) + node_text(1, "after"))
    base = memory_of("--help")
    assert memory_of(run.root, "-n", 3) < base + 60
    assert memory_of(run.root, "-n", 3, "--grep", "[n]othing says this", left=1) < base + 60
    assert memory_of(run.root, "--since", "2026-01-01") < base + 110


def test_the_end_of_a_file_of_a_hundred_gigabytes_is_read_at_once(run: Any, node_text: Text) -> None:
    with open(run.node(), "wb") as file:
        file.truncate(100 << 30)  # holes: they take no room, and hours to read
    for number in range(60):
        run.append(run.node(), node_text(0, f"number {number}", f"20260102 03:04:{number:02d}.000000"))
    process = subprocess.run(
        [*COMMAND, str(run.root), "-n", "20"], capture_output=True, timeout=60, text=True
    )
    assert [line.split("| ")[1] for line in process.stdout.splitlines()] == [
        f"number {n}" for n in range(40, 60)
    ]


def test_a_hung_up_terminal_sends_no_traceback(spoken: Any, tail: Start) -> None:
    follower = tail(spoken.root, "-f")
    follower.wait_for_line("number 29")
    follower.process.send_signal(signal.SIGTERM)
    assert follower.finish() == -signal.SIGTERM
    assert follower.notices == []
