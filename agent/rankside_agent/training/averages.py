"""Running averages over the samples of a training, as Primus defines them.

Separate because they are arithmetic and nothing else: a test compares them with the definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Average(NamedTuple):
    """A value of this sample, and the mean of the window; None while nothing is in it."""

    value: float
    mean: float | None


class Averages:
    """One window a figure; iterations up to `skip` are left out, `reset` entries are the most it holds.

    Primus' rule (MegatronTrainer.training_log): before an entry comes in, the window is emptied if this is
    iteration `skip` + 1, or if it is full. It therefore does not slide, but begins anew.
    `state` is what `state()` gave, or empty.
    """

    def __init__(self, skip: int, reset: int, state: Mapping[str, Sequence[float]]) -> None:
        self._skip = skip
        self._reset = reset
        self._windows = {name: list(state.get(name, ())) for name in MEANS}

    def take(self, iteration: int, figures: Mapping[str, float]) -> dict[str, Average]:
        """The sample's figures with their means. Figures that are not in MEANS, or no rates, are left out."""
        return {
            name: Average(value, self._mean(name, iteration, value))
            for name, value in figures.items()
            if name in MEANS and math.isfinite(value) and value >= 0
        }

    def state(self) -> dict[str, list[float]]:
        """What a new one must know to go on from here."""
        return {name: list(window) for name, window in self._windows.items()}

    def _mean(self, name: str, iteration: int, value: float) -> float | None:
        window = self._windows[name]
        if iteration == self._skip + 1 or len(window) >= self._reset:
            window.clear()
        if iteration > self._skip:
            window.append(value)
        return MEANS[name](window) if window else None


def arithmetic_mean(values: Sequence[float]) -> float:
    """Of times, and of rates over equal times."""
    return math.fsum(values) / len(values)


def harmonic_mean(values: Sequence[float]) -> float:
    """Of rates over equal amounts of work; 0 where none is positive. Standing still has no rate."""
    positive = [value for value in values if value > 0]
    return len(positive) / math.fsum(1.0 / value for value in positive) if positive else 0.0


ELAPSED, TFLOPS, TOKENS = "elapsed_s", "tflops", "tokens_per_s_per_gpu"
MEANS: dict[str, Callable[[Sequence[float]], float]] = {
    ELAPSED: arithmetic_mean,
    TFLOPS: arithmetic_mean,
    TOKENS: harmonic_mean,
}


def tokens_per_second_per_gpu(fields: Mapping[str, Any], world_size: int) -> float | None:
    """seq_length x global_batch_size / elapsed / world_size; None where one of them is unknown."""
    try:
        tokens = fields["seq_length"] * fields["global_batch_size"]
        rate = float(tokens / fields["elapsed_s"] / world_size)
    except (KeyError, TypeError, ZeroDivisionError, OverflowError):
        return None
    return rate if math.isfinite(rate) and rate >= 0 else None
