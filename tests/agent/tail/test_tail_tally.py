"""Folds counted in going back are about as many as there are, and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.tail.fold import fold
from rankside_agent.tail.record import Record
from rankside_agent.tail.tally import Tally

Make = Callable[..., Record]


def tallied(records: list[Record]) -> int:
    tally = Tally()
    for record in reversed(records):
        tally.add(record)
    return tally.count


def test_what_all_ranks_say_at_once_counts_once(record: Make) -> None:
    assert tallied([record(rank, text, at) for at, text in enumerate("abc") for rank in range(100)]) == 3


def test_what_a_rank_repeats_counts_as_often(record: Make) -> None:
    assert tallied([record(rank) for rank in range(4) for _ in range(3)]) == 3


def test_what_is_said_again_later_counts_again(record: Make) -> None:
    assert (
        tallied([record(0, at=0), record(1, at=1), record(0, at=5), record(1, at=6), record(2, at=60)]) == 3
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 9)), max_size=30))
def test_it_is_near_the_number_of_folds(record: Make, said: list[tuple[int, str, int]]) -> None:
    records = [record(rank, text, at) for rank, text, at in sorted(said, key=lambda each: each[2])]
    folds = len(list(fold(records)))
    assert folds / 3 <= tallied(records) <= folds


def test_a_flood_of_one_rank_is_counted_in_no_time(record: Make) -> None:
    same = record(0)
    assert tallied([same] * 20_000) == 20_000
