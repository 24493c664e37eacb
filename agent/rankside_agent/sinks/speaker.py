"""Who speaks for the run: the last rank, unless another one of this node has what that one lacks.

Separate because it is a judgement over several ranks, while everything else follows one. Under pipeline
parallelism the loss lives where the last stage is, and the other ranks report -1 or nothing; under V-shaped
schedules that is rank 0. So:

- -1 under the name of a loss, from a rank that has never had another value for it, is no loss.
- Where the last rank has only such a mark for a loss, or goes on without one, another rank's value counts.
- Where the last rank says nothing at all, the first other rank that does speaks in its place.

Other ranks' metrics wait until the last rank's next words, its end, or the agent's word that it is silent
(silence.py) have decided. Nothing here looks at a clock, nor at the times of records: ranks' backlogs come in
after each other, and the same journal must always give the same points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rankside_agent.loss import LATER, NO_LOSS, is_loss, real
from rankside_agent.sinks.points import Notice, Point, Scalars, Source

if TYPE_CHECKING:
    from rankside_agent.sinks.base import Counts

MOST_HELD = 200_000  # values of other ranks; some 20 MB
_ATTEMPTS = 8  # remembered


class _Held(NamedTuple):
    """Another rank's metrics, and how many records of the last rank came before."""

    point: Scalars
    heard: int


@dataclass
class _Attempt:
    """What is known of one attempt's ranks. All that is decided is kept with the position in the journal."""

    spoken: bool = False  # whether the last rank has sent metrics
    over: bool = False  # whether it has ended
    real: set[str] = field(default_factory=set)  # losses it has
    marked: set[str] = field(default_factory=set)  # losses it only has the mark for
    lent: dict[str, str] = field(default_factory=dict)  # losses that another rank has, and which
    deputy: str = ""  # the rank that speaks instead
    heard: int = 0  # records of the last rank, since the stored position
    held: list[_Held] = field(default_factory=list)
    size: int = 0  # of what is held, in values

    def names(self) -> set[str]:
        return {name for held in self.held for name in held.point.values}

    def hold(self, point: Scalars) -> None:
        self.held.append(_Held(point, self.heard))
        self.size += len(point.values)

    def taken(self) -> list[_Held]:
        held, self.held, self.size = self.held, [], 0
        return held

    def plain(self) -> dict[str, Any]:
        return {
            "spoken": self.spoken,
            "over": self.over,
            "real": sorted(self.real),
            "marked": sorted(self.marked),
            "lent": self.lent,
            "deputy": self.deputy,
        }


