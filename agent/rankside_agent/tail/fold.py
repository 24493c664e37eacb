"""Fold what several ranks say at once into one: the same module, level, location and text, to the letter.

A fold stands where its first record stood. A rank joins only a fold that stands after everything shown of it
so far, and each fold at most once: so no rank's own order changes, and nothing it repeats is swallowed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from rankside_agent.tail.record import Record, Source, number, weight

SPAN = 2.0  # seconds within which records are said at once
_MOST = 2000  # open folds, and
_HEAVY = 1 << 24  # their bytes: beyond these the oldest is closed
_LABEL = 64  # bytes of one

Said = tuple[str, str, str, bool, str]


@dataclass(eq=False, slots=True)
class Fold:
    """One record, and the labels of all ranks that wrote it."""

    place: int
    record: Record
    last: Record
    labels: list[str]


def fold(records: Iterable[Record]) -> Iterator[Fold]:
    """The records in their order, those said at once folded."""
    return _Folder().run(records)


def alone(records: Iterable[Record]) -> Iterator[Fold]:
    """Each record for itself."""
    for place, record in enumerate(records):
        yield Fold(place, record, record, [record.label])


def ranks_of(labels: Iterable[str]) -> str:
    """The ranks in short: `0-6,8`, with the labels of unknown ranks behind."""
    numbers = sorted({rank for label in labels if (rank := number(label)) is not None})
    parts: list[list[int]] = []
    for rank in numbers:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    spans = [str(first) if first == last else f"{first}-{last}" for first, last in parts]
    return ",".join(spans + sorted({label for label in labels if number(label) is None}))


def said_by(record: Record) -> Said:
    """All that must be the same."""
    return record.source.label, record.level, record.location, record.late, record.text


def at_once(first: float | None, second: float | None) -> bool:
    """Whether two times are close enough."""
    if first is None or second is None:
        return first is second
    return abs(first - second) <= SPAN


class _Folder:
    def __init__(self) -> None:
        self._open: deque[Fold] = deque()
        self._said: dict[Said, list[Fold]] = defaultdict(list)  # each list by place
        self._reached: dict[tuple[Source, str], int] = {}
        self._heavy = 0

    def run(self, records: Iterable[Record]) -> Iterator[Fold]:
        for place, record in enumerate(records):
            while self._open and self._is_full(record):
                yield self._close()
            self._add(place, record)
        while self._open:
            yield self._close()

    def _is_full(self, record: Record) -> bool:
        return (
            len(self._open) >= _MOST
            or self._heavy > _HEAVY
            or not at_once(self._open[0].record.when, record.when)
        )

    def _add(self, place: int, record: Record) -> None:
        same = self._said[said_by(record)]
        found = self._to_join(same, record) if same else None
        if found is None:
            found = Fold(place, record, record, [record.label])
            same.append(found)
            self._open.append(found)
            self._heavy += weight(record)
        else:
            found.last = record
            found.labels.append(record.label)
            self._heavy += _LABEL
        self._reached[record.stream] = found.place

    def _to_join(self, same: list[Fold], record: Record) -> Fold | None:
        reached = self._reached.get(record.stream, -1)
        later = same[bisect_right(same, reached, key=attrgetter("place")) :]
        return next((fold for fold in later if at_once(fold.record.when, record.when)), None)

    def _close(self) -> Fold:
        oldest = self._open.popleft()
        said = said_by(oldest.record)
        del self._said[said][0]
        if not self._said[said]:
            del self._said[said]
        self._heavy -= weight(oldest.record) + (len(oldest.labels) - 1) * _LABEL
        return oldest
