"""One throughput sample: what the rank said, what was measured beside it, and what follows from both.

Separate so that the lines and the scalars are made of one thing, and each in a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rankside_agent.training.averages import Average
from rankside_agent.training.memory import Memory


@dataclass
class Sample:
    """Of the last rank. `number` counts from 1 in an attempt; `seq` is its record's."""

    seq: int
    number: int
    time: float
    step: int | None
    world_size: int
    fields: Mapping[str, float]  # as reported, numbers only
    averages: Mapping[str, Average]
    metrics: Mapping[str, float]  # reported at the same step
    train_iters: int | None = None
    own: Memory | None = None  # the rank's GPU as its process sees it
    memory: Memory | None = None  # as the node sees it, with the fullest of all
    measured: bool = False  # whether `memory` belongs to this sample, or is repeated
    timers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # seconds by timer and rank

    @property
    def iteration(self) -> int:
        """The step, or the sample's number where the rank names none."""
        return self.number if self.step is None else self.step

    def plain(self, *names: str) -> float | None:
        """The first of these that the rank reported, in the sample or as a metric."""
        for name in names:
            for values in (self.fields, self.metrics):
                if name in values:
                    return values[name]
        return None


def whole(value: Any) -> int | None:
    """A number of things, or None."""
    try:
        return int(value) if value is not None and not isinstance(value, bool) and int(value) >= 0 else None
    except (TypeError, ValueError, OverflowError):
        return None
