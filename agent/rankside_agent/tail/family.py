"""One log read as a whole, its rotated files and the live one joined; as of the moment it was opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from rankside_agent.tail import assembly, lines
from rankside_agent.tail.lines import CHUNK, FIRST, Cutter
from rankside_agent.tail.log import Log
from rankside_agent.tail.names import LIVE, Order, Position
from rankside_agent.tail.piece import Piece
from rankside_agent.tail.prints import Prints
from rankside_agent.tail.record import Record

START = Position(("", 0), 0)


class Family:
    """A log's files as they stand now: what is written later does not show, what is renamed later does."""

    def __init__(self, log: Log, *, whole_lines: bool = False) -> None:
        """With `whole_lines`, a last line that waits for its newline is left to whoever follows the log."""
        self.log = log
        self.live, self.older = log.snapshot()
        self.end = self.live.size() if self.live else 0
        self.prints = Prints()  # taken now: what happens to the file while it is read is then noticed
        if self.live and whole_lines:
            self.end = lines.whole_until(self.live.read, self.end)
            self.prints.take(self.live.read, self.end)

    def __repr__(self) -> str:
        return f"Family({self.log}, {len(self.older)} older, {self.end} bytes live)"

    @property
    def orders(self) -> list[Order]:
        """The files, oldest first."""
        return [*self.older, LIVE] if self.live else self.older

    def backward(
        self, stop: Position = START, before: Position | None = None
    ) -> Iterator[tuple[Position, Record]]:
        """The records from the end, or those before a position, back to `stop`, newest first.

        The files are read only as far as records are taken.
        """
        return assembly.backward(self._lines_backward(stop, before), self.log.kind)

    def forward(self, start: Position = START) -> Iterator[Record]:
        """The records from `start` to the end."""
        return assembly.forward(self._lines_forward(start), self.log.kind)

    def just_before(self, place: Position | None, near: int) -> tuple[Position | None, list[Record]]:
        """The records that begin in the last `near` bytes before a position, or the end, and where they do.

        Of one file, and read no further back whatever lies there.
        """
        order = place.order if place else next(iter(reversed(self.orders)), None)
        if order is None or not (opened := self.open(order)):
            return None, []
        with closing(opened[0]) as piece:
            end = place.offset if place else opened[1]
            start = max(0, end - near)
            whole = lines.next_line(piece.read, start, end) if start else 0
            begun = (
                offset
                for offset, line in lines.beginnings(piece.read, whole, end)
                if (head := self.log.kind.parse(line)) and head.location is not None
            )
            if (first := next(begun, None)) is None:
                return None, []
            return Position(order, first), list(assembly.forward(cut(piece, first, end), self.log.kind))

    def open(self, order: Order) -> tuple[Piece, int] | None:
        """A file and how much of it counts; None, and a word about it, when it cannot be read."""
        if order == LIVE and self.live:
            return _Guarded(self.live, self.log, lent=True), self.end
        try:
            piece = self.log.open(order)
        except OSError as error:
            self.log.say(f"{self.log}: a rotated file cannot be read: {error.strerror or error}")
            return None
        return None if piece is None else (_Guarded(piece, self.log), piece.size())

    def peek(self, order: Order) -> lines.Read:
        """Read at the beginning of a file, cheap for packed ones too; nothing where it cannot be read."""
        if order == LIVE and self.live:
            return self.live.read
        try:
            data = self.log.beginning(order)
        except OSError:
            data = b""
        return lambda offset, count: data[offset : offset + max(count, 0)]

    def close(self) -> None:
        """Give the handle back."""
        if self.live:
            self.live.close()

    def pieces_backward(
        self, stop: Position = START, before: Position | None = None
    ) -> Iterator[tuple[Order, Piece, int]]:
        """The files between two positions, newest first, each with where what counts of it ends."""
        for order in reversed(self.orders):
            if order < stop.order or (before and order > before.order) or not (opened := self.open(order)):
                continue
            with closing(opened[0]) as piece:
                yield order, piece, before.offset if before and order == before.order else opened[1]

    def _lines_backward(self, stop: Position, before: Position | None) -> Iterator[tuple[Position, bytes]]:
        for order, piece, end in self.pieces_backward(stop, before):
            for offset, line in lines.backward(piece.read, end):
                if (order, offset) < stop:
                    return
                yield Position(order, offset), line

    def _lines_forward(self, start: Position) -> Iterator[bytes]:
        for order in self.orders:
            if order < start.order or not (opened := self.open(order)):
                continue
            with closing(opened[0]) as piece:
                yield from cut(piece, start.offset if order == start.order else 0, opened[1])


def cut(piece: Piece, offset: int, end: int) -> Iterator[bytes]:
    """The lines between two offsets; the last one as it is."""
    cutter, block = Cutter(), FIRST
    while data := piece.read(offset, min(block, end - offset)):
        offset, block = offset + len(data), min(2 * block, CHUNK)
        yield from cutter.feed(data)
    if cutter.waits:
        yield cutter.rest()


class _Guarded:
    """A file whose faults end it, with a word, and not the reading of all other files."""

    def __init__(self, piece: Piece, log: Log, *, lent: bool = False) -> None:
        self._piece = piece
        self._log = log
        self._lent = lent
        self.size = piece.size

    def read(self, offset: int, count: int) -> bytes:
        try:
            return self._piece.read(offset, count)
        except OSError as error:
            self._log.say(f"{self._log} cannot be read further: {error.strerror or error}")
            return b""

    def close(self) -> None:
        if not self._lent:
            self._piece.close()
