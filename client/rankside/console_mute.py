"""Keeps logging's own lines off the terminal while rankside's console shows the same records.

Separate from the console because it listens where all lines arrive, of handlers and sinks of every kind, and
whenever they were added. It touches none of them: what a program configures goes on, and is there afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rankside import stream_write, taken

_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")


def mute() -> Callable[[], None]:
    """Hold back on stdout and stderr what is recorded; returns what ends it."""
    global _lasting  # noqa: PLW0603  there is one terminal
    _lasting += 1
    undo: list[Callable[[], None]] = []
    for _, stream in stream_write.standard(_STREAMS):
        muted = _Muted()
        with suppress(AttributeError):  # an object of fixed attributes: shown twice, not lost
            undo.append(stream_write.replaced(stream, muted.write))
            undo.append(muted.end)

    def end() -> None:
        global _lasting  # noqa: PLW0603
        _lasting -= 1
        for each in undo:
            each()

    return end


def is_muted(telling: taken.Telling | None) -> bool:
    """Whether such a line is held back now. A capture that writes past others' `write` has to ask."""
    return _lasting > 0 and telling is not None and not telling.ours


_lasting = 0


class _Muted:
    """One stream. Threads have nothing in common, so that none waits."""

    def __init__(self) -> None:
        self._pieces = taken.ByThread()
        self._ended = False
        self._original: stream_write.Write = str

    def write(self, original: stream_write.Write) -> stream_write.Write:
        """A write of what is not recorded."""
        self._original = original

        def write(text: str) -> Any:
            if self._ended or not isinstance(text, str):
                return original(text)
            try:
                for forgotten in self._pieces.dead():
                    original(forgotten)
                left, decided = self._pieces.mine().take(stream_write.caller(), text)
            except Exception:  # noqa: BLE001  a record of somebody's own: rather twice than not at all
                return original(text)
            if left:
                original(left)
            if decided is None or is_muted(decided[1]):
                return len(text)
            written = original(decided[0])
            return written if decided[0] == text else len(text)

        return write

    def end(self) -> None:
        """Show what was begun and is nobody's."""
        self._ended = True
        for left in self._pieces.all():
            self._original(left)
