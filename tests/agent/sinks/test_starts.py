"""Where a newer attempt takes over from an older one."""

from __future__ import annotations

import pytest

from rankside_agent.sinks.starts import MOST, Starts

STARTS = [(2, 10), (3, 7)]


@pytest.mark.parametrize(("attempt", "first"), [(1, 7), (2, 7), (3, None), (4, None)])
def test_an_attempt_is_replaced_from_the_first_step_of_any_newer_one(attempt, first):
    assert Starts(STARTS).after(attempt) == first


@pytest.mark.parametrize(
    ("attempt", "step", "stands"),
    [
        (1, 6, 6),
        (1, 7, None),
        (1, 12, None),
        (1, -1, None),
        (1, None, 6),
        (3, 12, 12),
        (3, None, 5),
        (3, -1, -1),
    ],
)
def test_a_late_point_stands_before_its_replacement_or_not_at_all(attempt, step, stands):
    assert Starts(STARTS).late(attempt, step, last=5) == stands


def test_it_is_made_again_from_what_it_says_and_is_bounded():
    starts = Starts(STARTS)
    for attempt in range(4, 4 + MOST):
        starts.add(attempt, attempt)
    assert len(starts.plain()) == MOST
    assert Starts([list(each) for each in starts.plain()]).plain() == starts.plain()
