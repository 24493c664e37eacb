"""Captured bytes become log records: decoded, cut into lines, bars condensed, each line recorded once.

Separate from the process it runs in because it knows text and positions, and nothing of who lives.
"""

from __future__ import annotations

import codecs
import time
from typing import TYPE_CHECKING

from rankside import wire
from rankside.output_marks import MODULE
from rankside.output_reader import Piece
from rankside.printed_lines import PrintedLines
from rankside.wire import Kind

if TYPE_CHECKING:
    from rankside.client import Monitor
    from rankside.output_page import OutputPage

LEVELS = ((20, "INFO"), (30, "WARNING"))  # of stdout, of stderr


class _Text:
    """One stream, as far as it is under way."""

    def __init__(self) -> None:
        self.lines = PrintedLines()
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode


class Recorder:
    """Into the monitor's spool. A record is there before its position counts."""

    def __init__(self, monitor: Monitor, page: OutputPage, at: tuple[int, int]) -> None:
        self._monitor, self._page = monitor, page
        self._texts = (_Text(), _Text())
        self._at = list(at)  # of each stream: behind what need not be read again
        self._module = monitor._hello.module
        self._told = ""
        self.module: tuple[str, int | None] | None = None  # the newest, where it changed

    @property
    def at(self) -> tuple[int, int]:
        """Bytes that are recorded."""
        return self._at[0], self._at[1]

    def ready(self) -> bool:
        """Whether there is a spool. Without, nothing is to be read: it waits where it is."""
        if self._monitor._spool is None and not self._monitor._open():
            return False
        if self._told != self._monitor._hello.spool:
            self._told = self._page.spool = self._monitor._hello.spool
        return True

    def take(self, piece: Piece, when: float) -> None:
        """The next piece; `when` it was written."""
        if piece.kind == MODULE:
            self._enter(piece.data)
        elif not piece.kind:
            self._text(piece, when)
        if not self._texts[piece.stream].lines.unfinished:
            self._at[piece.stream] = piece.end

    def overdue(self) -> None:
        """States of bars that have waited for long enough; and positions behind what needed no record."""
        for stream, text in enumerate(self._texts):
            self._record(stream, text.lines.overdue(), time.time())
        self._settle()

    def finish(self, ends: dict[int, int]) -> None:
        """What is under way: nobody writes any more of it."""
        for stream, text in enumerate(self._texts):
            found = text.lines.feed(text.decode(b"", True)) + text.lines.finish()
            self._at[stream] = ends.get(stream, 0)
            self._record(stream, found, time.time())
        self._settle()

    def say(self, text: str) -> None:
        """A line of our own among the others."""
        self._put(1, text, time.time(), self.at, ("rankside", 0))

    def skip(self, stream: int, at: int) -> None:
        """Go on elsewhere: what lies between is lost, or is there again from the beginning."""
        self._texts[stream].lines.feed("\n")
        self._at[stream] = at

    def _text(self, piece: Piece, when: float) -> None:
        text, at, stream = self._texts[piece.stream], piece.end - len(piece.data), piece.stream
        for line in _lines(piece.data):
            found = text.lines.feed(text.decode(line))
            returned = len(line) if line.endswith(b"\n") else line.rfind(b"\r", 0, len(line) - 1) + 1
            before, at = at, at + len(line)
            if returned:
                self._at[stream] = before + returned
            self._record(stream, found, when)

    def _record(self, stream: int, found: list[str], when: float) -> None:
        if not found:
            return
        before = self.at if len(found) == 1 else self._page_at()
        for number, text in enumerate(found, 1):
            self._put(stream, text, when, self.at if number == len(found) else before)

    def _put(
        self, stream: int, text: str, when: float, at: tuple[int, int], place: tuple[str, int] | None = None
    ) -> None:
        number, level = LEVELS[stream]
        file, line = place or (("stdout", "stderr")[stream], 0)
        self._append(Kind.LOG, self._monitor._pack((when, number, level, file, line, text)), at, stream == 1)

    def _append(self, kind: int, body: bytes, at: tuple[int, int], urgent: bool) -> None:
        spool, transport = self._monitor._spool, self._monitor._transport
        if spool is None or transport is None:
            raise RuntimeError("no spool")  # `ready` was not asked
        with spool._lock:  # the transport's thread announces drops: that is a record, too
            self._page.intend(spool.last + 1, at)
            if not spool.append(kind, body, urgent):
                self._page.intend(spool.last, at)
            self._page.confirm()
        if not transport.awake:
            transport.wake()

    def _settle(self) -> None:
        if self.at != self._page_at():
            self._page.intend(0, self.at)
            self._page.confirm()

    def _page_at(self) -> tuple[int, int]:
        return self._page.recorded(lambda _spool, _seq: True)

    def _enter(self, body: bytes) -> None:
        try:
            _, name, level = wire.unpack(body)
        except (ValueError, TypeError):
            return
        if name != self._module or (name, level) != self.module:
            self._module, self.module = name, (name, level)
            self._append(Kind.MODULE, body, self.at, True)


def _lines(data: bytes) -> list[bytes]:
    found = [line + b"\n" for line in data.split(b"\n")]
    found[-1] = found[-1][:-1]
    return found if found[-1] else found[:-1]
