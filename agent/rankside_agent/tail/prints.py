"""Recognise a file by what was read of it; for names, numbers and sizes of files all get reused."""

from __future__ import annotations

from rankside_agent.tail.lines import Read

_LENGTH = 256  # bytes at each end; every line begins with its time, so they differ from file to file


class Prints:
    """The first bytes of a file, and the last ones before the place we have got to."""

    def __init__(self) -> None:
        self.head = b""
        self.last = b""
        self.offset = 0

    def take(self, read: Read, offset: int) -> None:
        """Take the prints of a file of which everything before `offset` is known."""
        self.offset = offset
        self.head = read(0, min(_LENGTH, offset))
        self.last = read(max(0, offset - _LENGTH), min(_LENGTH, offset))

    def add(self, data: bytes) -> None:
        """Go on over data that was read at the offset."""
        self.offset += len(data)
        if len(self.head) < _LENGTH:
            self.head = (self.head + data)[:_LENGTH]
        self.last = (self.last + data)[-_LENGTH:] if len(data) < _LENGTH else data[-_LENGTH:]

    def after(self, size: int) -> Prints:
        """The same place in a file that goes on where this one ends, at `size`."""
        other = Prints()
        other.offset = self.offset - size
        other.last = self.last[-other.offset :]
        return other

    def begins(self, read: Read, most: int = _LENGTH) -> bool:
        """Whether the file, as far as there is one and at `most` so far, begins as ours did."""
        return self.head.startswith(read(0, min(len(self.head), most)))

    def reaches(self, read: Read) -> bool:
        """Whether the bytes before the offset are the ones we know."""
        return read(self.offset - len(self.last), len(self.last)) == self.last
