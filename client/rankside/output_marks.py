"""Marks between the captured bytes of a descriptor: text that is recorded already, order, a new module.

Separate because the rank writes them and two readers look for them. A mark holds a random word that only one
capture knows, so no text can be taken for one; should one ever reach a terminal, it shows nothing there.
"""

from __future__ import annotations

from typing import NamedTuple

TAKEN = b"T"  # the payload is text to pass on and not to record
ORDER = b"O"  # no payload: what follows was written after so many bytes of the other stream
MODULE = b"M"  # the payload is the body of a MODULE record
_KINDS = (TAKEN, ORDER, MODULE)
_START, _END = b"\x1b_rankside;", b"\x1b\\"  # an application program command: terminals do not show it


class Mark(NamedTuple):
    """`size` bytes of payload follow; `other`: bytes of the other stream that come before it."""

    kind: bytes
    size: int
    other: int


class Marks:
    """Those of one capture."""

    def __init__(self, word: str) -> None:
        self._start = _START + word.encode() + b";"
        self.size = len(self._start) + 1 + 1 + 8 + 1 + 16 + len(_END)

    def made(self, kind: bytes, payload: bytes, other: int) -> bytes:
        """A mark with its payload, to be written at once."""
        return b"%b%b;%08x;%016x%b%b" % (self._start, kind, len(payload), other, _END, payload)

    def find(self, data: bytes, at: int) -> int:
        """Where the next mark begins, or may begin when more has come; else the end of `data`."""
        found = data.find(self._start, at)
        if found >= 0:
            return found
        beginning = data.rfind(b"\x1b", max(at, len(data) - len(self._start)))
        return beginning if beginning >= 0 and self._start.startswith(data[beginning:]) else len(data)

    def read(self, data: bytes, at: int) -> Mark | None:
        """The mark that stands at `at`, if a whole one does."""
        if not data.startswith(self._start, at) or len(data) < at + self.size:
            return None
        text = data[at + len(self._start) : at + self.size - len(_END)]
        kind, size, other = text[:1], text[2:10], text[11:]
        try:
            return Mark(kind, int(size, 16), int(other, 16)) if kind in _KINDS else None
        except ValueError:
            return None
