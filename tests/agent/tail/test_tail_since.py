"""A time is found by bisection: right over any number of files, and without reading them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankside_agent.tail.family import START, Family
from rankside_agent.tail.line import local_seconds
from rankside_agent.tail.since import parse_since, place

NOW = datetime(2026, 1, 2, 12, 0, 0)
Text = Callable[..., str]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("10m", NOW - timedelta(minutes=10)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("2d", NOW - timedelta(days=2)),
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5)),
        ("2026-01-02 03:04:05.250000", datetime(2026, 1, 2, 3, 4, 5, 250000)),
        ("2026-01-02", datetime(2026, 1, 2)),
        ("20260102 03:04:05", datetime(2026, 1, 2, 3, 4, 5)),
        ("20260102 03:04:05.5", datetime(2026, 1, 2, 3, 4, 5, 500000)),
    ],
)
def test_times_are_written_in_many_ways(text: str, moment: datetime) -> None:
    assert parse_since(text, NOW) == local_seconds(moment)


def test_a_time_with_a_zone_is_brought_to_the_local_clock() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5).astimezone()
    assert parse_since(moment.isoformat(), NOW) == local_seconds(datetime(2026, 1, 2, 3, 4, 5))


@pytest.mark.parametrize("text", ["yesterday", "10", "m", "10x", "2026-13-01", "20260102 03:04:61"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"no time; write 10m"):
        parse_since(text, NOW)


@pytest.fixture(scope="module")
def hours(runs: Callable[[], Any], node_text: Text) -> Family:
    """A record every 10 s for 6 hours, in five files, the first of them packed."""
    run = runs()
    path = run.node()
    for number in range(2160):
        at = datetime(2026, 1, 2) + timedelta(seconds=10 * number)
        run.append(path, node_text(0, f"{number}\n" + "x" * 200, f"{at:%Y%m%d %H:%M:%S.%f}"))
        if number in (431, 863, 1295, 1727):
            run.rotate(path, number // 60, packed=number < 500)
    return Family(run.log(path))


@settings(max_examples=30)
@given(st.integers(-100, 22_000))
def test_the_place_is_before_the_first_record_of_that_time_and_near_it(hours: Family, second: int) -> None:
    since = local_seconds(datetime(2026, 1, 2) + timedelta(seconds=second))
    found = list(hours.forward(place(hours, since)))
    late = [record for record in found if record.when is not None and record.when >= since]
    assert len(late) == min(2160, max(0, 2160 - (second + 9) // 10))
    assert len(found) - len(late) < 300  # 64 KiB of such records


def test_before_all_records_is_the_start(hours: Family) -> None:
    assert place(hours, 0.0) == START


def test_an_empty_log_has_its_start(run: Any) -> None:
    run.append(run.node(), "")
    assert list(Family(run.log(run.node())).forward(place(Family(run.log(run.node())), 1.0))) == []
