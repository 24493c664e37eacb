"""Hold new records back for a moment, so that ranks which say the same at once fold and stand in order."""

from __future__ import annotations

from rankside_agent.tail.merge import by_time
from rankside_agent.tail.record import Record, weight

_QUIET = 0.05  # seconds without a new record, or
_LONGEST = 0.15  # seconds since the first, and all are let go: with follow.OPEN no line waits over 0.3 s
_MANY = 2000
_HEAVY = 1 << 23


class Hold:
    """Records that have arrived and are not shown yet."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._heavy = 0
        self._first = self._last = 0.0

    def __bool__(self) -> bool:
        return bool(self._records)

    def add(self, records: list[Record], now: float) -> None:
        """Records of one log, in its order."""
        if not records:
            return
        if not self._records:
            self._first = now
        self._last = now
        self._records += records
        self._heavy += sum(map(weight, records))

    def due(self, now: float) -> bool:
        """Whether they have waited long enough, or are too many to wait."""
        if len(self._records) >= _MANY or self._heavy > _HEAVY:
            return True
        return bool(self._records) and (now - self._last >= _QUIET or now - self._first >= _LONGEST)

    def release(self) -> list[Record]:
        """All of them, in the order of time."""
        records = [record for _, record in by_time(self._records)]
        self._records, self._heavy = [], 0
        return records
