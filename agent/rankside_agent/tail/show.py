"""Write records for a person or for a program: columns and colours, or one JSON object each."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple, Protocol

from rankside_agent.tail.escape import drawn, escape
from rankside_agent.tail.fold import Fold, ranks_of
from rankside_agent.tail.record import LEVELS, Record, level_number, number

_WIDEST = 16  # the column of ranks grows with what it has shown, up to here
_DIM, _PLAIN = "2", "0"
_LAUNCHER = re.compile(
    r"node-\d+", re.ASCII
)  # the label of a launcher, which has a node's number and no rank
_COLOURS = (  # from this level on, SGR codes
    (LEVELS["CRITICAL"], "1;97;41"),
    (LEVELS["ERROR"], "31"),
    (LEVELS["WARNING"], "33"),
    (LEVELS["SUCCESS"], "32"),
    (LEVELS["INFO"], "36"),
)


class Style(NamedTuple):
    """SGR codes, or none."""

    level: str
    text: str


class Show(Protocol):
    """Turns a record into what is printed."""

    def __call__(self, fold: Fold) -> str:
        """The text, with its final newline."""


class Lines:
    """One line for each of a record's, each with the ranks in front."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._width = 8
        self._labels: set[str] = set()

    def __call__(self, fold: Fold) -> str:
        record = fold.record
        style = _style(record.level)
        who = self._who(tuple(fold.labels))
        begin = who if record.late else f"{who} {self._head(record, style)}"
        first, *others = record.text.split("\n")
        lines = [f"{begin} | {self._text(first, style.text)}\n"]
        lines += [f"{who} | {self._text(line, style.text)}\n" for line in others]
        return "".join(lines)

    def _who(self, labels: tuple[str, ...]) -> str:
        who = _who(labels)
        self._width = max(self._width, min(len(who), _WIDEST))
        return who.ljust(self._width)

    def _head(self, record: Record, style: Style) -> str:
        when = self._paint(_short_time(record.stamp), _DIM)
        level = self._paint(f"{escape(record.level):<8}", style.level)
        return f"{when} {level} {self._paint(escape(self._where(record)), _DIM)}"

    def _where(self, record: Record) -> str:
        """The location, with the module's folder before it once there is more than one to tell apart."""
        self._labels.add(record.source.label)
        return record.location if len(self._labels) == 1 else f"{record.source.label}/{record.location}"

    def _text(self, line: str, codes: str) -> str:
        return self._paint(drawn(line, colour=self._colour), codes)

    def _paint(self, text: str, codes: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[{_PLAIN}m" if self._colour and codes and text else text


class Json:
    """One JSON object a line; nothing in it but printable ASCII."""

    def __init__(self, *, folded: bool) -> None:
        self._folded = folded

    def __call__(self, fold: Fold) -> str:
        record = fold.record
        values: dict[str, object] = {
            "time": _iso_time(record),
            "rank": record.rank,
            "rank_label": record.label,
            "world_size": number(record.world),
            "level": record.level,
            "level_no": level_number(record.level),
            "location": record.location,
            "text": record.text,
            "module": record.source.module,
            "host": record.source.host or record.address or None,
        }
        if record.late:
            values["late"] = True
        if self._folded:
            ranks = ((number(label), label) for label in fold.labels)
            values["ranks"] = [label if rank is None else rank for rank, label in ranks]
        return json.dumps(values).replace("\x7f", "\\u007f") + "\n"


@lru_cache(maxsize=256)
def _style(level: str) -> Style:
    known = level_number(level)
    if known is None:
        return Style("", "")
    codes = next((codes for least, codes in _COLOURS if known >= least), _DIM)
    return Style(codes, codes if known >= LEVELS["WARNING"] else "")


@lru_cache(maxsize=1024)  # most records are of one rank, or of all
def _who(labels: tuple[str, ...]) -> str:
    ranks = escape(ranks_of(labels))
    if len(labels) > 1:
        return f"ranks {ranks} ({len(labels)}x)"
    return ranks if _LAUNCHER.fullmatch(ranks) else f"rank {ranks}"


def _short_time(stamp: str) -> str:
    """`01-02 03:04:05.123`; blanks for what was not written."""
    if not stamp:
        return " " * 18
    return f"{stamp[4:6]}-{stamp[6:8]}{stamp[8:17]}{stamp[17:21]:<4}"


def _iso_time(record: Record) -> str | None:
    stamp = record.stamp
    return None if record.when is None else f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[9:]}"
