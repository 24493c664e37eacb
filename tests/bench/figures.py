"""Medians, percentiles, and the sections that figures are gathered in, for the table and for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Value = float | str | None
QUIET, LARGE = 10, 1000  # from here on one digit, or none, behind the point


@dataclass
class Section:
    """One table: a title, what was done, the columns, and a row for each candidate."""

    title: str
    notes: list[str]
    columns: tuple[str, ...]
    rows: list[dict[str, Value]] = field(default_factory=list)


def median(values: Iterable[float]) -> float:
    """The middle one."""
    return percentile(sorted(values), 50)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that `share` percent of an ascending sequence do not exceed."""
    if not ordered:
        return float("nan")
    place = int(len(ordered) * share / 100)
    return ordered[min(place, len(ordered) - 1)]


def spread(values: Iterable[float]) -> str:
    """Where the rounds lie, without the outermost tenth on each side."""
    found = sorted(values)
    return f"{text(percentile(found, 10))} .. {text(percentile(found, 90))}" if found else ""


def text(value: Value) -> str:
    """For people: three or four digits that mean something."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if abs(value) >= LARGE:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= QUIET else f"{value:.2f}"
