"""The values a framework tells several times over, sent once.

Separate because all do that: Megatron gives a value to its TensorBoard writer, again "vs samples", to its W&B
writer, and prints it; Hugging Face and Lightning tell the epoch with everything.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Mapping
from typing import Any

from rankside import Monitor

_TWIN = " vs samples"
SAMPLES = "samples vs steps"  # Megatron's own name for it, in W&B
_MOST_NAMES = 20_000  # remembered


class Scalars:
    """Sends metrics, without what was sent already.

    A twin "{name} vs samples" is left out: it is the same value over the samples consumed, which as a step
    would tear every axis. What it says beyond that, how many samples were consumed, is sent instead.
    Names in `aside` are kept for a throughput sample of their step, whose figures they are.
    """

    def __init__(self, monitor: Monitor, aside: Container[str] = ()) -> None:
        self.monitor = monitor
        self._step: int | None = None
        self._aside = aside
        self._kept: dict[str, tuple[int, Any]] = {}
        self._last: dict[str, tuple[int, Any]] = {}

    def send(self, values: Mapping[str, Any], step: Any = None) -> None:
        """Named values of a step, but for those that this step has already; without a step, all."""
        at = None if step is None else int(step)
        plain: dict[str, Any] = {}
        for given, value in values.items():
            name = str(given)
            if at is None:
                plain[name] = value
            elif name in self._aside:
                self._kept[name] = at, value
            elif not name.endswith(_TWIN):
                if not self._repeats(name, at, value):
                    plain[name] = value
            elif self._step is not None:  # a twin follows its plain name
                self.send({SAMPLES: at}, self._step)
        if plain:
            self.monitor.metrics(plain, step=at)

    def fill(self, values: Mapping[str, Any], step: int) -> None:
        """From a source that is less exact: only names of which this step has no value yet."""
        self.send({n: v for n, v in values.items() if self._last.get(n, (None, None))[0] != step}, step)

    def kept(self, name: str, step: int) -> Any:
        """The value that was set aside at a step, or None."""
        at, value = self._kept.get(name, (None, None))
        return value if at == step else None

    def _repeats(self, name: str, step: int, value: Any) -> bool:
        self._step = step
        at, before = self._last.get(name, (None, None))
        if at == step and _same(before, value):
            return True
        if len(self._last) >= _MOST_NAMES:
            self._last.clear()
        self._last[name] = step, _mark(value)
        return False


def _mark(value: Any) -> Any:
    """By which a value is known again; of a tensor no more, for that may hold memory of a GPU."""
    if isinstance(value, int | float):
        return value
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def _same(mark: Any, value: Any) -> bool:
    """Without looking into a tensor, which would wait for its GPU."""
    if isinstance(mark, weakref.ref):
        return mark() is value
    if not isinstance(value, int | float) or not isinstance(mark, int | float):
        return False
    return mark == value or (mark != mark and value != value)  # noqa: PLR0124  NaN equals nothing
