"""Averages by their definition, over long random series."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.training.averages import (
    ELAPSED,
    TFLOPS,
    TOKENS,
    Averages,
    harmonic_mean,
    tokens_per_second_per_gpu,
)

RATES = st.floats(min_value=1e-3, max_value=1e9)


def windows(series, skip, reset):
    """The definition of design section 8, word for word: what the window holds after each iteration."""
    window = []
    for iteration, value in series:
        if iteration == skip + 1 or len(window) == reset:
            window = []
        if iteration > skip:
            window = [*window, value]
        yield window


@given(
    values=st.lists(RATES, min_size=1, max_size=400),
    skip=st.integers(0, 20),
    reset=st.integers(1, 30),
    first=st.integers(0, 50),
)
def test_means_are_those_of_the_definition(values, skip, reset, first):
    averages = Averages(skip, reset, {})
    series = list(enumerate(values, first))
    for (iteration, value), window in zip(series, windows(series, skip, reset), strict=True):
        found = averages.take(iteration, {ELAPSED: value, TFLOPS: value, TOKENS: value})
        if not window:
            assert {each.mean for each in found.values()} == {None}
            continue
        assert found[ELAPSED].mean == pytest.approx(statistics.fmean(window))
        assert found[TFLOPS].mean == found[ELAPSED].mean
        assert found[TOKENS].mean == pytest.approx(statistics.harmonic_mean(window))


@given(values=st.lists(RATES, min_size=2, max_size=60), at=st.data())
def test_a_window_that_was_put_away_goes_on_as_if_nothing_had_been(values, at):
    cut = at.draw(st.integers(1, len(values) - 1))
    whole, first = Averages(2, 7, {}), Averages(2, 7, {})
    for iteration, value in enumerate(values[:cut], 1):
        whole.take(iteration, {TOKENS: value})
        first.take(iteration, {TOKENS: value})
    second = Averages(2, 7, first.state())
    for iteration, value in enumerate(values[cut:], cut + 1):
        assert second.take(iteration, {TOKENS: value}) == whole.take(iteration, {TOKENS: value})


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -1.0])
def test_what_is_no_rate_leaves_the_window_alone(odd):
    averages = Averages(0, 10, {})
    averages.take(1, {ELAPSED: 2.0})
    assert averages.take(2, {ELAPSED: odd}) == {}
    assert averages.take(3, {ELAPSED: 4.0})[ELAPSED].mean == 3.0


def test_standing_still_has_no_harmonic_mean():
    assert harmonic_mean([0.0, 0.0]) == 0.0
    assert harmonic_mean([0.0, 5.0]) == 5.0


def test_tokens_are_those_of_the_formula():
    fields = {"seq_length": 4096, "global_batch_size": 128, "elapsed_s": 2.0}
    assert tokens_per_second_per_gpu(fields, 8) == 4096 * 128 / 2.0 / 8


@pytest.mark.parametrize(
    "missing",
    [
        {"seq_length": None},
        {"global_batch_size": None},
        {"elapsed_s": None},
        {"elapsed_s": 0.0},
        {"elapsed_s": -1.0},
        {"elapsed_s": 5e-324},
        {"elapsed_s": math.nan},
    ],
)
def test_tokens_are_not_guessed(missing):
    fields = {"seq_length": 4096.0, "global_batch_size": 128.0, "elapsed_s": 2.0, **missing}
    assert tokens_per_second_per_gpu({n: v for n, v in fields.items() if v is not None}, 8) is None
