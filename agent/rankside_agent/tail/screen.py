"""Where things are printed: records to stdout, the word beside them to stderr."""

from __future__ import annotations

import io
import os
import select
import sys
import time
from collections.abc import Callable
from typing import TextIO

from rankside_agent.tail.escape import escape

_AGAIN = 60.0  # seconds before the same word is said again
_MOST = 20  # different words in that time


class Screen:
    """Standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        if isinstance(self._stream, io.TextIOWrapper):
            self._stream.reconfigure(errors="backslashreplace")  # a terminal may know no more than ASCII
        self._hangup = _hangup_of(self._stream)
        self.used = False  # whether anything was printed
        self._interrupted = False

    def colour(self, choice: str) -> bool:
        """Whether to colour: `always`, `never`, or `auto`, on a terminal that has not been told otherwise."""
        if choice != "auto":
            return choice == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return self._stream.isatty() and not plain

    def write(self, text: str) -> None:
        """Print, some time."""
        self.used = True
        self._stream.write(text)

    def interrupt(self, *_signal: object) -> None:
        """Ctrl-C. Raised again at the next flush: Python drops what is raised while it ends a generator."""
        self._interrupted = True
        raise KeyboardInterrupt

    def flush(self) -> None:
        """Print now. Raises BrokenPipeError when nobody reads any more, also with nothing to print."""
        if self._interrupted:
            raise KeyboardInterrupt
        self._stream.flush()
        if self._hangup and self._hangup.poll(0):
            raise BrokenPipeError

    def give_up(self) -> None:
        """Nobody reads: let the interpreter's last flush go nowhere instead of complaining."""
        if self._hangup:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class Notices:
    """Standard error; the same word at most once a minute, and a flood of different ones is cut."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._said: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        """Say it, unless it was said just now."""
        now = self._clock()
        self._said = {said: at for said, at in self._said.items() if now - at < _AGAIN}
        if text in self._said or len(self._said) > _MOST:
            return
        self._said[text] = now
        cut = "; for a minute no more is said" if len(self._said) > _MOST else ""
        print(f"rankside tail: {escape(text)}{cut}", file=self._stream, flush=True)


def _hangup_of(stream: TextIO) -> select.poll | None:
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # a stand-in without a number, as tests use
        return None
    hangup = select.poll()
    hangup.register(number, 0)  # errors and hang-ups are reported unasked
    return hangup
