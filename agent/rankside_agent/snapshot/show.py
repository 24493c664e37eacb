"""Snapshots and their differences as lines for people, of at most 100 columns.

Separate from the commands, so that it can be read and tested as text. What stands in a snapshot is a
stranger's: it is escaped.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from rankside_agent.snapshot.difference import ABSENT, Difference, Pair
from rankside_agent.snapshot.stored import Group, Snapshot
from rankside_agent.tail.escape import escape

WIDTH = 100
_WIDEST_NAME = 40
_filled = textwrap.TextWrapper(
    WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
)
_BEFORE = 20  # characters of what two long values have in common that are shown before they part


def snapshot(found: Snapshot) -> Iterator[str]:
    """Every group with all its values."""
    for number, (title, group) in enumerate(found.groups.items()):
        yield from ([""] if number else [])
        yield title
        if title == "packages":
            told = "  ".join(f"{name}=={text(version)}" for name, version in group.items())
            yield from _filled.wrap(escape(told))
            continue
        width = _width(group)
        for name, value in group.items():
            given = _given(found.given.get(name), "given") if title == "configuration" else ""
            yield _cut(f"  {_name(name):<{width}}  {_shown(value)}{given}")


def difference(found: Difference, first: Snapshot, second: Snapshot) -> Iterator[str]:
    """What differs, by group."""
    for title, pairs in found.groups.items():
        yield ""
        yield title
        width = _width(pairs)
        for name, pair in pairs.items():
            given = ""
            if title == "configuration":
                now, before = second.given.get(name), first.given.get(name)
                given = _given(now, "given") or _given(before, "was given")
            yield from _change(_name(name), width, pair, given)
    if found.missing:
        yield ""
    for title, which in found.missing.items():
        yield f"{title}: not known of the {which}"
    if found.left_out:
        yield ""
        yield f"left out, for it differs with every start: {len(found.left_out)} names (--all shows them)"


def text(value: Any) -> str:
    """A value as it is compared: texts as they are, anything else as JSON."""
    if value is ABSENT:
        return repr(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def plain(value: Any) -> Any:
    """For JSON: null where there is none."""
    return None if value is ABSENT else value


def _change(name: str, width: int, pair: Pair, given: str) -> Iterator[str]:
    one, other = (_shown(value) for value in pair)
    line = f"  {name:<{width}}  {one} -> {other}{given}"
    if len(line) <= WIDTH:
        yield line
        return
    yield _cut(f"  {name}{given}")
    one, other = _parted(one, other)
    yield _cut(f"    - {one}")
    yield _cut(f"    + {other}")


def _parted(one: str, other: str) -> tuple[str, str]:
    """Both from a little before the first difference on, where they are too long to be shown whole."""
    if max(len(one), len(other)) <= WIDTH - 6:
        return one, other
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    start = max(0, sum(1 for _ in alike) - _BEFORE)
    return (one, other) if not start else (f"...{one[start:]}", f"...{other[start:]}")


def _given(place: str | None, word: str) -> str:
    """The file's name alone; all of it is in --json."""
    return escape(f"  ({word}: {os.path.basename(place)})") if place else ""


def _width(group: Group | dict[str, Pair]) -> int:
    return min(max((len(_name(name)) for name in group), default=0), _WIDEST_NAME)


def _name(name: str) -> str:
    told = escape(name)
    return told if len(told) <= WIDTH - 30 else f"{told[: WIDTH - 33]}..."


def _shown(value: Any) -> str:
    told = text(value)
    return escape(told) if told else '""'


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."
