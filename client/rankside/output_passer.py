"""Captured bytes on to where the descriptors led before, unchanged: a terminal, a file, torchrun's pipe.

Separate, and in threads, because a pipe that nobody reads blocks for ever, and the recording must not. Where
one led to an earlier capture of the same rank, which began anew with exec, that one is told by a mark that it
need not record this.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Callable, Mapping

from rankside.output_marks import TAKEN, Marks
from rankside.output_page import OutputPage
from rankside.output_reader import Reader

QUICK, SLOW = 0.005, 0.1  # seconds between two looks at the files
_PIECE = 16 << 10  # bytes for one write: what is shown twice if the helper is killed in between
_AGAIN = 1.0  # seconds between attempts where a disk is full
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Passer:
    """One thread for streams that lead to the same place: their order there is as it was written."""

    def __init__(
        self,
        page: OutputPage,
        fds: Mapping[int, int],
        targets: Mapping[int, int],
        marks: Marks,
        say: Callable[[str], None],
        earlier: Mapping[int, Marks] | None = None,
    ) -> None:
        """`earlier`: the marks of captures that some of the targets are."""
        self._page, self._targets, self._say = page, dict(targets), say
        self._earlier = earlier or {}
        self._reader = Reader(fds, (page.passed(0), page.passed(1)), marks)
        self._skip: dict[int, int] = {}
        self._more = threading.Event()
        self._final = False
        self.ended = False
        self._thread = threading.Thread(target=self._run, name="rankside-pass-on", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Nobody writes any more: pass the rest on, and end."""
        self._final = True
        self._more.set()

    def skip(self, stream: int, at: int) -> None:
        """What lies before `at` is given up."""
        self._skip[stream] = at
        self._page.pass_on(stream, at)

    def join(self, seconds: float) -> bool:
        """Wait for the end; False where it still has something to pass on."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            pause = QUICK
            while True:
                final = self._final
                moved = self._pass_all(final)
                if final:
                    return
                pause = QUICK if moved else min(pause * 1.5, SLOW)
                self._more.wait(pause)  # not for the recorder, which may be busy
                self._more.clear()
        except Exception as error:  # noqa: BLE001  the recording goes on without
            self._say(f"output is no longer passed on: {type(error).__name__}: {error}")
        finally:
            self.ended = True
            for stream in self._targets:
                self._page.pass_on(stream, 1 << 62)

    def _pass_all(self, final: bool) -> bool:
        moved = False
        for piece in self._reader.pieces(final):
            if piece.kind in (b"", TAKEN):
                self._write(piece.stream, piece.data, piece.end)
            if piece.stream not in self._skip:
                self._page.pass_on(piece.stream, piece.end)
            self._go_on()
            moved = True
        return moved

    def _go_on(self) -> None:
        for stream in list(self._skip):
            at, source = self._skip.pop(stream), self._reader.sources[stream]
            if at > source.at:
                missing = at - source.at
                source.seek(at)
                text = f"rankside: {missing} bytes of output are not shown here: nobody read them\n"
                self._write(stream, text.encode(), at)

    def _write(self, stream: int, data: bytes, end: int) -> None:
        target, start = self._targets[stream], 0
        while start < len(data) and target >= 0:
            try:
                start += self._put(stream, target, data[start : start + _PIECE])
            except BlockingIOError:  # somebody made it so; for everybody who shares it
                select.select([], [target], [], _AGAIN)
            except OSError as error:
                if error.errno in _FULL:
                    time.sleep(_AGAIN)
                    continue
                target = self._targets[stream] = -1  # nobody will ever read it
            if stream not in self._skip:
                self._page.pass_on(stream, end - len(data) + start)

    def _put(self, stream: int, target: int, data: bytes) -> int:
        marks = self._earlier.get(stream)
        if marks is None:
            return os.write(target, data)
        os.write(target, marks.made(TAKEN, data, 0))  # a file in memory: whole, or not at all
        return len(data)


def same_place(one: int, other: int) -> bool:
    """Whether two descriptors lead to one file, pipe or terminal."""
    first, second = os.fstat(one), os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
