"""Put lines together to records, forwards or backwards, so that a traceback is one unit, not thirty lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankside_agent.tail.line import Head, Parse, seconds
from rankside_agent.tail.names import Position
from rankside_agent.tail.pile import Pile
from rankside_agent.tail.record import Record, Source

MOST_LINES = 100_000  # without any head: then it is no log of ours, and looking further back is in vain


class Kind(NamedTuple):
    """What is known of a log's lines before any is read."""

    parse: Parse
    source: Source
    blank: Head  # for lines whose beginning is nowhere to be found


class Assembler:
    """Takes lines in the order of writing, gives each record once its last line is known."""

    def __init__(self, kind: Kind, before: Head | None = None) -> None:
        self._kind = kind
        self._head = before or kind.blank
        self._pile = Pile()
        self._late = True

    @property
    def waits(self) -> bool:
        """Whether a record has begun that may go on."""
        return self._pile.count > 0

    def feed(self, line: bytes) -> Record | None:
        """The record which this line shows to be complete, if any."""
        head = self._kind.parse(line)
        if head is None:
            self._pile.after(line.decode("utf-8", "replace"))
            return None
        if head.location is None and head.continues(self._head):
            self._pile.after(head.text)
            return None
        done = self.flush()
        self._head, self._late = head, head.location is None
        self._pile.after(head.text)
        return done

    def flush(self) -> Record | None:
        """The record so far; lines that come for it later are marked as late."""
        if not self._pile.count:
            return None
        record = record_of(self._head, self._pile.take(), self._kind.source, late=self._late)
        self._late = True
        return record


def forward(lines: Iterator[bytes], kind: Kind) -> Iterator[Record]:
    """The records of these lines."""
    assembler = Assembler(kind)
    for line in lines:
        if (record := assembler.feed(line)) is not None:
            yield record
    if (last := assembler.flush()) is not None:
        yield last


def backward(lines: Iterator[tuple[Position, bytes]], kind: Kind) -> Iterator[tuple[Position, Record]]:
    """The records of lines given newest first, each with the position of its first line."""
    pile, further, place = Pile(), None, None  # further: the head that the node log's further lines repeat
    for position, line in lines:
        head = kind.parse(line)
        strange = pile.count >= MOST_LINES or (head and further and not head.continues(further))
        if place is not None and pile.count and strange:
            yield place, record_of(further or kind.blank, pile.take(), kind.source, late=True)
            further = None
        place = position
        pile.before(line.decode("utf-8", "replace") if head is None else head.text)
        if head is not None and head.location is None:
            further = head
        elif head is not None:
            yield place, record_of(head, pile.take(), kind.source)
            further = None
    if place is not None and pile.count:
        yield place, record_of(further or kind.blank, pile.take(), kind.source, late=True)


def record_of(head: Head, text: str, source: Source, *, late: bool = False) -> Record:
    """The record which a head and the text of all its lines make."""
    stamp, address, label, world, level, location, _ = head
    return Record(stamp, seconds(stamp), label, world, level, location or "", text, source, address, late)


def head_of(record: Record) -> Head:
    """The head again, for lines that follow a record which was read elsewhere."""
    return Head(
        record.stamp, record.address, record.label, record.world, record.level, record.location, record.text
    )
