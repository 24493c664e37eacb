"""The table that rocm-smi prints when asked for nothing: use, power, temperature and clock, but no bytes.

Separate because its columns have no separator. They are found by where the words of the header begin; the
header has one line or two, and a row may be followed by one that holds the card's name only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rankside_agent.gpu import quantity
from rankside_agent.gpu.card import Card

_WORD = re.compile(r"\S+(?: \S+)*")  # columns are two spaces apart, words one
_RULE = re.compile(r"=+.*")
_FIRST = ("device", "gpu")  # the first column's title, new and old


def from_table(texts: Iterable[str]) -> list[Card]:
    """The cards in the order of the rows."""
    found: list[Card] = []
    for text in texts:
        columns: list[tuple[int, str]] = []
        for line in text.splitlines():
            words = [(match.start(), match[0].lower()) for match in _WORD.finditer(line)]
            if words and re.split(r"\s", words[0][1])[0] in _FIRST and len(words) > 1:
                columns = words
            elif columns and not _RULE.match(line) and line[:1].isdigit():
                found.append(_card(_cells(line, columns)))
    return found


def _cells(line: str, columns: list[tuple[int, str]]) -> dict[str, str]:
    ends = [start for start, _ in columns[1:]] + [len(line)]
    return {title: line[start:end].strip() for (start, title), end in zip(columns, ends, strict=True)}


def _card(cells: dict[str, str]) -> Card:
    def value(*titles: str) -> float | None:
        return next((quantity.number(cells[title]) for title in cells if title.startswith(titles)), None)

    return Card(
        use_percent=value("gpu%"),
        power_w=value("power", "avgpwr"),
        temperature_c=value("temp"),
        clock_mhz=value("sclk"),
    )
