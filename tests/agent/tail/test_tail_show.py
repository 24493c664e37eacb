"""What is shown is readable, says whose it is on every line, and cannot steer a terminal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.tail.escape import drawn, escape
from rankside_agent.tail.fold import Fold, alone, fold
from rankside_agent.tail.record import Record, Source
from rankside_agent.tail.show import Json, Lines

Make = Callable[..., Record]


def one(record: Record) -> Fold:
    return next(alone([record]))


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        (" 1%|#  | 1/100\r 2%|## | 2/100", " 1%|#  | 1/100\\r 2%|## | 2/100"),
        ("a\tb", "a\tb"),
        ("\x00\x07\x7f\x9b2J", "\\x00\\x07\\x7f\\x9b2J"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("größe 損失 ✓ �", "größe 損失 ✓ �"),
    ],
)
def test_controls_are_escaped_and_text_is_not(text: str, safe: str) -> None:
    assert escape(text) == safe


@given(st.text())
def test_no_text_leaves_a_control_character_but_the_tab(text: str) -> None:
    safe = escape(text)
    assert not any(unicodedata.category(char) == "Cc" for char in safe if char != "\t")
    assert not any(unicodedata.bidirectional(char) in {"RLO", "LRO", "RLE", "LRE", "PDF"} for char in safe)


def test_a_line_has_rank_time_level_location_and_text(record: Make) -> None:
    shown = Lines(colour=False)(one(record(7, "loss 2.5", at=5.25, level="WARNING")))
    assert shown == "rank 7   01-02 12:00:05.250 WARNING  train.py:215 | loss 2.5\n"


def test_every_line_of_a_record_names_its_ranks(record: Make) -> None:
    (folded,) = fold([record(rank, "Traceback:\n  File a\n\nKeyError") for rank in range(7)])
    first, *others = Lines(colour=False)(folded).splitlines()
    assert first == "ranks 0-6 (7x) 01-02 12:00:00.000 INFO     train.py:215 | Traceback:"
    assert others == ["ranks 0-6 (7x) |   File a", "ranks 0-6 (7x) | ", "ranks 0-6 (7x) | KeyError"]


def test_a_time_of_whole_seconds_claims_no_milliseconds(record: Make) -> None:
    shown = Lines(colour=False)(one(record(0, stamp="20260102 12:00:00")))
    assert shown.startswith("rank 0   01-02 12:00:00     INFO ")


def test_late_lines_have_the_rank_and_no_second_head(record: Make) -> None:
    assert (
        Lines(colour=False)(one(record(3, "  File a\nend", late=True)))
        == "rank 3   |   File a\nrank 3   | end\n"
    )


def test_modules_are_named_once_there_are_two(record: Make) -> None:
    show = Lines(colour=False)
    show(one(record(0)))
    assert "attempt-2/sft/train.py:215 |" in show(one(record(0, source=Source("attempt-2/sft", "sft"))))
    assert "pretrain/train.py:215 |" in show(one(record(0)))


def test_names_from_strangers_are_escaped_too(record: Make) -> None:
    odd = record("\x1b[2J-1", location="a\x1b]0;x\x07.py:1", level="\x1b[5m")
    shown = Lines(colour=False)(one(odd))
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_colours_go_by_level(record: Make) -> None:
    show = Lines(colour=True)
    assert "\x1b[31m" in show(one(record(0, level="ERROR")))
    assert "\x1b[33m" in show(one(record(0, level="WARNING")))
    assert "\x1b[31m" not in show(one(record(0, level="INFO")))
    assert show(one(record(0, level="NOTICE"))).count("\x1b") == 4  # of time and location


TITAN = "\x1b[31mstep: 10  \x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[1;35mmfu: 30.80%\x1b[39m"


def test_colours_of_the_text_are_shown_where_colours_are_and_end_with_the_line(record: Make) -> None:
    assert Lines(colour=True)(one(record(0, TITAN))).endswith(f" | {TITAN}\x1b[0m\n")
    plain = Lines(colour=False)(one(record(0, TITAN)))
    assert plain.endswith(" | step: 10  grad_norm:  1.2345  mfu: 30.80%\n")


@pytest.mark.parametrize(
    "steering",
    [
        "\x1b[2J",
        "\x1b[8m",
        "\x1b[5m",
        "\x1b[1;8m",
        "\x1b]0;t\x07",
        "\x1b[31",
        "\x1b[?25lm",
        "\x1b[38;5m",
        "\x9b31m",
    ],
)
@pytest.mark.parametrize("colour", [True, False])
def test_nothing_but_colours_comes_through(record: Make, steering: str, colour: bool) -> None:
    text = drawn(f"\x1b[32ma{steering}b", colour=colour)
    assert text == (f"\x1b[32ma{escape(steering)}b\x1b[0m" if colour else f"a{escape(steering)}b")


def test_an_object_holds_every_field(record: Make) -> None:
    shown = Json(folded=False)(one(record(7, "Traceback:\n  x", at=0.5, level="ERROR")))
    assert json.loads(shown) == {
        "time": "2026-01-02T12:00:00.500000",
        "rank": 7,
        "rank_label": "7",
        "world_size": 8,
        "level": "ERROR",
        "level_no": 40,
        "location": "train.py:215",
        "text": "Traceback:\n  x",
        "module": "pretrain",
        "host": "a",
    }
    assert shown.count("\n") == 1


def test_an_object_says_null_where_nothing_is_known(record: Make) -> None:
    odd = record("node.a-4711", at=None, world="?", level="NOTICE", source=Source("sft", "sft"), late=True)
    shown = json.loads(Json(folded=False)(one(odd)))
    assert (shown["time"], shown["rank"], shown["world_size"]) == (None, None, None)
    assert (shown["level_no"], shown["host"], shown["late"]) == (None, None, True)


def test_a_folded_object_lists_its_ranks(record: Make) -> None:
    (folded,) = fold([record(0), record("node.a-4711"), record(2)])
    assert json.loads(Json(folded=True)(folded))["ranks"] == [0, "node.a-4711", 2]


@given(text=st.text())
def test_an_object_is_printable_ascii_and_comes_back_whole(record: Make, text: str) -> None:
    shown: Any = Json(folded=False)(one(record(0, text)))
    assert all(" " <= char <= "~" for char in shown[:-1])
    assert json.loads(shown)["text"] == text
