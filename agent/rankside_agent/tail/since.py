"""Find where a time begins in a log by bisection, over its files and then inside one.

A clock that jumped makes bisection land somewhere near; the filter then decides record by record.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

from rankside_agent.tail import line
from rankside_agent.tail.assembly import Kind
from rankside_agent.tail.family import START, Family
from rankside_agent.tail.lines import Read, beginnings
from rankside_agent.tail.names import Order, Position

_NEAR = 1 << 16  # bytes which are sooner read than halved
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"(?:\d{1,9}[smhd])+", re.ASCII)


def parse_since(text: str, now: datetime) -> float:
    """`10m`, `1h30m`, or a date and time of the local clock, on the scale of `line.seconds`."""
    if _SPAN.fullmatch(text):
        parts = re.findall(r"(\d+)([smhd])", text)
        return line.local_seconds(now) - sum(int(count) * _UNITS[unit] for count, unit in parts)
    return line.local_seconds(_moment(text))


def place(family: Family, since: float) -> Position:
    """A position before the first record written at `since`, and not far before it."""
    orders = family.orders
    index = bisect_left(orders, True, key=lambda order: _begins_after(family, order, since))
    if index == 0:
        return START
    order = orders[index - 1]
    opened = family.open(order)
    if opened is None:
        return Position(order, 0)
    with closing(opened[0]) as piece:
        return Position(order, _offset(family.log.kind, piece.read, opened[1], since))


def times(kind: Kind, read: Read, offset: int, end: int) -> Iterator[tuple[int, float]]:
    """Offset and time of each record that begins between the two offsets."""
    lines = beginnings(read, offset, end)
    if offset:
        next(lines, None)  # we stand somewhere inside it
    for start, text in lines:
        head = kind.parse(text)
        if head and head.location is not None and (when := line.seconds(head.stamp)) is not None:
            yield start, when


def _moment(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y%m%d %H:%M:%S" + (".%f" if "." in text else ""))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(
            f"'{text}' is no time; write 10m, 1h30m, 2026-01-02T03:04:05 or 20260102 03:04:05"
        ) from None
    return moment.astimezone().replace(tzinfo=None) if moment.tzinfo else moment


def _begins_after(family: Family, order: Order, since: float) -> bool:
    first = next(times(family.log.kind, family.peek(order), 0, _NEAR), None)
    return first is not None and first[1] >= since


def _offset(kind: Kind, read: Read, end: int, since: float) -> int:
    low, high = 0, end  # the record at `low` is older than `since`
    while high - low > _NEAR:
        middle = (low + high) // 2
        found = next(times(kind, read, middle, high), None)
        if found is not None and found[1] < since:
            low = found[0]
        else:
            high = middle
    return low
