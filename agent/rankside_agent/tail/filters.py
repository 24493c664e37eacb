"""Which records are wanted, and how a user writes that down; decided record by record, whatever was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rankside_agent.tail.record import ALIASES, LEVELS, Record, level_number, number

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_LABEL = re.compile(r"[^\s,/]+-\d+")


@dataclass(frozen=True)
class Ranks:
    """A choice of ranks."""

    ranges: tuple[tuple[int, int], ...]
    labels: frozenset[str]  # of processes whose rank is unknown

    def __contains__(self, label: str) -> bool:
        rank = number(label)
        return label in self.labels or (rank is not None and any(a <= rank <= b for a, b in self.ranges))


@dataclass(frozen=True)
class Wanted:
    """Every condition a shown record fulfils."""

    level: int = 0
    ranks: Ranks | None = None
    pattern: re.Pattern[str] | None = None
    since: float | None = None

    def __call__(self, record: Record) -> bool:
        """Whether the record is wanted; what cannot be known (a level's number, a time) hides nothing."""
        if self.level:
            level = level_number(record.level)
            if level is not None and level < self.level:
                return False
        if self.since is not None and record.when is not None and record.when < self.since:
            return False
        if self.ranks is not None and record.label not in self.ranks:
            return False
        found = (
            self.pattern is None or self.pattern.search(record.text) or self.pattern.search(record.location)
        )
        return bool(found)

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """The wanted ones."""
        return (record for record in records if self(record))


def parse_level(text: str) -> int:
    """A level's number by name or number."""
    name = text.strip().upper()
    level = level_number(ALIASES.get(name, name))
    if level is None:
        level = number(name)
    if level is None:
        raise ValueError(f"unknown level '{text}'; known: {', '.join(LEVELS).lower()}, or a number")
    return level


def parse_ranks(text: str) -> Ranks:
    """A list such as `0,3-5`; a process whose rank is unknown goes by its label, `{host}-{pid}`."""
    ranges, labels = [], set()
    for item in filter(None, (part.strip().removeprefix("rank-") for part in text.split(","))):
        match = _RANGE.fullmatch(item)
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise ValueError(f"'{item}' ends before it begins; write {last}-{first}")
            ranges.append((first, last))
        elif _LABEL.fullmatch(item):
            labels.add(item)
        else:
            raise ValueError(f"'{item}' is no rank; give numbers and ranges (0,3-5) or a label (host-pid)")
    if not ranges and not labels:
        raise ValueError("no rank given; give numbers and ranges such as 0,3-5")
    return Ranks(tuple(ranges), frozenset(labels))


def parse_pattern(text: str) -> re.Pattern[str]:
    """A regular expression; `^` and `$` match at each line, and (?i) at its beginning ignores case."""
    try:
        return re.compile(text, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"'{text}' is no regular expression: {error}") from None
