"""The bytes of captured streams as pieces, in the order they were written in.

Separate because two read the same files, each at its own pace: one records, one passes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rankside.output_marks import TAKEN, Mark, Marks

CHUNK = 128 << 10
_LARGEST = 1 << 20  # bytes of a payload that must be whole; that of TAKEN need not be


class Piece(NamedTuple):
    """`kind` is empty for what was written without a mark. `end`: the offset behind it."""

    stream: int
    kind: bytes
    data: bytes
    end: int


class Source:
    """One stream's file."""

    def __init__(self, stream: int, fd: int, at: int, marks: Marks) -> None:
        self.stream, self.fd = stream, fd
        self.at = at  # offset of the next byte that is in no piece yet
        self._marks = marks
        self._data, self._from = b"", 0
        self._taken = 0  # bytes of a TAKEN payload still to come

    def size(self) -> int:
        """Bytes in the file. One that was truncated (`> /dev/stdout`) begins anew."""
        size = os.fstat(self.fd).st_size
        if size < self.at:
            self.seek(0)
        return size

    def seek(self, at: int) -> None:
        """Go on elsewhere."""
        self.at, self._data, self._from, self._taken = at, b"", 0, 0

    def mark(self) -> Mark | None:
        """The mark that comes next, if one does."""
        if self._taken:
            return None
        mark = self._marks.read(self._data, self._from)
        if mark is None and len(self._data) - self._from < self._marks.size:
            self._fill()
            mark = self._marks.read(self._data, self._from)
        return mark

    def next(self, final: bool, limit: int) -> Piece | None:
        """The next piece, of text no more than up to `limit`; None where there is none, or only the beginning
        of one (unless `final`)."""
        if self._from >= len(self._data):
            self._fill()
        if self._taken:
            return self._cut(TAKEN, min(self._taken, len(self._data) - self._from))
        mark = self.mark()
        if mark is None:
            end = self._marks.find(self._data, self._from)
            if end == self._from and (final or len(self._data) - self._from >= self._marks.size):
                end = self._marks.find(self._data, self._from + 1)  # it only looks like one
            end = len(self._data) if final and self._ends_here(end) else end
            return self._cut(b"", min(end - self._from, limit - self.at))
        return self._marked(mark, final)

    def _marked(self, mark: Mark, final: bool) -> Piece | None:
        head = self._marks.size
        if mark.kind == TAKEN:
            self._skip(head)
            self._taken = mark.size
            return Piece(self.stream, TAKEN, b"", self.at)
        if mark.size > _LARGEST:
            return self._cut(b"", head)
        if len(self._data) - self._from < head + mark.size:
            self._fill(mark.size)
        if len(self._data) - self._from < head + mark.size:
            return self._cut(b"", len(self._data) - self._from) if final else None
        data = self._data[self._from + head : self._from + head + mark.size]
        self._skip(head + mark.size)
        return Piece(self.stream, mark.kind, data, self.at)

    def _ends_here(self, end: int) -> bool:
        """Whether what is found at `end` is a mark's beginning that will never be whole."""
        return self._marks.read(self._data, end) is None and len(self._data) - end < self._marks.size

    def _cut(self, kind: bytes, size: int) -> Piece | None:
        if size <= 0:
            return None
        data = self._data[self._from : self._from + size]
        self._skip(size)
        if kind == TAKEN:
            self._taken -= size
        return Piece(self.stream, kind, data, self.at)

    def _skip(self, size: int) -> None:
        self._from += size
        self.at += size

    def _fill(self, more: int = 0) -> None:
        rest = self._data[self._from :]
        if not rest:
            self.at = max(self.at, self._next_data())
        self._data = rest + os.pread(self.fd, CHUNK + more, self.at + len(rest))
        self._from = 0

    def _next_data(self) -> int:
        """Past what an earlier reader has freed inside of a long line."""
        try:
            return os.lseek(self.fd, self.at, os.SEEK_DATA)
        except OSError:  # there is none
            return self.at


class Reader:
    """Some streams together; what a mark says of their order is kept."""

    def __init__(self, fds: Mapping[int, int], at: tuple[int, int], marks: Marks) -> None:
        self.sources = {stream: Source(stream, fd, at[stream], marks) for stream, fd in fds.items()}

    def pieces(self, final: bool = False, most: int = 1 << 62) -> Iterator[Piece]:
        """What is there now, of each stream `most` bytes; `final`: nobody writes any more."""
        sizes = [(source, min(source.size(), source.at + most)) for source in self.sources.values()]
        for source, size in sizes:
            yield from self._up_to(source, size, final)

    def _up_to(self, source: Source, size: int, final: bool) -> Iterator[Piece]:
        other = self.sources.get(1 - source.stream)
        while source.at < size:
            mark = source.mark()
            if mark is not None and other is not None and other.at < mark.other:
                yield from self._up_to(other, min(mark.other, other.size()), final)
            piece = source.next(final, size)
            if piece is None:
                return
            yield piece