class Speaker:
    """Passes on the metrics that count for the run. `state` is what `state()` gave, or empty.

    `elsewhere`: whether the last rank of a source's attempt is another node's, which then has its words.
    """

    def __init__(
        self,
        counts: Counts,
        state: Mapping[str, Any],
        elsewhere: Callable[[Source], bool] = lambda _source: False,
    ) -> None:
        self._counts = counts
        self._elsewhere = elsewhere
        self._attempts = {int(number): _attempt(known) for number, known in state.items()}

    @property
    def settled(self) -> bool:
        """Whether nothing waits for a decision."""
        return not any(attempt.held for attempt in self._attempts.values())

    def state(self) -> dict[str, Any]:
        """What is decided; to be kept only while settled."""
        return {str(number): attempt.plain() for number, attempt in self._attempts.items()}

    def hear(self, point: Scalars) -> Iterator[Point]:
        """The metrics of one record, of any rank."""
        attempt = self._of(point.source.attempt)
        if point.source.last:
            yield from self._last(attempt, point)
        elif attempt.deputy:
            yield from self._pass(point) if attempt.deputy == point.source.label else self._skip(point)
        elif attempt.over and not attempt.spoken:
            yield from self._appoint(attempt, point)
        else:
            yield from self._other(attempt, point)

    def left(self, source: Source) -> Iterator[Point]:
        """Another rank is at its end; its words wait no more for a last rank that is not of this node."""
        if self._of(source.attempt).held and self._elsewhere(source):
            yield from self._leave_to_another_node(self._of(source.attempt))

    def ended(self, source: Source) -> Iterator[Point]:
        """The channel of the last rank is at its end."""
        attempt = self._of(source.attempt)
        attempt.over = True
        if attempt.spoken:
            yield from self._lend(attempt, attempt.names())
        elif attempt.held:
            yield from self._appoint(attempt, None)

    def silent(self, source: Source) -> Iterator[Point]:
        """The last rank has sent all it has, while others have said more."""
        attempt = self._of(source.attempt)
        if attempt.held and not attempt.spoken:
            yield from self._appoint(attempt, None)
        else:
            yield from self._lend(attempt, attempt.names())

    def _last(self, attempt: _Attempt, point: Scalars) -> Iterator[Point]:
        losses = {name for name in point.values if is_loss(name)}
        marks = {name for name in losses - attempt.real if point.values[name] == NO_LOSS}
        if point.source.world_size > 1 and marks:
            self._counts.refused += len(marks)
            kept = {name: value for name, value in point.values.items() if name not in marks}
            point = point._replace(values=kept)
        else:
            marks = set()
        attempt.real |= losses - marks
        attempt.marked = (attempt.marked | marks) - attempt.real
        for name in losses - marks:
            attempt.lent.pop(name, None)
        attempt.spoken, attempt.deputy = True, ""
        attempt.heard += 1
        yield from self._pass(point)
        yield from self._decide(attempt, marks, point.step)

    def _decide(self, attempt: _Attempt, marks: set[str], step: int | None) -> Iterator[Point]:
        if not attempt.held:
            return
        missed = {
            name for held in attempt.held for name in held.point.values if _is_past(held, step, attempt.heard)
        }
        yield from self._lend(attempt, marks | missed)

    def _lend(self, attempt: _Attempt, names: set[str]) -> Iterator[Point]:
        """Losses the last rank does not have come from whoever has them; what it has, others need not say."""
        for point, heard in attempt.taken():
            kept = {n: v for n, v in real(point.values).items() if n not in attempt.real}
            if any(name in names or name in attempt.lent for name in kept):
                yield from self._borrow(attempt, point._replace(values=kept))
            elif kept and not attempt.over:
                attempt.held.append(_Held(point._replace(values=kept), heard))
                attempt.size += len(kept)
            else:
                yield from self._skip(point)

    def _other(self, attempt: _Attempt, point: Scalars) -> Iterator[Point]:
        wanted = {n: v for n, v in real(point.values).items() if n not in attempt.real}
        marks_only = all(is_loss(name) for name in point.values) and not wanted
        if marks_only or (attempt.spoken and not wanted):
            yield from self._skip(point)
        elif attempt.over or any(name in attempt.lent or name in attempt.marked for name in wanted):
            yield from self._borrow(attempt, point._replace(values=wanted))
        else:
            attempt.hold(point._replace(values=wanted) if attempt.spoken else point)
            if attempt.size > MOST_HELD and self._elsewhere(point.source):
                yield from self._leave_to_another_node(attempt)
            elif attempt.size > MOST_HELD:
                yield from self.silent(point.source)

    def _borrow(self, attempt: _Attempt, point: Scalars) -> Iterator[Point]:
        label = point.source.label
        mine = {n: v for n, v in point.values.items() if attempt.lent.get(n, label) == label}
        new = [name for name in mine if name not in attempt.lent]
        if new:
            attempt.lent.update(dict.fromkeys(new, label))
            yield _notice(point, ", ".join(new))
        yield from self._pass(point._replace(values=mine)) if mine else self._skip(point)

    def _appoint(self, attempt: _Attempt, point: Scalars | None) -> Iterator[Point]:
        held = [*(each.point for each in attempt.taken()), *([point] if point else [])]
        attempt.deputy = min(held, key=lambda each: (not real(each.values), each.source.rank)).source.label
        first = next(each for each in held if each.source.label == attempt.deputy)
        yield _notice(first, "all")
        for each in held:
            yield from self._pass(each) if each.source.label == attempt.deputy else self._skip(each)

    def _leave_to_another_node(self, attempt: _Attempt) -> Iterator[Point]:
        for held in attempt.taken():
            yield from self._skip(held.point)

    def _pass(self, point: Scalars) -> Iterator[Point]:
        yield point
        self._counts.delivered += _counted(point)  # now that the sink has taken it

    def _skip(self, point: Scalars) -> Iterator[Point]:
        self._counts.skipped += _counted(point)
        yield from ()

    def _of(self, number: int) -> _Attempt:
        if number not in self._attempts:
            while len(self._attempts) >= _ATTEMPTS:
                oldest = self._attempts.pop(min(self._attempts))
                self._counts.skipped += sum(_counted(held.point) for held in oldest.held)
            self._attempts[number] = _Attempt()
        return self._attempts[number]


def _is_past(held: _Held, step: int | None, heard: int) -> bool:
    """Whether the last rank has gone on far enough to have said the same, had it anything to say."""
    if held.point.step is None or step is None:
        return heard >= held.heard + LATER
    return step >= held.point.step + LATER


def _counted(point: Scalars) -> int:
    """1, unless the record has already arrived under its rank's own name."""
    return int(point.source.last or not point.source.everyone)


def _notice(point: Scalars, names: str) -> Notice:
    return Notice(point.source, point.time, "metric source", {"rank": point.source.label, "metrics": names})


def _attempt(known: Any) -> _Attempt:
    return _Attempt(
        spoken=bool(known["spoken"]),
        over=bool(known["over"]),
        real=set(known["real"]),
        marked=set(known["marked"]),
        lent=dict(known["lent"]),
        deputy=str(known["deputy"]),
    )
