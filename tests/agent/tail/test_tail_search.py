"""A search by words finds just what parsing everything finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.tail.family import Family
from rankside_agent.tail.filters import Wanted, parse_pattern
from rankside_agent.tail.search import wanted_backward, words

Text = Callable[..., str]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("CUDA error", [b"CUDA error"]),
        ("loss.*nan", [b"loss", b"nan"]),
        (r"train\.py:215", [b"train.py:215"]),
        ("^step +12$", [b"step ", b"12"]),
        ("colou?r", [b"colo"]),
        ("größe", ["größe".encode()]),
        ("a|b", []),
        ("(?i)error", []),
        ("[ab]c", []),
        (r"\d+ steps", []),
        ("x{3}", []),
        ("", []),
    ],
)
def test_the_words_of_a_pattern_are_those_in_every_match(pattern: str, expected: list[bytes]) -> None:
    assert words(pattern) == expected


@given(st.text("ab.*+?^$\\|", max_size=6), st.text("ab.*+?^$\\|", max_size=12))
def test_a_match_holds_all_words(pattern: str, text: str) -> None:
    try:
        found = re.search(pattern, text)
    except re.error:
        return
    assert not found or all(word in text.encode() for word in words(pattern))


@pytest.fixture(scope="module")
def log(runs: Callable[[], Any], level_text: Text) -> Family:
    """Records of one to four lines in three files, words in first and further lines."""
    run = runs()
    path = run.level(0)
    for number in range(600):
        lines = [f"step {number}", "  loss nan", f"  file {number * 7 % 600}", "end"][: 1 + number % 4]
        run.append(path, level_text(0, "\n".join(lines)))
        if number in (199, 399):
            run.rotate(path, number // 60, packed=number < 200)
    return Family(run.log(path))


def records(found: Any) -> list[Any]:
    return [(place, record) for place, record, _ in found if record]


@pytest.mark.parametrize(
    "pattern",
    [
        "step 77",
        "loss nan",
        "file 7$",
        "end",
        "rank-0",
        "INFO",
        "train.py:215",
        "step.*\n.*loss",
        "nothing",
        r"^step \d7",
    ],
)
def test_it_finds_what_parsing_everything_finds(log: Family, pattern: str) -> None:
    wanted = Wanted(pattern=parse_pattern(pattern))
    expected = [found for found in log.backward() if wanted(found[1])]
    assert records(wanted_backward(log, wanted)) == expected
    if expected:
        stop = expected[len(expected) // 2][0]
        assert records(wanted_backward(log, wanted, stop)) == [
            found for found in expected if found[0] >= stop
        ]


@pytest.mark.parametrize("pattern", ["nothing", "[n]othing"])
def test_it_tells_how_far_back_it_is_without_a_match(log: Family, pattern: str) -> None:
    marks = list(wanted_backward(log, Wanted(pattern=parse_pattern(pattern))))
    assert len(marks) >= 3
    assert all(record is None for _, record, _ in marks)
    assert [place for place, _, _ in marks] == sorted((place for place, _, _ in marks), reverse=True)
    assert any(when for _, _, when in marks)


def test_a_rare_word_is_found_without_parsing_the_other_records(log: Family) -> None:
    parsed: list[bytes] = []

    def parse(line: bytes) -> Any:
        parsed.append(line)
        return log.log.kind.parse(line)

    kind = log.log.kind._replace(parse=parse)
    counting = Family(type(log.log)(log.log.folder, log.log.stem, kind, log.log.say))
    assert len(records(wanted_backward(counting, Wanted(pattern=parse_pattern("step 577$"))))) == 1
    assert len(parsed) < 30
