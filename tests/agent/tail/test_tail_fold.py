"""What ranks say at once is shown once; nobody's word is hidden, and no rank's order changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.tail.fold import alone, fold, ranks_of
from rankside_agent.tail.record import Record, Source

Make = Callable[..., Record]
SAID = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 6)), max_size=40)


def shown(records: Any) -> list[tuple[str, str]]:
    return [(ranks_of(each.labels), each.record.text) for each in fold(records)]


def test_seven_equal_tracebacks_are_one_and_the_odd_one_is_shown(record: Make) -> None:
    same = "Traceback (most recent call last):\n" + "  File x\n" * 30 + "RuntimeError: boom"
    records = [record(rank, same if rank != 3 else "KeyError: 'x'", rank * 0.0007) for rank in range(8)]
    assert shown(records) == [("0-2,4-7", same), ("3", "KeyError: 'x'")]


@pytest.mark.parametrize(
    "change",
    [
        {"text": "text "},
        {"level": "ERROR"},
        {"location": "train.py:216"},
        {"source": Source("sft", "sft")},
        {"late": True},
    ],
)
def test_the_smallest_difference_is_shown(record: Make, change: dict[str, Any]) -> None:
    assert [each.labels for each in fold([record(0), record(1)._replace(**change)])] == [["0"], ["1"]]


def test_the_same_word_of_two_hosts_is_one(record: Make) -> None:
    other = Source("pretrain", "pretrain", "b")
    assert shown([record(0), record(8, source=other)]) == [("0,8", "text")]


def test_what_is_said_later_than_two_seconds_after_is_shown_again(record: Make) -> None:
    assert shown([record(0), record(1, at=2.0), record(2, at=2.001)]) == [("0-1", "text"), ("2", "text")]


def test_what_a_rank_repeats_is_shown_as_often(record: Make) -> None:
    assert shown([record(0), record(1), record(0), record(1), record(0)]) == [
        ("0-1", "text"),
        ("0-1", "text"),
        ("0", "text"),
    ]


def test_a_rank_never_seems_to_say_later_what_it_said_before(record: Make) -> None:
    records = [record(0, "a", 0.0), record(0, "b", 0.1), record(1, "b", 0.2), record(1, "a", 0.3)]
    assert shown(records) == [("0", "a"), ("0-1", "b"), ("1", "a")]


@given(SAID)
def test_every_word_of_every_rank_is_shown_once_and_in_its_order(
    record: Make, said: list[tuple[int, str, int]]
) -> None:
    said = sorted(said, key=lambda each: each[2])
    folds = list(fold(record(rank, text, at) for rank, text, at in said))
    for rank in range(4):
        mine = [text for who, text, _ in said if who == rank]
        assert [each.record.text for each in folds if str(rank) in each.labels] == mine
    assert all(max(Counter(each.labels).values()) == 1 for each in folds)
    assert all((each.last.when or 0) - (each.record.when or 0) <= 2.0 for each in folds)


def test_a_flood_of_one_rank_is_let_through_in_bounded_memory(record: Make) -> None:
    same = record(0)
    taken = 0

    def flood() -> Any:
        nonlocal taken
        for _ in range(20_000):
            taken += 1
            yield same

    first = next(fold(flood()))
    assert first.labels == ["0"]
    assert taken < 3000


def test_unfolded_each_record_stands_for_itself(record: Make) -> None:
    assert [each.labels for each in alone([record(0), record(1)])] == [["0"], ["1"]]


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["3"], "3"),
        (["2", "0", "1"], "0-2"),
        (["0", "2", "4"], "0,2,4"),
        (["10", "9", "node-4711", "1"], "1,9-10,node-4711"),
    ],
)
def test_ranks_are_written_in_short(labels: list[str], text: str) -> None:
    assert ranks_of(labels) == text
