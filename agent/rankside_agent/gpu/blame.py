"""Sources in which the process hung or died, and which are therefore left out for a while.

Separate because it must outlive that process, and be forgotten some day: a driver may be repaired.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

ENOUGH = 2  # times
HOUR = 3600.0


class Blame:
    """Which of these sources may still be asked."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._names = tuple(names)
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    def __repr__(self) -> str:
        return f"<Blame left_out={self.left_out()}>"

    def on(self, name: str) -> None:
        """It hung, or killed the process."""
        if name in self._names:
            self._times[name] = [*self._times.get(name, [])[1 - ENOUGH :], self._clock()]

    def left_out(self) -> list[str]:
        """Those that did so often enough in the last hour."""
        return [name for name in self._names if self._recent(name) >= ENOUGH]

    def trusted(self) -> list[str]:
        """The others, in order."""
        return [name for name in self._names if self._recent(name) < ENOUGH]

    def _recent(self, name: str) -> int:
        return sum(self._clock() - at < HOUR for at in list(self._times.get(name, ())))
