"""How a record reads in a file: the level files' line as Primus prints it, and the node log's.

Separate from the files because this is the layout people's scripts parse; nothing here touches a disk.
"""

from __future__ import annotations

import time
from typing import Any

LEVEL_FILES = (("debug", 10), ("info", 20), ("warning", 30), ("error", 40))
_LOCATION_WIDTH = 23  # where Primus begins; it grows with the longest location seen
_LEVEL_WIDTH = 11  # "[CRITICAL]" and a space
_REMEMBERED = 10_000  # distinct locations or level names kept ready
_LONGEST = 200  # characters of a location, level or module name: they stand in every line
_LATEST = 253402300799  # 9999-12-31, the last day strftime can print


class Clock:
    """Local time as text; one second's text is kept, for most records share it."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def __call__(self, at: float) -> str:
        """`20260102 03:04:05`, or dashes where `at` is no time."""
        if not 0 <= at <= _LATEST:  # also false for NaN
            return "-------- --:--:--"
        second = int(at)
        if second != self._second:
            self._text = time.strftime("%Y%m%d %H:%M:%S", time.localtime(second))
            self._second = second
        return self._text

    @staticmethod
    def micros(at: float) -> int:
        """Microseconds within the second."""
        return int(at % 1 * 1e6) if 0 <= at <= _LATEST else 0


class Locations:
    """The location field of one channel: it widens with the longest seen, as in Primus."""

    def __init__(self) -> None:
        self._width = _LOCATION_WIDTH
        self._known: dict[tuple[str, int], str] = {}

    def __call__(self, file: str, line: int) -> str:
        """`[-----------train.py:215] : `."""
        found = self._known.get((file, line))
        if found is None:
            text = _one_line(f"{file}.py:{line}")[-_LONGEST:]
            if len(text) > self._width:
                self._width = len(text)
                self._known.clear()
            found = f"[{text.rjust(self._width, '-')}] : "
            if len(self._known) < _REMEMBERED:
                self._known[file, line] = found
        return found


class Form:
    """The layout of one channel in one module, and the files it goes to."""

    def __init__(self, info: dict[str, Any], location: Locations) -> None:
        self.location = location
        self._levels: dict[str, str] = {}
        self.head = f"rank-{info['label']}/{info['world_size'] if info['rank'] is not None else '?'}"
        self._tag = f"[pid {info['pid']}] " if info["parent"] else ""
        who = f"[{info['user']}/{info['team']}][{info['module'][:_LONGEST]: <11}]"
        if info["role"] == "master":
            self._before = f"(PrimusMaster  pid={info['pid']}, ip={info['node_ip']}) "
            self._after = _one_line(f"{who}[node-{info['label']}/{info['world_size']}]")
        else:
            self._before = ""
            self._after = _one_line(f"{who}[ip-{info['node_ip']}][{self.head}]")

    def level(self, name: str) -> str:
        """`[INFO]     `."""
        found = self._levels.get(name)
        if found is None:
            found = _one_line(f"[{str(name)[:_LONGEST]}]").ljust(_LEVEL_WIDTH)
            if len(self._levels) < _REMEMBERED:
                self._levels[name] = found
        return found

    def level_line(self, when: str, level: str, location: str, text: str) -> str:
        """As Primus prints it; further lines of the text follow as they are."""
        return f"{self._before}[{when}]{self._after}{level}{location}{self._tag}{text}\n"

    def node_line(self, when: str, micros: int, level: str, location: str, text: str) -> str:
        """With microseconds, and without what is the same in every line; each physical line has its rank."""
        start = f"[{when}.{micros:06d}][{self.head}]{level}"
        if "\n" not in text:
            return f"{start}{location}{self._tag}{text}\n"
        first, *others = text.split("\n")
        return "".join(
            [f"{start}{location}{self._tag}{first}\n", *(f"{start}| {other}\n" for other in others)]
        )


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\r", " ")


class Thresholds:
    """Which files a level goes to; by number, so that unknown levels find their place."""

    def __init__(self, lowest: int) -> None:
        # A file is there if any level from its own up to the next file's is wanted: SUCCESS goes to info.log,
        # CRITICAL to error.log; and the lowest takes what is wanted below it: TRACE goes to debug.log
        following = [number for _, number in LEVEL_FILES[1:]] + [float("inf")]
        files = zip(LEVEL_FILES, following, strict=True)
        self._rows = [(name, max(number, lowest)) for (name, number), above in files if above > lowest]
        self._rows[0] = (self._rows[0][0], lowest)
        self._names: dict[int, tuple[str, ...]] = {}

    def __call__(self, number: int) -> tuple[str, ...]:
        """Names of the level files that hold a record of this level."""
        found = self._names.get(number)
        if found is None:
            found = tuple(name for name, least in self._rows if number >= least)
            if len(self._names) < _REMEMBERED:
                self._names[number] = found
        return found
