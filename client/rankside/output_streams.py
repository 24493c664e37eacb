"""What Python code writes to captured descriptors: in lines, in order, with marks for what is recorded.

Separate from the capture because it is heard call by call, in the rank and in the children that it forks, and
must not fail where a full disk would make a print fail.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from _thread import get_ident
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TextIO

from rankside import c_stdio, console_mute, stream_write, taken
from rankside.file_room import has_room
from rankside.output_folder import STREAMS
from rankside.output_marks import MODULE, ORDER, TAKEN, Marks
from rankside.transport import warn

_FULL = (errno.ENOSPC, errno.EDQUOT)
_TOO_LARGE = "the limit of a file's size (ulimit -f) is reached, the line there may be cut"
_NO_HELPER = "the helper for captured output makes no room"
_ROOM_SOON = 3.0  # seconds in which a helper that lives has made room
_PAUSE = 0.01
_SCARCE = 1 << 20  # bytes
_AT_ONCE = 2000  # characters that surely fit into a stream's own buffer, which keeps what a full disk refuses


class OutputStreams:
    """The interpreter's own streams of the descriptors that are open."""

    def __init__(
        self, marks: Marks, refuse: Callable[[Exception], None], give_up: Callable[[str], None]
    ) -> None:
        self.texts = _open_streams()
        self._marks, self._refuse, self._give_up = marks, refuse, give_up
        self._inodes: dict[int, tuple[int, int]] = {}
        self._undo: list[Callable[[], None]] = []
        self._last = -1  # the stream written last by Python code here
        self._whose: list[object] = [None, None]  # of each stream: thread and call of the line under way
        self._pieces: dict[tuple[int, int], taken.ByThread] = {}
        self._kept = [0, 0]  # characters of each stream that its own buffer holds
        self._ended = False

    def lead_to(self, files: dict[int, int]) -> None:
        """The descriptors to these files, which are closed: 1 and 2 are the only ones, and hold the lock."""
        self.flush()
        for stream, fd in files.items():
            found = os.fstat(fd)
            self._inodes[stream] = found.st_dev, found.st_ino
            os.dup2(fd, stream + 1)
            os.close(fd)
        _quietly(c_stdio.by_lines)
        for stream, text in self.texts.items():
            _quietly(partial(self._take_over, stream, text))

    def end(self) -> None:
        """Write as before."""
        self._ended = True
        for (_, stream), pieces in list(self._pieces.items()):
            for left in pieces.all():
                self.texts[stream].write(left)
        for undo in self._undo:
            undo()

    def flush(self) -> None:
        """All that is under way here, C's too."""
        for text in self.texts.values():
            _quietly(text.flush)
        _quietly(c_stdio.flush)

    def leads_there(self, stream: int) -> bool:
        """Whether the descriptor still leads to our file: a child that becomes a daemon turns it away."""
        found = os.fstat(stream + 1)
        return (found.st_dev, found.st_ino) == self._inodes.get(stream)

    def module(self, body: bytes) -> None:
        """From here on, what is written belongs to another module."""
        first = min(self.texts)
        if self.leads_there(first):
            for text in self.texts.values():
                text.flush()
            self._put(first, MODULE, body)

    def _take_over(self, stream: int, text: TextIO) -> None:
        self._undo.append(_by_lines(text))
        self._undo.append(stream_write.replaced(text, partial(self._write, stream, text)))

    def _write(self, stream: int, text: TextIO, original: stream_write.Write) -> stream_write.Write:
        def write(said: str) -> Any:
            if self._ended or not isinstance(said, str):  # another's write stands over ours and keeps it
                return original(said)
            found = [said]
            try:
                found = self._unmarked(stream, text, said, stream_write.caller())
            except Exception as error:  # noqa: BLE001  a print never raises for our sake
                self._refuse(error)
            for each in found:
                self._say(stream, text, original, each)
            return len(said)

        return write

    def _unmarked(self, stream: int, text: TextIO, said: str, frame: FrameType | None) -> list[str]:
        """What is to be written as it is. What is recorded already is written here, with its mark."""
        who = (get_ident(), taken.call_of(frame))
        if who == self._whose[stream]:  # it goes on with the line that it has begun
            self._whose[stream] = None if said.endswith("\n") else who
            return [said]
        pieces = self._pieces_of(stream)
        forgotten = pieces.dead()
        left, decided = pieces.mine().take(frame, said)
        left = "".join([*forgotten, left]) if forgotten else left
        self._whose[stream] = None
        if decided is not None and console_mute.is_muted(decided[1]):
            return [left] if left else []
        if decided is not None and decided[1] is not None and self.leads_there(stream):
            self._put_taken(stream, text, decided[0])
            return [left] if left else []
        if decided is None and not left:
            return []
        if self._last != stream and self.leads_there(stream):
            self._put(stream, ORDER, b"")
        if decided is not None and not said.endswith("\n"):
            self._whose[stream] = who
        return [each for each in (left, decided[0] if decided else "") if each]

    def _pieces_of(self, stream: int) -> taken.ByThread:
        key = (os.getpid(), stream)  # a forked child begins anew
        return self._pieces.get(key) or self._pieces.setdefault(key, taken.ByThread())

    def _put_taken(self, stream: int, text: TextIO, said: str) -> None:
        data = said.encode(text.encoding, text.errors or "strict")
        text.flush()
        self._put(stream, TAKEN, data)

    def _put(self, stream: int, kind: bytes, payload: bytes) -> None:
        """A mark: one write, so that nothing comes in between."""
        self._last = stream
        other = os.fstat(2 - stream).st_size if 1 - stream in self.texts else 0
        self._put_all(stream, self._marks.made(kind, payload, other))

    # -- a full disk that is ours, and not the program's ---------------------------------------------

    def _put_all(self, stream: int, data: bytes) -> None:
        def put() -> None:
            nonlocal data
            while data:
                data = data[os.write(stream + 1, data) :]

        self._patiently(put)

    def _say(self, stream: int, text: TextIO, original: stream_write.Write, said: str) -> None:
        """As ever, if there is room."""
        asks = not self._is_kept(stream, text, said)
        scarce = asks and not has_room(stream + 1, _SCARCE + 8 * len(said)) and self.leads_there(stream)
        if scarce and _is_raw(text):  # what a disk takes no more, nobody keeps
            self._put_all(stream, said.encode(text.encoding, text.errors or "strict"))
            return
        if not scarce:
            self._patiently(partial(original, said), text.flush)
            return
        self._patiently(text.flush)
        for start in range(0, len(said), _AT_ONCE):
            self._patiently(partial(_flushed, original, text, said[start : start + _AT_ONCE]), text.flush)

    def _is_kept(self, stream: int, text: TextIO, said: str) -> bool:
        """Whether it stays in the stream's own buffer for now: no disk need be asked."""
        if "\n" in said or "\r" in said:
            self._kept[stream] = 0
            return False
        self._kept[stream] += len(said)
        by_lines = bool(text.line_buffering)  # a number, as typeshed has it
        return by_lines and self._kept[stream] <= _AT_ONCE and not _is_raw(text)

    def _patiently(self, write: Callable[[], Any], again: Callable[[], Any] | None = None) -> None:
        """A helper that lives makes room; without one, the descriptors are given back."""
        deadline = 0.0
        while True:
            try:
                write()
            except OSError as error:
                if error.errno not in (*_FULL, errno.EFBIG) or self._ended:
                    raise
                write = again or write
                if error.errno == errno.EFBIG:  # lowered since; nothing makes room
                    self._give_up(_TOO_LARGE)
                    continue
                deadline = deadline or time.monotonic() + _ROOM_SOON
                if time.monotonic() > deadline:
                    self._give_up(_NO_HELPER)
                time.sleep(_PAUSE)
            else:
                return


def _open_streams() -> dict[int, TextIO]:
    """The interpreter's own streams of the descriptors that are open. Where it found one closed at its start,
    that number may be another file's by now."""
    found = {}
    for stream, name in enumerate(STREAMS):
        text = getattr(sys, f"__{name}__", None)
        try:
            os.fstat(stream + 1)
        except OSError:
            continue
        if text is not None and not text.closed and text.fileno() == stream + 1:
            found[stream] = text
    return found


def _is_raw(text: TextIO) -> bool:
    """Of `python -u`: without a buffer."""
    return isinstance(getattr(text, "buffer", None), io.RawIOBase)


def _flushed(original: stream_write.Write, text: TextIO, said: str) -> None:
    original(said)
    text.flush()


def _by_lines(text: Any) -> Callable[[], None]:
    before = text.line_buffering
    text.reconfigure(line_buffering=True)
    return lambda: text.reconfigure(line_buffering=before)


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001  a stream that is closed, an object of fixed attributes
        warn(f"capture of output: {type(error).__name__}: {error}")
