"""The newest records of several logs, read from their ends; kept while they are few, else found again.

`-n` counts what is shown, and folding makes one of many; how far back that reaches shows only in going there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from rankside_agent.tail.family import START, Family
from rankside_agent.tail.filters import Wanted
from rankside_agent.tail.fold import SPAN, Fold, alone
from rankside_agent.tail.merge import merged, newest_first
from rankside_agent.tail.names import Position
from rankside_agent.tail.record import Record, weight
from rankside_agent.tail.search import wanted_backward
from rankside_agent.tail.tally import Tally

_BUDGET = 1 << 26  # bytes of records kept
_AROUND = 4096  # steps back at most, to look for the other ranks of the oldest fold
_NEAR = 1 << 17  # bytes, some 1,000 lines of a node log: a rank's lines come in batches, and one may be late
_NEAR_ALL = 1 << 22  # bytes in all node logs together

Folding = Callable[[Iterable[Record]], Iterator[Fold]]


class Backlog:
    """Goes back as far as asked, then gives the records in the order of time."""

    def __init__(
        self,
        families: list[Family],
        wanted: Wanted,
        stops: list[Position] | None = None,
        budget: int = _BUDGET,
    ) -> None:
        """`stops`: how far each family may be read back."""
        self._families = families
        self._wanted = wanted
        self._newest = newest_first(
            wanted_backward(family, wanted, stop)
            for family, stop in zip(families, stops or [START] * len(families), strict=True)
        )
        self._starts: list[Position | None] = [None] * len(families)
        self._kept: list[list[Record]] | None = [[] for _ in families]  # each newest first
        self._budget = budget
        self.count = 0
        self._tally = Tally()
        self.oldest = float("inf")  # the time for which the oldest counts that was found
        self.exhausted = False

    def last(self, count: int, folding: Folding) -> Iterator[Fold]:
        """The last `count` folds, whole ones."""
        target = count
        while True:
            reached = self._reach(target, folding)
            whole_from = self.oldest
            if folding is not alone and count:
                self._look_around(whole_from)
            total, whole = 0, 0
            for each in folding(self.records()):
                total += 1
                whole += each.last.when is None or each.last.when >= whole_from
            if whole >= count or self.exhausted or not count:
                total = self._with_late_ones(folding) if count else total
                return islice(folding(self.records()), max(0, total - count), None)
            target = count + reached - whole  # the tally may count too many

    def records(self) -> Iterator[Record]:
        """What was reached, in the order of time."""
        if self._kept is not None:
            return merged(reversed(kept) for kept in self._kept)
        return merged(
            self._wanted.of(family.forward(start))
            for family, start in zip(self._families, self._starts, strict=True)
            if start is not None
        )

    def _reach(self, count: int, folding: Folding) -> int:
        while (
            reached := self.count if folding is alone else self._tally.count
        ) < count and not self.exhausted:
            self._step()
        return reached

    def _look_around(self, edge: float) -> None:
        """The oldest fold may have members that lie further back."""
        for _ in range(_AROUND):
            if self.exhausted or self.oldest < edge - SPAN:
                break
            self._step()

    def _with_late_ones(self, folding: Folding) -> int:
        """How many folds there are with the newer records that stand before a batch that came late."""
        nodes = [number for number, each in enumerate(self._families) if each.log.kind.source.host]
        for number in nodes:
            near = min(_NEAR, _NEAR_ALL // len(nodes))
            start, records = self._families[number].just_before(self._starts[number], near)
            self._starts[number] = start or self._starts[number]
            if self._kept is not None:
                self._kept[number] += reversed(list(self._wanted.of(records)))
        return sum(1 for _ in folding(self.records()))

    def _step(self) -> None:
        found = next(self._newest, None)
        if found is None:
            self.exhausted = True
            return
        self.oldest, number, place, record = found
        if record is None:
            return
        self._starts[number] = place
        self.count += 1
        self._tally.add(record)
        self._budget -= weight(record)
        if self._budget < 0:
            self._kept = None
        if self._kept is not None:
            self._kept[number].append(record)
