"""Bring records of many ranks into the order of time, without ever changing the order inside one rank.

The time of a record counts as no later than that of any record its rank wrote after it: so a clock that jumps
forward and back, or only back, moves the records around the jump and no others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from math import inf
from operator import itemgetter

from rankside_agent.tail.names import Position
from rankside_agent.tail.record import Record, Source, weight
from rankside_agent.tail.search import Found

_WINDOW = 1000  # records within which the ranks of one node log may lie out of order
_WINDOWS = 50_000  # records in all windows together
_HEAVY = 1 << 26  # bytes in all windows together

Newest = tuple[float, int, Position, Record | None]  # time it counts for, number of the family, place, record


def by_time(records: list[Record]) -> list[tuple[float, Record]]:
    """The records in order of time, each with the time it counts for."""
    lowest: dict[tuple[Source, str], float] = {}
    keyed = []
    for record in reversed(records):
        low = lowest.get(record.stream, inf)
        if record.when is not None and record.when < low:
            low = record.when
        lowest[record.stream] = low
        keyed.append((low, record))
    keyed.reverse()
    keyed.sort(key=itemgetter(0))
    return keyed


def merged(families: Iterable[Iterable[Record]]) -> Iterator[Record]:
    """All records of all families in the order of time, in bounded memory."""
    families = list(families)
    share = max(1, len(families))
    window = max(8, min(_WINDOW, _WINDOWS // share))
    streams = [_in_windows(family, window, _HEAVY // share) for family in families]
    return (record for _, record in heapq.merge(*streams, key=itemgetter(0)))


def newest_first(families: Iterable[Iterable[Found]]) -> Iterator[Newest]:
    """All that is found from the newest back; a family is read only as far as its records are taken."""
    streams = [_falling(number, family) for number, family in enumerate(families)]
    streams.reverse()  # of equal times the last family's is the newest, as `merged` puts it last
    return heapq.merge(*streams, key=itemgetter(0), reverse=True)


def _in_windows(records: Iterable[Record], window: int, most: int) -> Iterator[tuple[float, Record]]:
    held: list[Record] = []
    heavy = 0
    for record in records:
        held.append(record)
        heavy += weight(record)
        if len(held) >= 2 * window or heavy > most:
            ordered = by_time(held)
            half = (len(ordered) + 1) // 2
            yield from ordered[:half]
            held = [record for _, record in ordered[half:]]
            heavy = sum(map(weight, held))
    yield from by_time(held)


def _falling(number: int, family: Iterable[Found]) -> Iterator[Newest]:
    low = inf
    for position, record, when in family:
        if when is not None and when < low:
            low = when
        yield low, number, position, record
