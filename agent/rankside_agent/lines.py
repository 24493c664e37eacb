"""How a record reads in a file: the level files' line as Primus prints it, and the node log's.

Separate from the files because this is the layout people's scripts parse; nothing here touches a disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

LEVEL_FILES = (("debug", 10), ("info", 20), ("warning", 30), ("error", 40))
_LOCATION_WIDTH = 23  # where Primus begins; it grows with the longest location seen
_LEVEL_WIDTH = 11  # "[CRITICAL]" and a space
_REMEMBERED = 1000  # heads, or levels, kept ready
_LONGEST = 200  # characters of a location, level or module name: they stand in every line
_LONGEST_EXTRAS = 2000  # characters
_LATEST = 253402300799.0  # 9999-12-31, the last day strftime can print
_THREE = [f"{number:03d}" for number in range(1000)]  # formatting numbers was a tenth of the writer's time


class Locations:
    """The location field of one channel: it widens with the longest seen, as in Primus."""

    def __init__(self, width: int = _LOCATION_WIDTH) -> None:
        self.width = width
        self.widened: list[Callable[[], None]] = []  # whoever keeps locations of the old width

    def __call__(self, file: str, line: int) -> str:
        """`[-----------train.py:215] : `."""
        text = _one_line(f"{file}.py:{line}")[-_LONGEST:]
        if len(text) > self.width:
            self.width = len(text)
            for forget in self.widened:
                forget()
        return f"[{text.rjust(self.width, '-')}] : "


class Heads(NamedTuple):
    """What stands around the text in all records of one second, level and place in the program."""

    level: str  # before the text, in the level files
    node: str  # in the node log, up to the microseconds
    first: str  # behind them, before the first line of the text
    other: str  # before any further line


class Form:
    """The layout of one channel in one module. Making the heads is slow; most records find them ready."""

    def __init__(self, info: dict[str, Any], location: Locations) -> None:
        self._location = location
        self._heads: dict[tuple[int, str, str, int], Heads] = {}
        location.widened.append(self._heads.clear)
        self._when = (-1, "-------- --:--:--")  # the second last made, and its text
        rank = f"rank-{info['label']}/{info['world_size'] if info['rank'] is not None else '?'}"
        self._rank = _one_line(f"[{rank}]")
        # captured output is the rank's own, whoever records it
        self._tag = f"[pid {info['pid']}] " if info["parent"] and not info.get("outputs") else ""
        who = f"[{info['user']}/{info['team']}][{info['module'][:_LONGEST]: <11}]"
        if info["role"] == "master":
            self._before = f"(PrimusMaster  pid={info['pid']}, ip={_one_line(info['node_ip'])}) "
            self._after = _one_line(f"{who}[node-{info['label']}/{info['world_size']}]")
        else:
            self._before = ""
            self._after = _one_line(f"{who}[ip-{info['node_ip']}]{self._rank}")

    def __call__(self, at: float, level: str, file: str, line: int, text: str) -> tuple[str, str]:
        """The record in a level file, where further lines of the text follow as they are, and in the node
        log: with microseconds, without what is the same everywhere, and with its rank in each line."""
        second = int(at) if 0.0 <= at <= _LATEST else -1  # NaN too is no time
        heads = self._heads.get((second, level, file, line)) or self._new_heads(second, level, file, line)
        before, node, behind, other = heads
        milli, micro = divmod(int((at - second) * 1e6), 1000) if second >= 0 else (0, 0)
        if "\n" not in text:
            return f"{before}{text}\n", f"{node}{_THREE[milli]}{_THREE[micro]}{behind}{text}\n"
        first, *others = text.split("\n")
        start = f"{node}{_THREE[milli]}{_THREE[micro]}"
        further = [f"{start}{other}{more}\n" for more in others]
        return f"{before}{text}\n", "".join([f"{start}{behind}{first}\n", *further])

    def pass_over(self, file: str, line: int) -> None:
        """A record that no file takes; in Primus the field has its width from these, too."""
        if len(file) > self._location.width - 14:  # ".py:" and ten digits
            self._location(file, line)

    def _new_heads(self, second: int, level: str, file: str, line: int) -> Heads:
        if len(self._heads) >= _REMEMBERED:
            self._heads.clear()
        when, place = self._time(second), self._location(file, line)
        grade = _one_line(f"[{str(level)[:_LONGEST]}]").ljust(_LEVEL_WIDTH)
        above, behind = f"{self._before}[{when}]{self._after}{grade}", f"]{self._rank}{grade}"
        text = f"{place}{self._tag}"
        heads = Heads(f"{above}{text}", f"[{when}.", f"{behind}{text}", f"{behind}| ")
        self._heads[second, level, file, line] = heads
        return heads

    def _time(self, second: int) -> str:
        """`20260102 03:04:05`, local; dashes for what is no time."""
        if second < 0:
            return "-------- --:--:--"
        if second != self._when[0]:
            self._when = (second, time.strftime("%Y%m%d %H:%M:%S", time.localtime(second)))
        return self._when[1]


def with_extras(node_line: str, extras: dict[str, Any]) -> str:
    """The node log's line with what was bound to the record: `text {step=3, run=a}`. Primus' form has no
    place for it, so the level files go without."""
    told = ", ".join(f"{name}={value}" for name, value in extras.items())
    first, end, others = node_line.partition("\n")
    return f"{first} {{{_one_line(told)[:_LONGEST_EXTRAS]}}}{end}{others}"


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
