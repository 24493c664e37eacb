"""What a process prints, recorded as well: stdout as INFO, stderr as WARNING, with the caller's line.

Separate from the captures of logging because it hears text and not records, and must tell one from the other.
Nothing here waits or locks, so that a fork, a signal handler or another thread finds nothing held: each
thread has a line of its own under way. What goes past a stream's `write` (its `buffer`, the descriptor, a
stream that the program puts in its place) is not heard here: the capture of the descriptors hears that.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from rankside import stream_write, taken
from rankside.printed_lines import PrintedLines

if TYPE_CHECKING:
    from rankside.client import Monitor

Place = Callable[[FrameType | None], tuple[str, int]]
LEVELS = {"stdout": (20, "INFO"), "stderr": (30, "WARNING")}
_MOST_THREADS = 1000
_NEAR = 50  # frames between a call of print() and what is printed in the middle of it
_NOWHERE = ("python", 0)  # where the interpreter itself prints


class _Line:
    """What one thread has under way on one stream, and where it was begun."""

    def __init__(self) -> None:
        self.lines = PrintedLines()
        self.pieces = taken.Pieces()
        self.call: object = None
        self.place = _NOWHERE
        self.busy = False
        self.between: _Line | None = None  # what is printed in the middle of this one

    @property
    def begun(self) -> bool:
        """Whether more of it is to come."""
        return self.lines.unfinished or self.pieces.under_way


class Recorder:
    """Records what is written to one stream."""

    def __init__(
        self, monitor: Monitor, level_no: int, level: str, place: Place | None = None, shown: bool = False
    ) -> None:
        """`shown`: the text is to be seen where it was printed; the console does not show it again."""
        self._monitor = monitor
        self._shown = shown
        self._level_no, self._level = level_no, level
        self._place_of = place or _place
        self._threads: dict[int, _Line] = {}
        self.ended = False
        _RECORDING.add(self)

    def write(self, original: stream_write.Write) -> stream_write.Write:
        """A write that does what `original` does, and then records."""

        def write(text: str) -> Any:
            written = original(text)
            if not self.ended:
                try:
                    self._take(text, stream_write.caller())
                except Exception as error:  # noqa: BLE001  a print never raises for our sake
                    self._monitor._refuse("print", error)
            return written

        return write

    def say(self, text: str, end: str, frame: FrameType | None) -> None:
        """One call of print(): its text stays together, unless it is part of a line, or drawn over one."""
        try:
            if end != "\n" or "\r" in text or self.unfinished:
                self._take(text + end, frame)
            elif (telling := taken.teller(frame)) is None or not telling.has(text):
                self._record([text], self._place_of(frame))
        except Exception as error:  # noqa: BLE001  a print never raises for our sake
            self._monitor._refuse("print", error)

    @property
    def unfinished(self) -> bool:
        """Whether this thread has begun a line."""
        line = self._threads.get(get_ident())
        return line is not None and line.lines.unfinished

    def end(self) -> None:
        """Record what was begun."""
        self.ended = True
        _RECORDING.discard(self)
        for line in list(self._threads.values()):
            self._finish(line)

    def forget(self) -> None:
        """In a forked child: what was begun is the parent's to end."""
        self._threads = {}

    def _take(self, text: str, frame: FrameType | None) -> None:
        line = self._threads.get(get_ident()) or self._begin()
        begun, call = line.begun, taken.call_of(frame)
        goes_on = begun and not line.busy and line.call == call and not line.pieces.under_way
        # a signal handler prints, or an object that is being printed does
        while not goes_on and (line.busy or (begun and _is_within(line, frame))):
            line.between = line.between or _Line()
            line = line.between
            begun = line.begun
        try:
            line.busy = True
            if goes_on or self._begins(line, text, frame):
                self._record(line.lines.write(text), line.place)
        finally:
            line.busy = False

    def _begins(self, line: _Line, text: str, frame: FrameType | None) -> bool:
        """Another call writes `text`: True where that is simply the next text of the line."""
        left, decided = line.pieces.take(frame, text)
        if left:
            self._record(line.lines.write(left), line.place)
        line.call = taken.call_of(frame)
        if decided is not None and decided[1] is not None:
            return False
        line.place = self._place_of(frame)
        self._record(line.lines.overdue(), line.place)
        if decided is None or decided[0] == text:
            return decided is not None
        self._record(line.lines.write(decided[0]), line.place)
        return False

    def _record(self, found: list[str], place: tuple[str, int]) -> None:
        for text in found:
            self._monitor._log(self._level_no, self._level, *place, text, shown=self._shown)

    def _finish(self, line: _Line | None) -> None:
        while line is not None:
            left = line.pieces.left(None)
            found = line.lines.write(left) if left else []
            self._record([*found, *line.lines.finish()], line.place)
            line = line.between

    def _begin(self) -> _Line:
        if len(self._threads) >= _MOST_THREADS:
            living = sys._current_frames()
            for ident, line in list(self._threads.items()):
                if ident not in living:
                    del self._threads[ident]
                    self._finish(line)
        line = self._threads[get_ident()] = _Line()
        return line


def capture(monitor: Monitor) -> Callable[[], None]:
    """Record what is printed from here on; returns what ends it, and gives the streams back as they were."""
    undo: list[Callable[[], None]] = []
    for name, stream in stream_write.standard(tuple(LEVELS)):
        recorder = Recorder(monitor, *LEVELS[name], shown=True)
        try:
            undo += [stream_write.replaced(stream, recorder.write), recorder.end]
        except AttributeError as error:  # an object of fixed attributes
            recorder.end()
            monitor._refuse(f"capture_logging(print=True): sys.{name}", error)

    def end() -> None:
        for each in undo:
            each()

    return end


def _is_within(line: _Line, frame: FrameType | None) -> bool:
    """Whether the call that began it is still under way, below the one that prints now."""
    for _ in range(_NEAR):
        frame = frame.f_back if frame is not None else None
        if frame is None or line.call == taken.call_of(frame):
            return frame is not None
    return False


def _place(frame: FrameType | None) -> tuple[str, int]:
    return _NOWHERE if frame is None else (_stem(frame.f_code.co_filename), frame.f_lineno)


def _stem(filename: str) -> str:
    found = _STEMS.get(filename)
    if found is None:
        if len(_STEMS) > _MOST_THREADS:
            _STEMS.clear()
        found = _STEMS[filename] = os.path.basename(filename).removesuffix(".py")
    return found


def _forget_all() -> None:
    for recorder in list(_RECORDING):
        recorder.forget()


_STEMS: dict[str, str] = {}
_RECORDING: set[Recorder] = set()
os.register_at_fork(after_in_child=_forget_all)
