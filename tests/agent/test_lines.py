"""How records read in the files: the layout people's scripts parse, and which file a level goes to."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.lines import Form, Locations, Thresholds, with_extras

Info = Callable[..., dict[str, Any]]
AT = 1767323045.123456  # 2026-01-02 03:04:05 UTC


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


def both(form: Form, text: str, level: str = "INFO", at: float = AT, line: int = 215) -> tuple[str, str]:
    return form(at, level, "train", line, text)


def test_the_level_line_is_as_primus_prints_it_and_the_node_line_is_short(info: Info):
    line, node = both(Form(info(7), Locations()), "saving")
    assert line == (
        "[20260102 03:04:05][user/team][pretrain   ][ip-10.0.0.7][rank-7/8][INFO]     "
        "[-----------train.py:215] : saving\n"
    )
    assert node == "[20260102 03:04:05.123456][rank-7/8][INFO]     [-----------train.py:215] : saving\n"


def test_further_lines_are_raw_in_the_level_file_and_have_their_rank_in_the_node_log(info: Info):
    line, node = both(Form(info(7), Locations()), "one\ntwo\n")
    assert line.endswith(" : one\ntwo\n\n")
    head = "[20260102 03:04:05.123456][rank-7/8][INFO]     "
    assert node == f"{head}[-----------train.py:215] : one\n{head}| two\n{head}| \n"


def test_a_process_without_a_rank_and_a_forked_child_are_told_apart(info: Info):
    unknown = Form(info(None, world_size=1, pid=77), Locations())
    assert "[rank-here-77/?]" in both(unknown, "x")[0]
    child = Form(info(7, pid=4711, parent="the channel of its parent"), Locations())
    line, node = both(child, "one\ntwo")
    assert " : [pid 4711] one\ntwo\n" in line
    assert " : [pid 4711] one\n" in node
    assert node.count("[pid 4711]") == 1


def test_the_launcher_has_its_own_head(info: Info):
    line, _ = both(Form(info(0, role="master", pid=12), Locations()), "x")
    assert line.startswith("(PrimusMaster  pid=12, ip=10.0.0.7) [20260102 03:04:05][user/team]")
    assert "[node-0/8][INFO]" in line


def test_levels_and_locations_keep_their_width_and_never_break_the_line(info: Info):
    form = Form(info(7, module="a\nb", user="u\r\nv", label="7\n[forged]", node_ip="\n"), Locations())
    for line in both(form, "x", "Level 15\n[forged]"):
        assert line.count("\n") == 1
        assert "[Level 15 [forged]]" in line
        assert "[rank-7 [forged]/8]" in line
    assert "[u  v/team][a b        ]" in both(form, "x")[0]
    assert "[WARNING]  [" in both(form, "x", "WARNING")[0]
    assert "[CRITICAL] [" in both(form, "x", "CRITICAL")[0]


def test_the_location_grows_with_the_longest_seen_as_in_primus():
    location = Locations()
    assert location("train", 215) == "[-----------train.py:215] : "
    wide = location("a_rather_long_module_name", 7)
    assert wide == "[a_rather_long_module_name.py:7] : "
    assert len(location("train", 215)) == len(wide)


def test_no_name_of_a_stranger_makes_every_line_long_or_fills_the_memory(info: Info):
    form = Form(info(7, module="m" * 4096), Locations())
    for number in range(3000):
        line, node = form(AT, "l" * 10_000 + str(number), "f" * 10_000 + str(number), number, "x")
        assert len(line) < 1500
        assert len(node) < 1000
    assert len(form._heads) <= 1000


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, -1.0, 1e300, -5, 2**70])
def test_a_time_that_is_none_is_shown_as_dashes(info: Info, at: float):
    line, node = both(Form(info(7), Locations()), "x", at=at)
    assert line.startswith("[-------- --:--:--][user/team]")
    assert node.startswith("[-------- --:--:--.000000][rank-7/8]")


@pytest.mark.parametrize("at", [0, 0.0, 0.9999999999999999, AT, 1e9 - 1e-7, 253402300799, True])
def test_every_time_up_to_the_year_9999_is_shown(info: Info, at: float):
    line, node = both(Form(info(7), Locations()), "x", at=at)
    assert re.match(r"\[\d{8} \d\d:\d\d:\d\d\]\[user", line)
    assert re.match(r"\[\d{8} \d\d:\d\d:\d\d\.\d{6}\]\[rank", node)


ALL = ("debug", "info", "warning", "error")


@pytest.mark.parametrize(
    ("lowest", "number", "names"),
    [
        (10, 5, ()),
        (10, 10, ALL[:1]),
        (10, 15, ALL[:1]),
        (10, 20, ALL[:2]),
        (10, 25, ALL[:2]),
        (10, 30, ALL[:3]),
        (10, 35, ALL[:3]),
        (10, 40, ALL),
        (10, 60, ALL),
        (5, 5, ALL[:1]),
        (5, 1, ()),
        (20, 15, ()),
        (20, 20, ("info",)),
        (20, 60, ALL[1:]),
        (25, 20, ()),
        (25, 25, ("info",)),
        (25, 30, ("info", "warning")),
        (30, 25, ()),
        (30, 30, ("warning",)),
        (40, 35, ()),
        (40, 40, ("error",)),
        (50, 40, ()),
        (50, 50, ("error",)),
    ],
)
def test_a_record_goes_to_its_levels_file_and_those_below_by_number(
    lowest: int, number: int, names: tuple[str, ...]
):
    assert Thresholds(lowest)(number) == names


@pytest.mark.parametrize("lowest", [0, 5, 10, 15, 20, 25, 30, 35, 40, 50, 60])
def test_no_wanted_level_is_without_a_file_and_no_unwanted_one_is_in_any(lowest: int):
    chosen = Thresholds(lowest)
    for number in range(70):
        assert bool(chosen(number)) == (number >= lowest)


ANY_TEXT = st.text(max_size=60)
INFO = {"label": "7", "world_size": 8, "rank": 7, "pid": 1, "parent": None, "user": "u", "team": "t"}
INFO |= {"module": "pretrain", "role": "worker", "node_ip": "10.0.0.7"}


@given(st.floats(), ANY_TEXT, ANY_TEXT, st.integers(), ANY_TEXT)
def test_whatever_a_record_holds_its_text_is_there_whole_and_only_its_own_breaks_make_lines(
    at: float, level: str, file: str, line: int, text: str
):
    level_line, node_lines = Form(INFO, Locations())(at, level, file, line, text)

    assert level_line.endswith(f"] : {text}\n")
    assert level_line.count("\n") == text.count("\n") + 1
    assert node_lines.count("\n") == text.count("\n") + 1
    assert all(each.startswith("[") and "[rank-7/8]" in each for each in node_lines[:-1].split("\n"))


def test_what_was_bound_stands_behind_the_first_line_in_the_node_log_alone(info: Info):
    _, node = both(Form(info(7), Locations()), "saving\nmore")

    tied = with_extras(node, {"step": 3, "name": "a\nb"})

    assert tied.splitlines()[0].partition("] : ")[2] == "saving {step=3, name=a b}"
    assert tied.splitlines()[1:] == node.splitlines()[1:]
