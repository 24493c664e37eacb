"""What a GPU refused is asked for again, ever more rarely."""

from __future__ import annotations

import pytest

from rankside_agent.gpu.refusals import HOUR, SOON, Refusals


@pytest.fixture
def clock():
    """A time to set."""
    return [1000.0]


@pytest.fixture
def refusals(clock):
    """None yet."""
    return Refusals(lambda: clock[0])


def test_what_was_never_refused_is_due(refusals):
    assert refusals.due(("gpu 0", "power"))


@pytest.mark.parametrize(("lasting", "wait"), [(False, SOON), (True, HOUR)])
def test_a_refusal_waits_and_the_next_one_twice_as_long(refusals, clock, lasting, wait):
    for factor in (1, 2, 4):
        refusals.refused("power", lasting)
        clock[0] += factor * wait - 0.1
        assert not refusals.due("power")
        clock[0] += 0.1
        assert refusals.due("power")


def test_an_answer_ends_it(refusals, clock):
    refusals.refused("power", lasting=False)
    refusals.answered("power")
    assert refusals.due("power")
    refusals.refused("power", lasting=False)
    clock[0] += SOON
    assert refusals.due("power")


def test_a_day_of_refusals_asks_a_dozen_times(refusals, clock):
    asked = 0
    for _ in range(24 * 3600):
        clock[0] += 1
        if refusals.due("power"):
            refusals.refused("power", lasting=False)
            asked += 1
    assert asked < 15
