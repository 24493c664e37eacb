"""How long to wait between two polls: short while there is news, longer in quiet, never the node's time."""

from __future__ import annotations

_SHORT, _LONG = 0.02, 0.25  # seconds; the long one is still below what a person notices
_SHARE = 5  # of the time at most one part in so many is spent polling, be there thousands of files


class Pace:
    """The interval, which adapts."""

    def __init__(self) -> None:
        self._interval = _SHORT

    def next(self, *, busy: bool, cost: float) -> float:
        """Seconds to wait now; `cost` is what the last round took."""
        self._interval = _SHORT if busy else min(self._interval * 1.5, _LONG)
        return max(self._interval, cost * (_SHARE - 1))
