"""Parse one written line into its head and text; apart from the assembly, for here is all that is format.

Level files name team, module and address in the head, and further lines of a record are raw. Node logs
have microseconds, and further lines repeat the head with `| ` for the location. Which of them a file is, its
name says, never a guess: a message may well quote lines of the other format.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1)
# Users and clients choose the names in a head, so brackets in them are borne; the bounds keep a hostile line
# from costing more than its length.
_STAMP = r"(?P<stamp>[0-9-]{8} [0-9:-]{8}(?:\.[0-9]{1,6})?)"
_RANK = r"\[rank-(?P<label>[^\]/]*)(?:/(?P<world>[^\]]*))?\]"
_TEXT = r"\[(?P<level>[^\[|]{0,250}?)\] *\[(?P<location>.{0,2000}?)\] :(?: (?P<text>.*))?"
_FURTHER = r"\[(?P<level_>[^\[|]{0,250}?)\] *\|(?: (?P<further>.*))?"

_LEVEL_LINE = re.compile(rf"\[{_STAMP}\]\[.{{0,1000}}?\]\[ip-(?P<address>[^\]]*)\]{_RANK}{_TEXT}", re.DOTALL)
_NODE_LINE = re.compile(rf"\[{_STAMP}\]{_RANK}(?:{_TEXT}|{_FURTHER})", re.DOTALL)
_MASTER_LINE = re.compile(
    rf"\([^)]{{0,300}}ip=(?P<address>[^)]{{0,300}})\) \[{_STAMP}\]\[.{{0,1000}}?\]"
    rf"\[(?P<label>node-[^\]/]*)(?:/(?P<world>[^\]]*))?\]{_TEXT}",
    re.DOTALL,
)


class Head(NamedTuple):
    """What a line says of its record, and the text that follows."""

    stamp: str
    address: str
    label: str
    world: str
    level: str
    location: str | None  # None: a further line of a record that began before
    text: str

    def continues(self, other: Head) -> bool:
        """Whether both are lines of one record."""
        return self.stamp == other.stamp and self.label == other.label and self.level == other.level


Parse = Callable[[bytes], "Head | None"]


def level_line(line: bytes) -> Head | None:
    """The head of a record in a rank's level file; None for a raw further line."""
    match = _match(_LEVEL_LINE, line, b"[")
    return match and _head(match, match["address"])


def node_line(line: bytes) -> Head | None:
    """The head of any line in a node log; None for what the agent never wrote."""
    match = _match(_NODE_LINE, line, b"[")
    if match is None or match["location"] is not None:
        return match and _head(match, "")
    stamp, label, world, level, text = match.group("stamp", "label", "world", "level_", "further")
    return Head(stamp, "", label, world or "", level.strip(), None, text or "")


def master_line(line: bytes) -> Head | None:
    """The head of a record in the launcher's own level file; None for a raw further line."""
    match = _match(_MASTER_LINE, line, b"(")
    return match and _head(match, match["address"])


def seconds(stamp: str) -> float | None:
    """A written time as seconds on the writer's clock; None when it is no time."""
    whole = _seconds(stamp[:17])
    return whole if whole is None or len(stamp) <= 17 else whole + float("0" + stamp[17:])


def local_seconds(moment: datetime) -> float:
    """A local time on the scale of `seconds`."""
    return (moment - _EPOCH).total_seconds()


@lru_cache(maxsize=4096)  # neighbours share a second, and strptime costs more than the rest of a line
def _seconds(text: str) -> float | None:
    try:
        return local_seconds(datetime.strptime(text, "%Y%m%d %H:%M:%S"))
    except ValueError:
        return None


def _match(pattern: re.Pattern[str], line: bytes, first: bytes) -> re.Match[str] | None:
    if line[:1] == b"\0":
        line = line.lstrip(b"\0")  # network file systems leave blocks of zeros before what was written next
    return pattern.fullmatch(line.decode("utf-8", "replace")) if line[:1] == first else None


def _head(match: re.Match[str], address: str) -> Head:
    stamp, label, world, level, location, text = match.group(
        "stamp", "label", "world", "level", "location", "text"
    )
    return Head(stamp, address, label, world or "", level.strip(), location.lstrip("-"), text or "")
