"""Cut bytes into lines, forwards and backwards; here memory is bounded against endless lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

LIMIT = 1 << 20  # bytes of one line, and of one record, that are kept; more is cut and says so
CHUNK = 1 << 16  # bytes read at once: more gains little, and a thousand files may be open at a time
FIRST = 1 << 13  # reading begins small, for a few lines are mostly all that is wanted

_BLOCK = 1 << 14

Read = Callable[[int, int], bytes]  # (offset, count) -> bytes, fewer at the end


def mark(size: int, unit: str) -> str:
    """The mark of what was cut, with the original length."""
    return f" [cut: {size} {unit} in all]"


class Cutter:
    """Takes bytes as they come, gives whole lines, and keeps what waits for its newline."""

    def __init__(self) -> None:
        self._part = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines which `data` completes."""
        first, *others = data.split(b"\n")
        self._grow(first)
        if not others:
            return []
        *whole, rest = others
        lines = [self.rest(), *whole]
        self._grow(rest)
        return lines

    @property
    def waits(self) -> bool:
        """Whether a line has begun and not ended."""
        return self._size > 0

    def rest(self) -> bytes:
        """The unfinished line, given up as it is."""
        line = _clip(bytes(self._part), self._size)
        self._part.clear()
        self._size = 0
        return line

    def _grow(self, part: bytes) -> None:
        self._size += len(part)
        self._part += part[: LIMIT - len(self._part)]


def backward(read: Read, end: int, block: int = FIRST) -> Iterator[tuple[int, bytes]]:
    """Each line before `end` with its offset, the newest first, read in blocks from the end."""
    if end <= 0:
        return
    stop = end - (read(end - 1, 1) == b"\n")
    here = stop
    held = b""  # the line that ends at `stop`, as far as it is known from `here` on
    while here > 0:
        size = min(block, here)
        here, block = here - size, min(2 * block, CHUNK)
        first, *others = read(here, size).split(b"\n")
        start = here + size
        for part in reversed(others):
            start -= len(part)
            yield start, _clip((part + held)[:LIMIT], stop - start)
            held, start = b"", start - 1
            stop = start
        held = (first + held)[:LIMIT]
    yield 0, _clip(held, stop)


def beginnings(read: Read, offset: int, end: int, block: int = _BLOCK) -> Iterator[tuple[int, bytes]]:
    """Each line between two offsets with its own; of a line longer than a block only the beginning."""
    while data := read(offset, min(block, end - offset)):
        *whole, rest = data.split(b"\n")
        for line in whole:
            yield offset, line
            offset += len(line) + 1
        if rest and (not whole or offset + len(rest) >= end):
            yield offset, rest
            offset = next_line(read, offset + len(rest), end)


def whole_until(read: Read, end: int) -> int:
    """The offset after the last newline before `end`."""
    here = end
    while here > 0:
        start = max(0, here - FIRST)
        found = read(start, here - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        here = start
    return 0


def next_line(read: Read, offset: int, end: int) -> int:
    """The offset after the first newline from `offset` on, or `end`."""
    while data := read(offset, min(CHUNK, end - offset)):
        found = data.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset += len(data)
    return end


def _clip(line: bytes, size: int) -> bytes:
    return line if size <= LIMIT else line[:LIMIT] + mark(size, "bytes").encode()
