"""The names of log files: which belong to one log, and in what order they were written."""

from __future__ import annotations

import re
from typing import NamedTuple

Order = tuple[str, int]  # a rotated file's stamp, and its count where two files share a stamp
LIVE: Order = ("~", 0)  # the file being written sorts after every stamp

_NAME = re.compile(
    r"(?P<stem>.+?)(?:\.(?P<stamp>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{6})(?:\.(?P<count>[1-9]\d{0,8}))?)?"
    r"\.log(?P<packed>\.gz)?",
    re.ASCII,
)


class Position(NamedTuple):
    """Where a line begins; the positions of one log compare in the order of writing."""

    order: Order
    offset: int


class Name(NamedTuple):
    """A file's name, taken apart."""

    stem: str
    order: Order
    packed: bool


def split(name: str) -> Name | None:
    """The parts of a log file's name; None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None or (match["packed"] and not match["stamp"]):
        return None
    order = (match["stamp"], int(match["count"] or 0)) if match["stamp"] else LIVE
    return Name(match["stem"], order, bool(match["packed"]))


def join(stem: str, order: Order, *, packed: bool = False) -> str:
    """The name of a file from its parts."""
    stamp, count = order
    middle = "" if order == LIVE else f".{stamp}.{count}" if count else f".{stamp}"
    return f"{stem}{middle}.log" + (".gz" if packed else "")
