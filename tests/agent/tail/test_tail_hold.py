"""New records wait a moment for what other ranks say at once, and no longer."""

from __future__ import annotations

from collections.abc import Callable

from rankside_agent.tail.follow import OPEN
from rankside_agent.tail.hold import Hold
from rankside_agent.tail.pace import Pace
from rankside_agent.tail.record import Record

Make = Callable[..., Record]


def test_nothing_is_never_due() -> None:
    assert not Hold().due(100.0)


def test_records_are_let_go_after_a_moment_without_more(record: Make) -> None:
    hold = Hold()
    hold.add([record(0)], 10.0)
    assert not hold.due(10.01)
    assert hold.due(10.06)


def test_records_that_keep_coming_are_let_go_within_three_tenths_of_a_second(record: Make) -> None:
    hold, now = Hold(), 10.0
    while not hold.due(now):
        hold.add([record(0)], now)
        now += 0.01
    assert now - 10.0 + OPEN <= 0.32


def test_they_come_out_in_the_order_of_time(record: Make) -> None:
    hold = Hold()
    hold.add([record(0, "b", 2), record(0, "c", 3)], 0.0)
    hold.add([record(1, "a", 1)], 0.0)
    assert [each.text for each in hold.release()] == ["a", "b", "c"]
    assert not hold


def test_a_flood_does_not_wait(record: Make) -> None:
    hold = Hold()
    hold.add([record(0)] * 5000, 0.0)
    assert hold.due(0.0)
    hold.release()
    hold.add([record(0, "x" * (1 << 20))] * 5, 0.0)
    assert hold.due(0.0)


def test_the_pace_is_quick_on_news_slow_in_quiet_and_easy_on_the_node() -> None:
    pace = Pace()
    quick = pace.next(busy=True, cost=0.0)
    for _ in range(50):
        slow = pace.next(busy=False, cost=0.0)
    assert quick <= 0.02 < slow <= 0.25
    assert pace.next(busy=True, cost=0.0) == quick
    assert pace.next(busy=True, cost=0.5) == 2.0
