"""Ranks stand in the order of time, each rank in its own order, whatever the clocks do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.tail.merge import by_time, merged, newest_first
from rankside_agent.tail.names import LIVE, Position
from rankside_agent.tail.record import Record, Source

Make = Callable[..., Record]
HOUR = 3600.0
YEARS = 10 * 365 * 24 * HOUR
CLOCKS = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(st.none(), st.floats(-10, 10), st.sampled_from([-HOUR, YEARS]))),
    max_size=30,
)


def texts(records: Any) -> list[str]:
    return [record.text for record in records]


def by_rank(records: list[Record]) -> dict[int | None, list[str]]:
    ordered = sorted(records, key=lambda record: record.rank or 0)
    return {rank: texts(group) for rank, group in groupby(ordered, key=lambda record: record.rank)}


@given(CLOCKS)
def test_no_clock_changes_the_order_inside_a_rank(
    record: Make, clocks: list[tuple[int, float | None]]
) -> None:
    records = [record(rank, str(number), at) for number, (rank, at) in enumerate(clocks)]
    assert by_rank([each for _, each in by_time(records)]) == by_rank(records)
    families = [[each for each in records if (each.rank or 0) % 2 == family] for family in (0, 1)]
    assert by_rank(list(merged(families))) == by_rank(records)


@given(st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=4))
def test_clocks_that_agree_give_one_order_of_time(record: Make, times: list[list[int]]) -> None:
    families = [[record(rank, at=at) for at in sorted(each)] for rank, each in enumerate(times)]
    found = [each.when for each in merged(families)]
    assert found == sorted(at for each in families for at in [one.when for one in each] if at is not None)


def test_ranks_of_one_node_log_that_came_late_are_put_in_order(record: Make) -> None:
    arrived = [record(0, "a", 1), record(0, "c", 3), record(1, "b", 2), record(1, "d", 4)]
    assert texts(merged([arrived])) == ["a", "b", "c", "d"]


def test_a_clock_that_jumps_ten_years_ahead_and_back_moves_only_its_own_records(record: Make) -> None:
    jumping = [record(0, "a", 1), record(0, "b", YEARS), record(0, "c", 5)]
    steady = [record(1, f"at {at}", at) for at in (2, 4, 6)]
    assert texts(merged([jumping, steady])) == ["a", "at 2", "at 4", "b", "c", "at 6"]


def test_a_clock_that_is_put_back_an_hour_keeps_its_order(record: Make) -> None:
    put_back = [record(0, "a", 10), record(0, "b", 10 - HOUR), record(0, "c", 11)]
    assert texts(merged([put_back, [record(1, "x", 5)]])) == ["a", "b", "x", "c"]


def test_the_newest_come_first_over_all_families(record: Make) -> None:
    families = [[record(rank, f"{rank} at {at}", at) for at in (rank, rank + 10)] for rank in range(3)]
    backwards = [[(Position(LIVE, 0), each, each.when) for each in reversed(family)] for family in families]
    found = [each.text for _, _, _, each in newest_first(backwards) if each]
    assert found == ["2 at 12", "1 at 11", "0 at 10", "2 at 2", "1 at 1", "0 at 0"]


def test_a_family_is_read_only_as_far_as_its_records_are_taken(record: Make) -> None:
    def old() -> Any:
        yield Position(LIVE, 1), None, record(0, at=1).when
        raise AssertionError("nobody asked for this")

    new = [record(1, at=9 - number) for number in range(5)]
    newest = newest_first([old(), [(Position(LIVE, 0), each, each.when) for each in new]])
    assert [next(newest)[3] for _ in range(5)] == new


def test_ranks_of_two_attempts_are_not_one_rank(record: Make) -> None:
    other = Source("attempt-2/pretrain", "pretrain")
    records = [record(0, "a", 5), record(0, "b", 1, source=other)]
    assert texts(merged([records])) == ["b", "a"]
