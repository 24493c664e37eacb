"""Losses of the training line that the last rank does not have, and the node's rank that has them.

Separate from sinks/speaker.py, which decides the same for the trackers by the journal alone: here it is
decided while the ranks speak, for the line is due at its step; and it is told, in the node's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rankside_agent.loss import LATER, NO_LOSS, is_loss, real

MOST_HELD = 50_000  # values of other ranks; some 5 MB
_VAIN = 3  # lines that waited for a loss which nobody had; the next ones do not

Told = Callable[[int, str, str], None]  # number and name of a level, and a text


@dataclass
class Known:
    """What was found out of one attempt's ranks; it outlives the agent."""

    spoken: bool = False  # whether the last rank has sent metrics
    real: list[str] = field(default_factory=list)  # losses it has
    lenders: dict[str, str] = field(default_factory=dict)  # losses that another rank has, and which
    deputy: str = ""  # the rank whose metrics all count

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Known:
        """From what `plain` made of one."""
        return cls(**{name: plain[name] for name in cls.__dataclass_fields__ if name in plain})

    def plain(self) -> dict[str, Any]:
        """For run.json."""
        return asdict(self)


class Lent:
    """Of the last rank's channel. `changed` keeps what is known, `tell` puts a line into the log."""

    def __init__(
        self, label: str, world_size: int, known: Known, changed: Callable[[], None], tell: Told
    ) -> None:
        self._label = label
        self._alone = world_size <= 1
        self._known = known
        self._changed = changed
        self._tell = tell
        self._marked: set[str] = set()  # losses that the last rank has the mark for
        # losses of others, not lent yet: whose, which step
        self._first: dict[str, tuple[str, int | None]] = {}
        self._held: dict[int | None, dict[str, dict[str, float]]] = {}  # by step and rank
        self._size = 0
        self._heard: dict[str, int] = {}  # the latest step of each other rank
        self._vain = 0
        self._is_silent = False

    def own(self, step: int | None, values: dict[str, float]) -> dict[str, float]:
        """The last rank's metrics, without the marks among them."""
        self._is_silent = False
        losses = {name for name in values if is_loss(name)}
        marks = {name for name in losses - {*self._known.real} if values[name] == NO_LOSS}
        marks = set() if self._alone else marks
        self._marked |= marks
        self._own(losses - marks)
        for name, (label, at) in list(self._first.items()):
            if name in marks or (step is not None and at is not None and step >= at + LATER):
                self._lend(name, label)
        return {name: value for name, value in values.items() if name not in marks}

    def hear(self, label: str, step: int | None, values: Mapping[str, float]) -> None:
        """Another rank's metrics."""
        if step is not None:
            self._heard[label] = max(step, self._heard.get(label, step))
        losses = {name: value for name, value in real(values).items() if name not in self._known.real}
        for name in losses:
            if name not in self._known.lenders:
                self._first.setdefault(name, (label, step))
                if name in self._marked:
                    self._lend(name, label)
        kept = losses if self._known.spoken else dict(values)
        if kept:
            self._hold(label, step, kept)

    def silent(self, seconds: float) -> None:
        """The last rank has sent all it has, and no metrics for so long, while others did."""
        why = f"has sent no metrics for {seconds:.0f} s"
        if self._known.spoken and not self._is_silent:
            self._tell(30, "WARNING", f"rank {self._label}, the last, {why}, while others of this node do")
        self._is_silent = True
        self._stand_in(why)

    def ended(self) -> None:
        """Nothing more comes of the last rank."""
        self._stand_in("has ended without metrics")

    def filled(self, step: int | None, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics of a line, with what the last rank does not have."""
        held = self._held.get(step, {})
        if not self._known.spoken:
            chosen = self._known.deputy or min(held, key=lambda label: _order(label, held[label]), default="")
            lent = held.get(chosen, {}).items()
            return {**{n: v for n, v in lent if v != NO_LOSS or not is_loss(n)}, **metrics}
        found: dict[str, float] = {}
        for label in sorted(held, key=_number):
            for name, value in real(held[label]).items():
                if self._known.lenders.get(name, label) == label and name not in self._known.real:
                    found.setdefault(name, value)
        return {**found, **metrics}

    def lacks(self, step: int | None, metrics: Mapping[str, float], ranks: Iterable[str]) -> bool:
        """Whether a line of this step has no loss, and a living rank may still send one."""
        if step is None or self._alone or self._vain >= _VAIN or real(self.filled(step, metrics)):
            return False
        if not (self._marked or self._first or self._known.lenders or self._known.deputy):
            return False  # there never was a loss
        return any(self._heard.get(rank, -1) < step for rank in ranks if rank != self._label)

    def waited(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """A line was held up for a loss; whether one came."""
        self._vain = 0 if real(self.filled(step, metrics)) else self._vain + 1

    def _stand_in(self, why: str) -> None:
        """Others speak for the last rank: all of one, if it has never said anything."""
        for name, (label, _) in list(self._first.items()) if self._known.spoken else ():
            self._lend(name, label)
        said: dict[str, dict[str, float]] = {}
        for held in self._held.values():
            for label, values in held.items():
                said.setdefault(label, {}).update(values)
        if said and not self._known.spoken and not self._known.deputy:
            self._known.deputy = label = min(said, key=lambda label: _order(label, said[label]))
            self._changed()
            self._tell(30, "WARNING", f"rank {self._label}, the last, {why}: those of rank {label} count")

    def _own(self, losses: set[str]) -> None:
        """The last rank speaks, and has these."""
        known, new = self._known, losses - {*self._known.real}
        if new or not known.spoken:
            known.spoken, known.deputy = True, ""
            known.real = sorted({*known.real, *new})
            for name in new:
                known.lenders.pop(name, None)
                self._first.pop(name, None)
            self._marked -= new
            self._forget_what_the_last_has()
            self._changed()

    def _forget_what_the_last_has(self) -> None:
        for held in self._held.values():
            for label, values in held.items():
                held[label] = {n: v for n, v in real(values).items() if n not in self._known.real}
        self._size = sum(len(values) for held in self._held.values() for values in held.values())

    def _lend(self, name: str, label: str) -> None:
        self._first.pop(name, None)
        if name in self._known.lenders or name in self._known.real:
            return
        self._known.lenders[name] = label
        self._changed()
        why = "reports -1" if name in self._marked else "reports none"
        text = f"{name[:200]}: that of rank {label} counts, for rank {self._label}, the last, {why}"
        self._tell(20, "INFO", text)

    def _hold(self, label: str, step: int | None, values: dict[str, float]) -> None:
        at = self._held.setdefault(step, {})
        before = at.get(label, {})
        at[label] = {**before, **values}
        self._size += len(at[label]) - len(before)
        while self._size > MOST_HELD and len(self._held) > 1:
            oldest = self._held.pop(next(iter(self._held)))
            self._size -= sum(map(len, oldest.values()))


def _order(label: str, values: Mapping[str, float]) -> tuple[bool, int, str]:
    """Who speaks first: a rank that has a loss, the lowest."""
    return not real(values), *_number(label)


def _number(label: str) -> tuple[int, str]:
    return (int(label), "") if label.isdecimal() else (0, label)
