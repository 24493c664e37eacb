"""Whether a text is a record in the form that somebody gave it, or only speaks of one.

Separate because two ask it of other texts: of what one logging passes on to the other, and of what a handler
prints. A form has the record's message whole and in order, and around it what the record itself says (its
level, its place, its time, labels in brackets). Words of somebody's own make it another text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_WORD = re.compile(r"\w+", re.ASCII)
_LABELS = re.compile(r"\s*(?:[\[({<][^\[\](){}<>]{0,200}[\])}>]\s*)+")
_SHORT = 3  # characters; in less than these, numbers and field names around it prove nothing
_FEW = 5  # one word in so many may be missing: cut in two where a line was folded
# How formats call what they show, what stands in a date, and levels
_FIELDS = re.compile(
    r"time|asctime|timestamp|created|date|level|levelname|levelno|severity|name|logger|message|msg|event|"
    r"text|file|filename|line|lineno|function|func|funcname|module|process|thread|extra|exception|record|"
    r"null|none|true|false|am|pm|utc|gmt|mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|"
    r"oct|nov|dec|trace|debug|info|success|warning|warn|error|critical|fatal",
    re.IGNORECASE,
)


def words(text: str) -> list[str]:
    """As a handler that writes JSON has them, too."""
    return _WORD.findall(json.dumps(" ".join(_COLOURS.sub("", text).split())))


def is_dressed(message: str, text: str, beside: str) -> bool:
    """Whether `text` is `message` with nothing around it but what is `beside` it in its record."""
    said, whole = message.strip(), text.strip()
    if said == whole:
        return True
    at = whole.rfind(said)
    while at >= 0:
        if _is_around(said, whole[:at], whole[at + len(said) :], beside):
            return True
        at = whole.rfind(said, 0, at) if len(said) >= _SHORT else -1
    return False


def is_told(message: str, text: str, beside: str, more: bool = False) -> bool:
    """Whether `text` tells all of `message`, folded or framed as handlers do it. `more` may come behind it.

    A word too many in five, and one more, is a label; one too few in five was cut in two.
    """
    said = words(message)
    if not said:
        return message.strip() != "" and is_dressed(message, text, beside)
    found = words(_LABELS.sub(" ", text, count=1) if _LABELS.match(text) else text)
    last = _in_order(said, found)
    if last < 0:
        found = words(text)  # the message itself begins with brackets
        last = _in_order(said, found)
    if last < 0:
        return False
    if more:
        del found[last + 1 :]
    return len(_strange(found, {*said, *words(beside)})) <= 1 + 2 * (len(said) // _FEW)


def is_part(message: str, text: str, beside: str) -> bool:
    """Whether `text` has nothing but what is in the record, in its order."""
    found, said = words(text), words(message)
    if not found or not {*found} <= {*said, *words(beside)}:
        return False
    own = {*said} - {*words(beside)}
    return _in_order([word for word in found if word in own], said, missing=0) >= 0 or not own & {*found}


def _is_around(said: str, before: str, behind: str, beside: str) -> bool:
    if _joins(before[-1:], said[:1]) or _joins(said[-1:], behind[:1]):
        return False  # a part of a longer word
    known = {*words(beside), *words(said)}
    rest = words(f"{_LABELS.sub(' ', before, count=1) if _LABELS.match(before) else before} {behind}")
    return not ({*rest} - known if len(said) < _SHORT else _strange(rest, known))


def _joins(one: str, other: str) -> bool:
    return (one + other).isalnum() and bool(one and other)


def _strange(found: list[str], known: set[str]) -> list[str]:
    return [
        word
        for word in found
        if word not in known and not word[0].isdigit() and not _FIELDS.fullmatch(word) and len(word) > 1
    ]


def _in_order(said: list[str], found: list[str], missing: int | None = None) -> int:
    """Where the last of `said` stands in `found`; -1 where too many are missing, or not in their order."""
    left = len(said) // _FEW if missing is None else missing
    places: dict[str, list[int]] = {}
    for number, word in enumerate(found):
        places.setdefault(word, []).append(number)
    at = 0
    for word in said:
        there = places.get(word, ())
        next_one = bisect_left(there, at)
        if next_one < len(there):
            at = there[next_one] + 1
            continue
        left -= 1
        if left < 0:
            return -1
    return at - 1 if said else -1
