"""One record as it was read, from whatever file: the one type that filter, merge, fold and screen share."""

from __future__ import annotations

import re
from typing import NamedTuple

LEVELS = {
    "TRACE": 5,
    "DEBUG": 10,
    "INFO": 20,
    "SUCCESS": 25,
    "WARNING": 30,
    "ERROR": 40,
    "CRITICAL": 50,
}
ALIASES = {"WARN": "WARNING", "FATAL": "CRITICAL"}

_NUMBERED = re.compile(r"Level (\d{1,6})")


class Source(NamedTuple):
    """Where a record was read."""

    label: str  # the module's folder below the logs: "pretrain", or "attempt-2/pretrain"
    module: str
    host: str | None = None  # known from the name of a node log only


class Record(NamedTuple):
    """A message with all its lines, and what its head says."""

    stamp: str  # the time as written, "20260102 03:04:05" with or without ".123456"; "" where unknown
    when: float | None  # the same in seconds of local time, to compare
    label: str  # "7", or "{host}-{pid}" of a process whose rank is unknown
    world: str  # "8", or "?"
    level: str
    location: str
    text: str
    source: Source
    address: str = ""
    late: bool = False  # further lines whose beginning was shown before, or is not in the files

    @property
    def rank(self) -> int | None:
        """The rank's number, where the label is one."""
        return number(self.label)

    @property
    def stream(self) -> tuple[Source, str]:
        """Whose record it is: inside one stream the order of the file is never changed."""
        return self.source, self.label


def number(text: str) -> int | None:
    """A plain decimal number, else None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def level_number(name: str) -> int | None:
    """The number of a level by its name or as `Level 15`; None for a name nobody told us."""
    known = LEVELS.get(name)
    if known is None and (match := _NUMBERED.fullmatch(name)):
        return int(match[1])
    return known


def weight(record: Record) -> int:
    """About the bytes a record takes in memory, for bounds."""
    return 600 + 2 * len(record.text)
