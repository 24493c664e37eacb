"""Count folds in going back, one record at a time; folding itself goes forwards and needs all of them."""

from __future__ import annotations

from collections import defaultdict

from rankside_agent.tail.fold import at_once, said_by
from rankside_agent.tail.record import Record

_MOST = 50_000  # texts remembered; to forget them only makes the count too high, which `Backlog` corrects


class Tally:
    """About how many folds the records make that were given so far, newest first."""

    def __init__(self) -> None:
        self.count = 0
        self._folds: dict[int, list[float | None]] = defaultdict(
            list
        )  # by what is said: each one's newest time
        self._next: dict[
            tuple[int, int], int
        ] = {}  # by what is said and rank: the first fold without the rank

    def add(self, record: Record) -> None:
        """The record before all others."""
        said = hash(said_by(record))
        who = (said, hash(record.stream))
        folds, index = self._folds[said], self._next.get(who, 0)
        while index < len(folds) and not at_once(record.when, folds[index]):
            index += 1
        if index == len(folds):
            folds.append(record.when)
            self.count += 1
        self._next[who] = index + 1
        if len(self._next) > _MOST:
            self._folds.clear()
            self._next.clear()
