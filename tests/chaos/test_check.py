"""The checker of the chaos runs finds what it is there for: each kind of damage, made by hand, is named."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the checker is run by `python -m tests.chaos.check`, too

from tests.chaos import check_logs, check_points
from tests.chaos.testimony import Call, Witness, accounts, text_of

FILES = {"debug": 10, "info": 20, "warning": 30, "error": 40}
NUMBERS = {"INFO": 20, "ERROR": 40}


class Told:
    """A run of one rank with eight records, as an agent without fault writes it."""

    def __init__(self, base: Path) -> None:
        self.exp, self.kept, self.oracle = base / "run", base / "kept", base / "oracle"
        self.rank = self.exp / "logs/pretrain/rank-0"
        for folder in (self.kept, self.oracle, self.rank):
            folder.mkdir(parents=True)
        facts = {"start": 1, "rank": 0, "world": 1, "child": False, "ending": "close", "born": 1.0}
        witness = Witness(self.oracle, facts)
        for number in range(1, 9):
            level = "ERROR" if number % 2 else "INFO"
            witness.begun("k1r0m", Call(number, "log", {"level": level}))
            self.write(level, text_of("k1r0m", number, f"text {number}\nsecond line"))
            witness.returned("k1r0m", number)

    def write(self, level: str, text: str) -> None:
        """To the files that hold this level."""
        for name, least in FILES.items():
            if NUMBERS[level] >= least:
                with (self.rank / f"{name}.log").open("a") as out:
                    out.write(f"[20260102 03:04:05][u/t][m][ip][rank-0/1][{level}] [--rank.py:1] : {text}\n")
        first, *more = text.split("\n")
        head = f"[20260102 03:04:05.000000][rank-0/1][{level}] "
        with (self.rank.parent / "node-here.log").open("a") as out:
            out.write(f"{head}[--rank.py:1] : {first}\n" + "".join(f"{head}| {line}\n" for line in more))

    def edit(self, name: str, change: Callable[[str], str]) -> None:
        """Damage one file."""
        path = self.rank.parent / "node-here.log" if name == "node" else self.rank / f"{name}.log"
        path.write_text(change(path.read_text()))

    def findings(self) -> str:
        return "\n".join(check_logs.findings(self.exp, self.kept, accounts(self.oracle)))


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def of(text: str, number: int) -> str:
    """One record as it stands in a level file."""
    start = text.index(f"rec k1r0m {number} ")
    begin = text.rindex("[20260102", 0, start)
    return text[begin : text.index("\n[", start) + 1 if "\n[" in text[start:] else len(text)]


def test_a_sound_run_is_sound(told: Told):
    assert told.findings() == ""


DAMAGES: dict[str, tuple[str, Callable[[str], str], str]] = {
    "lost": ("debug", lambda text: text.replace(of(text, 3), ""), "k1r0m 3"),
    "twice": ("info", lambda text: text + of(text, 4), "twice"),
    "out of order": ("error", lambda text: text.replace(of(text, 3), "") + of(text, 3), "k1r0m 3 after 7"),
    "changed": ("debug", lambda text: text.replace("text 5", "test 5"), "not whole"),
    "torn": ("error", lambda text: text[:-20], "in the middle of a line"),
    "a hole in the file": ("info", lambda text: text + "\0\0", "NUL"),
    "in a file above its level": ("error", lambda text: text.replace("[ERROR]", "[INFO]"), "is INFO"),
    "a stranger": ("debug", lambda text: text.replace("k1r0m 5", "k9r0m 5"), "nobody said"),
    "lost in the node's log": ("node", lambda text: text.replace("rec k1r0m 2", "rex k1r0m 2"), "k1r0m 2"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(told: Told, damage: str):
    name, change, word = DAMAGES[damage]
    told.edit(name, change)
    assert word in told.findings()


def test_what_is_nowhere_was_dropped_only_if_it_was_announced(told: Told):
    for name in ("debug", "info", "warning", "error"):
        told.edit(name, lambda text: text.replace(of(text, 3), ""))
    told.edit("node", lambda text: text.replace("rec k1r0m 3", "rex k1r0m 3"))
    assert "1 log records lost (0 of open calls), announced 0 to 0" in told.findings()
    told.write("ERROR", "1 records dropped, the spool was full: 1 log")
    assert told.findings() == ""


def test_more_announced_than_lost_is_a_finding_too(told: Told):
    told.write("ERROR", "2 records dropped, the spool was full: 2 log")
    assert "0 log records lost (0 of open calls), announced 2 to 2" in told.findings()


def test_rotated_and_taken_away_files_count(told: Told):
    path = told.rank / "info.log"
    text = path.read_text()
    cut = text.index("[20260102", text.index("rec k1r0m 4 "))
    rotated = told.rank / "info.2026-01-02_03-04-05_000001.log.gz"
    rotated.write_bytes(gzip.compress(text[:cut].encode()))
    path.write_text("")
    assert "k1r0m 5" in told.findings()
    (told.kept / "000--logs%pretrain%rank-0%info.log").write_text(text[cut:])
    assert told.findings() == ""


def value(start: int, step: int, sure: bool = True) -> check_points.Value:
    return check_points.Value(start, step, float(100 * start + step), sure)


def compared(shown: list[tuple[int, float]], expected: list[Any]) -> str:
    return "\n".join(check_points._all_once("tracker", "value", shown, expected, 0, set()))


def test_points_are_compared_one_by_one():
    given = [value(1, 1), value(1, 2), value(1, 3, sure=False)]
    assert compared([(1, 101.0), (2, 102.0)], given) == ""
    assert compared([(1, 101.0), (2, 102.0), (3, 103.0)], given) == ""
    assert "1 points lost" in compared([(1, 101.0)], given)
    assert "1 points twice" in compared([(1, 101.0), (2, 102.0), (2, 102.0)], given)
    assert "should not show" in compared([(1, 101.0), (2, 102.0), (4, 104.0)], given)


def test_a_later_start_replaces_from_its_first_step_on():
    before = [value(1, step) for step in range(1, 6)]
    assert check_points._replaced(before, 3) == before[:2]
    last = check_points._replaced(before, 5)
    assert (last[:4], last[4].sure) == (before[:4], False)


def test_what_is_shown_goes_forward_and_repeats_no_step_but_that_of_a_new_start():
    def shown(*points: str) -> list[tuple[int, int]]:
        found = [(int(point[0]), int(point[2:])) for point in points]
        return check_points._out_of_order(found, again={3})

    assert shown("1:1", "1:2", "1:3", "2:3", "2:4") == []
    assert shown("1:1", "1:2", "2:2", "2:3") == [(2, 2)]
    assert shown("1:3", "1:3", "1:4") == [(3, 3)]
    assert shown("1:13", "1:14", "1:1", "1:2") == [(14, 1)]
    assert shown("1:13", "1:14", "2:1", "2:2") == [(14, 1)]


def test_what_came_late_of_an_earlier_start_stands_behind():
    late = [(2, 17), (2, 18), (1, 1), (1, 2), (3, 19)]
    assert check_points._out_of_order(late, again={17, 19}) == []
    assert check_points._out_of_order([*late, (3, 2)], again={17, 19}) == [(19, 2), (2, 2)]


def test_a_testimony_tells_what_returned(tmp_path: Path):
    witness = Witness(tmp_path, {"start": 1, "rank": 0, "born": 1.0})
    for number in (1, 2):
        witness.begun("s", Call(number, "log", {"level": "INFO"}))
    witness.returned("s", 1)
    (tmp_path / "1-0-2.jsonl").touch()  # killed before it could say who it is
    (account,) = accounts(tmp_path)
    assert json.dumps(account.facts["rank"]) == "0"
    assert [(call.number, returned) for _, call, returned in account.calls("log")] == [(1, True), (2, False)]
