"""Only what is wanted is shown, and what cannot be known hides nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rankside_agent.tail.filters import Wanted, parse_level, parse_pattern, parse_ranks
from rankside_agent.tail.record import Record

Make = Callable[..., Record]


@pytest.mark.parametrize(
    ("text", "number"),
    [("warning", 30), ("WARN", 30), ("Fatal", 50), ("success", 25), ("15", 15), ("Level 15", None)],
)
def test_a_level_goes_by_name_or_number(text: str, number: int | None) -> None:
    if number is not None:
        assert parse_level(text) == number


def test_an_unknown_level_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown level 'loud'; known: trace, debug, info"):
        parse_level("loud")


def test_ranks_are_numbers_ranges_and_labels() -> None:
    ranks = parse_ranks("0, 3-5,rank-9,node.a-4711")
    assert [
        label for label in ("0", "1", "3", "5", "6", "9", "node.a-4711", "-", "x-1") if label in ranks
    ] == [*("0", "3", "5", "9", "node.a-4711")]


def test_a_range_of_a_billion_ranks_costs_nothing() -> None:
    assert "123456789" in parse_ranks("0-999999999")


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1;2", "5-3", ",", "1.5"])
def test_what_is_no_rank_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no rank|ends before"):
        parse_ranks(text)


def test_a_bad_pattern_is_refused_with_its_fault() -> None:
    with pytest.raises(ValueError, match="unterminated subpattern"):
        parse_pattern("(")


def test_levels_compare_by_number_and_unknown_names_pass(record: Make) -> None:
    wanted = Wanted(level=30)
    levels = ["DEBUG", "INFO", "WARNING", "CRITICAL", "Level 15", "Level 35", "NOTICE"]
    assert [level for level in levels if wanted(record(0, level=level))] == [
        *("WARNING", "CRITICAL", "Level 35", "NOTICE")
    ]


def test_a_pattern_matches_lines_of_the_text_and_the_location(record: Make) -> None:
    made = record(0, "Traceback:\n  File a\nValueError: x", location="train.py:215")
    for pattern in ("^ValueError", "File a$", r"train\.py", "(?i)valueerror"):
        assert Wanted(pattern=parse_pattern(pattern))(made)
    assert not Wanted(pattern=parse_pattern("^File"))(made)


def test_a_record_without_a_time_passes_any_since(record: Make) -> None:
    noon = record(0).when
    wanted = Wanted(since=noon)
    assert [wanted(record(0, at=at)) for at in (-0.001, 0, 1, None)] == [False, True, True, True]
