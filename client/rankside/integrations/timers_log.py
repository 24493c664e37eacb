"""Read the record of many lines in which Megatron logs its timers.

Separate because it is text, like the training line, but of another logger and in three forms of its own.
"""

from __future__ import annotations

import re

_TITLES = ("max time across ranks (ms):", "(min, max) time across ranks (ms):", "times across ranks (ms):")
_MAX = re.compile(r"\s+(\S.*?) \.*: ([\d.]+)")
_MINMAX = re.compile(r"\s+(\S.*?) \.*: \(([\d.]+), ([\d.]+)\)")
_NAME = re.compile(r"\s+(\S[^:]*):")
_RANK = re.compile(r"\s+rank\s+(\d+): ([\d.]+)")


def parse(text: str, rank: int) -> dict[str, float]:
    """Seconds by timer. Of all ranks' times the one of `rank`; else the longest, which is what Megatron
    gives to its writers, too. Empty where the text is no such record."""
    title, *lines = text.strip("\n").split("\n")
    if title.strip() not in _TITLES:
        return {}
    found: dict[str, float] = {}
    name = ""
    for line in lines:
        if match := _MINMAX.fullmatch(line) or _MAX.fullmatch(line):
            found[match[1]] = float(match[match.lastindex or 2]) / 1000.0
        elif match := _RANK.fullmatch(line):
            if int(match[1]) == rank:
                found[name] = float(match[2]) / 1000.0
        elif match := _NAME.fullmatch(line):
            name = match[1]
    return found
