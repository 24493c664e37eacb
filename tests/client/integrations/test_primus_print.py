"""print() where Primus sets up its logger: a DEBUG record with module and line, and nothing on stdout."""

from __future__ import annotations

import builtins
import contextlib
import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rankside.integrations import primus, primus_print


@pytest.fixture
def watched(start) -> Any:
    """A monitor with print() captured as Primus does it."""
    made: list[Any] = []

    def begin(**given: Any) -> Any:
        made.append(start(**given))
        primus_print.capture(made[-1])
        return made[-1]

    before = builtins.print
    yield begin
    for mon in reversed(made):
        mon.close()
    assert builtins.print is before


def printed(records, mon) -> list[Any]:
    return [tuple(fields[2:]) for fields in records(1, mon)]


def test_a_call_is_a_record_with_its_caller_and_nothing_is_on_stdout(watched, records, capsys):
    mon = watched()
    print("loading", 3, {"a": 1}, sep="|")
    line = sys._getframe().f_lineno - 1
    print("two\nlines")
    print()
    assert printed(records, mon) == [
        ("DEBUG", "test_primus_print", line, "loading|3|{'a': 1}"),
        ("DEBUG", "test_primus_print", line + 2, "two\nlines"),
    ]
    assert capsys.readouterr().out == ""


def test_parts_of_a_line_are_one_record_and_bars_a_few(watched, texts):
    mon = watched()
    for part in ("loading", ".", "."):
        print(part, end="", flush=True)
    print()
    for n in range(200):
        print(f"\r{n // 2:3d}%|{'#' * (n // 20):<10}| {n}/200", end="")
    print("\ndone")
    assert texts(mon)[0] == "loading.."
    assert "done" in texts(mon)
    assert len(texts(mon)) <= 6


def test_what_goes_elsewhere_goes_there(watched, texts, tmp_path):
    mon, elsewhere = watched(), io.StringIO()
    with (tmp_path / "notes").open("w") as file:
        print("to a file", file=file)
    with contextlib.redirect_stdout(elsewhere):
        print("redirected")
    print("on stderr", file=sys.stderr)
    assert (tmp_path / "notes").read_text() == "to a file\n"
    assert elsewhere.getvalue() == "redirected\n"
    assert texts(mon) == ["on stderr"]


def test_nothing_that_is_printed_raises(watched, texts):
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    mon = watched()
    print(Unprintable(), "and", sep=5, end=7)  # type: ignore[call-overload]
    assert len(texts(mon)) == 1
    assert texts(mon)[0].endswith(" and")


def test_a_second_set_up_and_a_first_that_is_closed(watched, texts, capsys):
    one, two = watched(), watched(exp_name="two")
    print("to the second")
    folders = [mon._spool.folder for mon in (one, two)]
    one.close()
    print("to it still")
    two.close()
    print("as ever")
    assert (texts(folders[0]), texts(folders[1])) == ([], ["to the second", "to it still"])
    assert capsys.readouterr().out == "as ever\n"


def test_a_second_set_up_of_the_same_run_says_nothing_twice(watched, texts):
    mon = watched()
    assert watched() is mon
    print("once")
    assert texts(mon) == ["once"]


def test_the_set_up_of_primus_captures_print(here, tmp_path, monkeypatch, records):
    monkeypatch.setenv("RANKSIDE_ENDPOINT", f"ipc://{here}/a.sock")
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    meta = {"work_group": "team", "user_name": "ann", "exp_name": "llama"}
    config = SimpleNamespace(exp_root_path=str(tmp_path / "exp"), exp_meta_info=meta)
    before = builtins.print
    mon = primus.init_worker_logger(config, "pretrain")
    print("as Primus shows it")
    found = printed(records, mon)
    mon.close()
    assert found[-1][:2] == ("DEBUG", "test_primus_print")
    assert found[-1][3] == "as Primus shows it"
    assert builtins.print is before


def test_without_a_monitor_print_is_left_alone(monkeypatch):
    before = builtins.print
    monkeypatch.setenv("RANKSIDE_DISABLE", "1")
    primus.init_worker_logger(SimpleNamespace(), "pretrain")
    assert builtins.print is before
