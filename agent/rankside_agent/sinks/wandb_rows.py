"""Points merged into numbered rows: what W&B calls a step of its history.

Separate from where the rows go. Training loops log one name a call; W&B wants one row a step, and never a
lower number than before. So consecutive points of one step and attempt make one row, the rows are numbered
through all attempts, and the training's own step is a column, `train_step`, which the charts are drawn over.
A row ends with a point of another step, with a name it already has, and with a flush; the ledger keeps the
flushes, so that the same journal makes the same rows after a crash.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.flat import writable
from rankside_agent.sinks.points import End, Notice, Point, Scalars
from rankside_agent.sinks.starts import Starts
from rankside_agent.sinks.wandb_ledger import Ledger

log = logging.getLogger(__name__)

STEP = "train_step"
MOST_NAMES = 10_000  # W&B's pages fail with more, and its server refuses a million
LONGEST_TEXT = 64 << 10  # characters of an event's details
OTHER_EVENTS = "events/other"  # the column of those that come beyond the names
_OURS = frozenset((STEP, "attempt"))
_EXACT = 2**53  # whole numbers beyond are not exact in a browser


class Row(NamedTuple):
    """One row and its number in the run."""

    number: int
    values: dict[str, Any]


class Rows:
    """Makes rows. `state` is what `state()` gave at the checkpoint, or empty."""

    def __init__(self, ledger: Ledger, state: Mapping[str, Any], counts: Counts) -> None:
        self.next = int(state.get("next", 0))  # the next row's number
        self.points = int(state.get("points", 0))  # given so far
        self._step = int(state.get("step", 0))  # the last explicit one
        self._attempt = int(state.get("attempt", 0))
        self._starts = Starts(state.get("starts", ()))
        self._ledger = ledger
        self._counts = counts
        self._open: dict[str, Any] = {}
        self._at: tuple[int, int] = (0, 0)  # attempt and step of the open row
        self._warned = False

    def state(self) -> dict[str, Any]:
        """As of the last cut."""
        return {
            "next": self.next,
            "points": self.points,
            "step": self._step,
            "attempt": self._attempt,
            "starts": self._starts.plain(),
        }

    def take(self, point: Point) -> Iterator[Row]:
        """Add a point; the rows that are complete now."""
        if isinstance(point, End):
            yield from self._close()
            return
        values = self._values(point)
        attempt, step = point.source.attempt, self._step_of(point)
        if self._open and (self._at != (attempt, step) or not values.keys().isdisjoint(self._open)):
            yield from self._close()
        base = self._ledger.base(self.points)
        if base is not None and not self._open:
            self.next = base
        self.points += 1
        self._merge(point, attempt, step, values)
        if self._ledger.is_cut(self.points):
            yield from self._close()

    def cut(self) -> Iterator[Row]:
        """End the open row, here and in every repetition; the ledger must be flushed before it is used."""
        if self._open:
            self._ledger.cut(self.points)
            yield from self._close()

    def _merge(self, point: Point, attempt: int, step: int, values: Mapping[str, Any]) -> None:
        kept = {name: value for name, value in values.items() if self._shown(name)}
        self._counts.points += len(kept)
        self._counts.refused += len(values) - len(kept)
        if not kept:
            return
        if not self._open:
            self._open = {STEP: step, "attempt": attempt, "_timestamp": point.time}
            self._at = (attempt, step)
        self._open.update(kept)

    def _close(self) -> Iterator[Row]:
        if self._open:
            values, self._open = self._open, {}
            self.next += 1
            yield Row(self.next - 1, values)

    def _step_of(self, point: Point) -> int:
        step = point.step if isinstance(point, Scalars) else None
        if point.source.aside:
            return self._step if step is None else step
        attempt = point.source.attempt
        if attempt < self._attempt:
            return self._late(point, step)
        if step is not None:
            if attempt > self._attempt:
                self._starts.add(attempt, step)
                self._attempt = attempt
            self._step = step
        return self._step

    def _late(self, point: Point, step: int | None) -> int:
        """Of an attempt that a newer one has replaced: shown in its own rows, and counted."""
        first = self._starts.after(point.source.attempt)
        if step is None:
            return self._step if first is None else first - 1
        if first is not None and step >= first and isinstance(point, Scalars):
            self._counts.superseded += len(point.values)
        return step

    def _values(self, point: Point) -> dict[str, Any]:
        if isinstance(point, Scalars):
            return {_name(name): _number(value) for name, value in point.values.items()}
        assert isinstance(point, Notice)
        name, told = _name(f"events/{point.name}"), point.fields
        if self._ledger.names >= MOST_NAMES and not self._ledger.knows(name):
            name, told = OTHER_EVENTS, {"event": point.name, "fields": point.fields}
        text = json.dumps(told, default=str, ensure_ascii=False)
        return {name: writable(text)[:LONGEST_TEXT]}

    def _shown(self, name: str) -> bool:
        if self._ledger.knows(name):
            return True
        if self._ledger.names >= MOST_NAMES and name != OTHER_EVENTS:
            if not self._warned:
                told = "more than %d names: %r and further ones are left out; further events are in %s"
                log.warning(told, MOST_NAMES, name, OTHER_EVENTS)
            self._warned = True
            return False
        self._ledger.add_name(name)
        return True


def _name(name: str) -> str:
    """W&B drops empty names, keeps those that begin with an underscore to itself, and two are ours."""
    plain = writable(name)
    return f"metrics/{plain}" if not plain or plain.startswith("_") or plain in _OURS else plain


def _number(value: float) -> float:
    return float(value) if isinstance(value, int) and abs(value) > _EXACT else value
