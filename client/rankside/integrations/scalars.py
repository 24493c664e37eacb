"""The values a framework tells several times over, sent once.

Separate because Megatron gives one value to its TensorBoard writer, again "vs samples", to its W&B writer, and
prints it: the adapters of all four share one of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankside import Monitor

_TWIN = " vs samples"
SAMPLES = "samples vs steps"  # Megatron's own name for it, in W&B
_MOST_NAMES = 20_000  # remembered


class Scalars:
    """Sends each name once a step, the first value that comes.

    A twin "{name} vs samples" is left out: it is the same value over the samples consumed, which as a step
    would tear every axis. What it says beyond that, how many samples were consumed, is sent instead.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.step: int | None = None
        self._last: dict[str, Any] = {}

    def send(self, values: Mapping[str, Any], step: Any = None) -> None:
        """Named values of a step; without one, all of them."""
        at = None if step is None else int(step)
        plain: dict[str, Any] = {}
        for name, value in values.items():
            if not str(name).endswith(_TWIN):
                self._take(plain, str(name), value, at)
            elif at is not None and self.step is not None:  # a twin follows its plain name
                self.send({SAMPLES: at}, self.step)
        if plain:
            self.monitor.metrics(plain, step=at)

    def _take(self, plain: dict[str, Any], name: str, value: Any, step: int | None) -> None:
        if step is not None:
            self.step = step
            if self._last.get(name) == step:
                return
            if len(self._last) >= _MOST_NAMES:
                self._last.clear()
            self._last[name] = step
        plain[name] = value
