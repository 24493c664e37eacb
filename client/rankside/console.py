"""What a rank shows on its stderr: the lines of its log, as Primus prints them there.

Separate from the captures because it writes where the training writes, in a form of its own, and by a level
of its own; the files know nothing of it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rankside.identity import Hello
from rankside.parameters import LEVELS

_LEVEL_WIDTH = 11  # "[CRITICAL]" and a space, as in the files
_LOCATION_WIDTH = 23  # where Primus begins; it grows with the longest seen
_OFF, _GREEN, _CYAN, _BLUE = "\x1b[0m", "\x1b[32m", "\x1b[36m", "\x1b[34m"
# loguru's colours, by the number from which they hold
_COLOURS = (
    (50, "\x1b[41m\x1b[1m"),
    (40, "\x1b[31m\x1b[1m"),
    (30, "\x1b[33m\x1b[1m"),
    (25, "\x1b[32m\x1b[1m"),
    (20, "\x1b[1m"),
    (10, "\x1b[34m\x1b[1m"),
    (0, "\x1b[36m\x1b[1m"),
)
_OFF_WORDS = frozenset(("0", "false", "no", "off"))
_ON_WORDS = frozenset(("", "1", "true", "yes", "on"))


class Console:
    """Writes records that are at least `level`. Nothing raises: a closed stderr is left alone."""

    def __init__(
        self, hello: Hello, level: int, stream: TextIO | None, times: bool = True, colour: bool = False
    ) -> None:
        self.level = level
        self._stream = stream
        self._times = times
        self._width = _LOCATION_WIDTH
        self._last = (-1, "")
        self._colour = colour
        self._off = off = self._paint(_OFF)
        if hello.role == "master":
            self._before = f"{self._paint(_BLUE)}(PrimusMaster  pid={hello.pid}) {off}"
            who = f"node-{hello.label}/{hello.world_size}"
        else:
            self._before = ""
            who = f"rank-{hello.label}/{hello.world_size}"
        self._who = f"[{self._paint(_CYAN)}{who}{off}]"
        self._time_colour = self._paint(_GREEN)

    def write(self, at: float, number: int, name: str, file: str, line: int, text: str) -> None:
        """One record: `[20260102 03:04:05][rank-7/8][INFO]     [-----------train.py:215] : text`."""
        stream = self._stream
        if number < self.level or stream is None:
            if len(file) > self._width - 14:  # ".py:" and ten digits; what is not shown widens the field, too
                self._width = max(self._width, len(f"{file}.py:{line}"))
            return
        try:
            stream.write(self.line(at, number, name, file, line, text))
            stream.flush()
        except (OSError, ValueError, UnicodeError):  # closed, a full disk behind it, or a narrow encoding
            self._stream = None if stream.closed else stream

    def line(self, at: float, number: int, name: str, file: str, line: int, text: str) -> str:
        """The line, with its end."""
        place = f"{file}.py:{line}"
        self._width = max(self._width, len(place))
        when = f"[{self._time_colour}{self._time(at)}{self._off}]" if self._times else ""
        paint = self._level_colour(number)
        grade = f"{paint}{f'[{name}]'.ljust(_LEVEL_WIDTH)}{self._off if paint else ''}"
        said = f"{paint}[{place.rjust(self._width, '-')}] : {text}{self._off if paint else ''}"
        return f"{self._before}{when}{self._who}{grade}{said}\n"

    def _paint(self, code: str) -> str:
        return code if self._colour else ""

    def _level_colour(self, number: int) -> str:
        if not self._colour:
            return ""
        return next((code for least, code in _COLOURS if number >= least), "")

    def _time(self, at: float) -> str:
        second = int(at)
        if second != self._last[0]:
            self._last = second, time.strftime("%Y%m%d %H:%M:%S", time.localtime(second))
        return self._last[1]


def console_of(
    hello: Hello,
    environ: Mapping[str, str] = os.environ,
    argv: Sequence[str] = (),
    stream: TextIO | None = None,
) -> Console:
    """As the parameters and Primus' variables want it, on this process's own stderr."""
    stream = stream or sys.__stderr__
    times = environ.get("PRIMUS_LOG_TIMESTAMP", "1").strip().lower() not in _OFF_WORDS
    return Console(hello, level_of(hello.config, environ, argv), stream, times, _coloured(environ, stream))


def level_of(config: Mapping[str, Any], environ: Mapping[str, str], argv: Sequence[str] = ()) -> int:
    """`sink_level`, else `stderr_sink_level`; PRIMUS_LOG_LEVEL and --debug only make it more verbose.

    Launchers always set that variable, mostly to INFO: it must not silence what a configuration asks for.
    """
    name = str(config.get("sink_level") or config.get("stderr_sink_level") or "INFO").upper()
    wanted = LEVELS.get(name, 20)
    said = LEVELS.get(environ.get("PRIMUS_LOG_LEVEL", "").strip().upper())
    return min(wanted, 10 if "--debug" in argv else wanted, wanted if said is None else said)


def misread(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Of Primus' flags for the console those that are neither on nor off; its level is in remarks.py."""
    flags = [name for name in ("PRIMUS_LOG_TIMESTAMP", "PRIMUS_LOG_COLOR") if name in environ]
    notes = [
        f"{name}: {environ[name][:100]!r} is not allowed and counts as 1; choices: 1, 0"
        for name in flags
        if environ[name].strip().lower() not in _ON_WORDS | _OFF_WORDS
    ]
    return tuple(notes)


def _coloured(environ: Mapping[str, str], stream: TextIO | None) -> bool:
    """PRIMUS_LOG_COLOR=0 and NO_COLOR turn colours off; without a terminal there are none."""
    if environ.get("PRIMUS_LOG_COLOR", "1").strip().lower() in _OFF_WORDS or environ.get("NO_COLOR"):
        return False
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
