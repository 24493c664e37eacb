"""The newest folds are found from the ends of the files, whole, and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rankside_agent.tail.backlog import Backlog
from rankside_agent.tail.family import Family
from rankside_agent.tail.filters import Wanted, parse_pattern
from rankside_agent.tail.fold import Fold, alone, fold, ranks_of

Text = Callable[..., str]
BUDGETS = pytest.mark.parametrize("budget", [1 << 26, 0], ids=["kept", "found again"])


def stamp(tenths: int) -> str:
    return f"20260102 03:{tenths // 600:02d}:{tenths // 10 % 60:02d}.{tenths % 10}00000"


def shown(folds: Any) -> list[tuple[str, str]]:
    return [(ranks_of(each.labels), each.record.text) for each in folds]


@pytest.fixture(scope="module")
def families(runs: Callable[[], Any], level_text: Text) -> list[Family]:
    """Eight ranks, ten steps a second apart; of each even step all say the same, else each its own."""
    run = runs()
    for rank in range(8):
        for step in range(10):
            text = f"step {step}" if step % 2 == 0 else f"step {step} of {rank}"
            run.append(run.level(rank), level_text(rank, text, at=stamp(10 * step)))
    return [Family(run.log(run.level(rank))) for rank in range(8)]


@BUDGETS
def test_folds_are_counted_as_shown(families: list[Family], budget: int) -> None:
    found = shown(Backlog(families, Wanted(), budget=budget).last(10, fold))
    assert (
        found
        == [
            ("0-7", "step 6"),
            *((str(rank), f"step 7 of {rank}") for rank in range(8)),
            ("0-7", "step 8"),
            *((str(rank), f"step 9 of {rank}") for rank in range(8)),
        ][-10:]
    )


@BUDGETS
@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 11, 17, 18, 19, 26, 44, 45, 46])
def test_any_number_of_folds_is_the_end_of_all_of_them(
    families: list[Family], budget: int, count: int
) -> None:
    everything = shown(Backlog(families, Wanted(), budget=budget).last(1000, fold))
    assert len(everything) == 45
    assert shown(Backlog(families, Wanted(), budget=budget).last(count, fold)) == everything[-count:]


@BUDGETS
def test_unfolded_records_are_counted_one_by_one(families: list[Family], budget: int) -> None:
    found = shown(Backlog(families, Wanted(), budget=budget).last(9, alone))
    assert found == [("7", "step 8"), *((str(rank), f"step 9 of {rank}") for rank in range(8))]


@BUDGETS
def test_the_oldest_fold_shown_has_all_its_ranks(families: list[Family], budget: int) -> None:
    wanted = Wanted(pattern=parse_pattern("^step [02468]$"))
    assert shown(Backlog(families, wanted, budget=budget).last(1, fold)) == [("0-7", "step 8")]


def test_none_asked_for_is_none(families: list[Family]) -> None:
    assert shown(Backlog(families, Wanted()).last(0, fold)) == []


def test_no_records_are_no_fault(run: Any) -> None:
    run.append(run.node(), "")
    assert shown(Backlog([Family(run.log(run.node()))], Wanted()).last(5, fold)) == []
    assert shown(Backlog([], Wanted()).last(5, fold)) == []


@BUDGETS
@pytest.mark.parametrize("folding", [alone, fold])
def test_a_batch_that_came_late_hides_no_newer_record_of_another_rank(
    run: Any, node_text: Text, folding: Any, budget: int
) -> None:
    for rank in (1, 0):  # all of rank 0 stands behind all of rank 1, as when its agent was away
        for step in range(60):
            run.append(run.node(), node_text(rank, f"step {step} of {rank}", at=stamp(10 * step + rank)))
    found = shown(Backlog([Family(run.log(run.node()))], Wanted(), budget=budget).last(4, folding))
    assert [text for _, text in found] == [f"step {step} of {rank}" for step in (58, 59) for rank in (0, 1)]


def test_only_the_ends_of_the_files_are_read(run: Any, node_text: Text) -> None:
    for number in range(3000):
        run.append(run.node(), node_text(number % 8, f"{number} " + "x" * 200, at=stamp(number)))
    run.rotate(run.node(), 1)
    for number in range(3000, 6000):
        run.append(run.node(), node_text(number % 8, f"{number} " + "x" * 200, at=stamp(number)))
    family = Family(run.log(run.node()))
    asked: list[int] = []
    assert family.live
    family.live.read = _counting(family.live.read, asked)  # type: ignore[method-assign]
    found: list[Fold] = list(Backlog([family], Wanted()).last(20, fold))
    assert [int(each.record.text.split()[0]) for each in found] == list(range(5980, 6000))
    assert sum(asked) < 400_000  # of 1.5 million


@pytest.mark.parametrize("pattern", ["number 599[5-9]", "number 599"])
def test_a_search_goes_back_no_further_than_its_matches_need(run: Any, node_text: Text, pattern: str) -> None:
    for host in ("a", "b"):
        text = (node_text(0, f"number {number} " + "x" * 200, at=stamp(number)) for number in range(6000))
        run.append(run.node(host), "".join(text))
    run.append(run.node("a"), node_text(0, "number 5999 again", at=stamp(6000)))
    families = [Family(run.log(run.node(host))) for host in ("a", "b")]
    asked: list[int] = []
    for family in families:
        live = family.live
        assert live
        live.read = _counting(live.read, asked)  # type: ignore[method-assign]
    assert len(shown(Backlog(families, Wanted(pattern=parse_pattern(pattern))).last(3, fold))) == 3
    assert sum(asked) < 1_500_000  # of 3.5 million


def _counting(read: Callable[[int, int], bytes], asked: list[int]) -> Callable[[int, int], bytes]:
    def counted(offset: int, count: int) -> bytes:
        asked.append(count)
        return read(offset, count)

    return counted


def test_a_clock_put_back_hides_nothing(run: Any, node_text: Text) -> None:
    for number in range(10):
        run.append(run.node(), node_text(0, f"{number}", at=stamp(36000 - 3600 * (number >= 5) + number)))
    found = Backlog([Family(run.log(run.node()))], Wanted()).last(7, fold)
    assert [text for _, text in shown(found)] == [str(number) for number in range(3, 10)]
