"""The contract of a sink: what the process around it asks, and what it must keep.

Separate from any tracker, so that the process, the contract test and the next tracker agree on it.

1.  Points come in the journal's order, one `write` each; `write` may buffer. After `flush` has returned they
    are as durable as the tracker can make them.
2.  After a flush the process stores `state()` together with the journal's position. A sink made with that
    state is given everything behind that position again, some of which the tracker may already have: a
    reader of the tracker must not see it twice.
3.  `write` and `flush` raise when the tracker takes nothing now. The sink is then closed, and made anew from
    the stored state after a while. What the tracker could never take is left out and counted in `refused`;
    it must not raise, for it would be tried for ever.
4.  While a sink holds points back it is not `settled`, and its position is not stored.
5.  What a stand-in takes while the tracker is away (files that are to be synced by hand, say) is
    `provisional`: the place before it stays known, and `GoBack` returns there once the tracker answers.
6.  `finish` comes when all is delivered and the ranks have ended. It works in pieces; the state is stored
    after each, and after a death in between it is called again with that state.
7.  `close` may follow a failed call, and does not raise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rankside_agent.sinks.points import Point


@dataclass(frozen=True)
class Run:
    """The run a sink forwards, from run.json."""

    run_id: str
    exp_root: str
    folder: Path  # its state on this node
    key: str = ""  # of the experiment: the same for all its attempts, on every node


class Outcome(NamedTuple):
    """How the newest attempt's ranks ended: finished, failed or killed; log folders are below exp_root."""

    status: str
    attempt: int
    ended: float
    log_roots: tuple[str, ...] = ("logs",)
    attempts: Mapping[int, str] = {}  # every attempt's status; one may have run beside the newest
    elsewhere: frozenset[str] = frozenset()  # log folders whose newest attempt another node speaks for

    def is_elsewhere(self, beside: str) -> bool:
        """Whether another node tells the end of the run that is continued, or of an attempt beside it."""
        return (f"logs/{beside}" if beside else "logs") in self.elsewhere


class GoBack(Exception):
    """The tracker answers again: what its stand-in took is to be forwarded once more, from the anchor on."""


@dataclass
class Counts:
    """What became of a journal's records up to a position: delivered + skipped + failed is all of them."""

    delivered: int = 0  # records of the rank that is forwarded
    skipped: int = 0  # records of other ranks, or of no interest to a tracker
    failed: int = 0  # records nobody can read: damaged, or gone with a part of the journal
    points: int = 0  # scalars and texts that the tracker got
    refused: int = 0  # values that are no number, or that the tracker never takes
    superseded: int = 0  # scalars and texts of a step that a later attempt had already begun again


class Sink(ABC):
    """One tracker, for one run, in a process of its own."""

    name: ClassVar[str]
    flush_seconds: ClassVar[float] = 1.0

    def __init__(self, run: Run, state: Mapping[str, Any], counts: Counts) -> None:
        """`state` is what `state()` gave at the stored position, or empty; `counts` is to be kept up."""
        self.run = run
        self.counts = counts

    @staticmethod
    @abstractmethod
    def wanted(config: Mapping[str, Any]) -> bool:
        """Whether a run with these resolved parameters uses this tracker."""

    @property
    def settled(self) -> bool:
        """Whether everything written so far went on to the tracker at the last flush."""
        return True

    @property
    def provisional(self) -> bool:
        """Whether a stand-in takes the points, because the tracker is away."""
        return False

    @property
    def remark(self) -> str:
        """One line that an operator should see in `rankside status`."""
        return ""

    @abstractmethod
    def write(self, point: Point) -> None:
        """Take one point. Raises when the tracker takes nothing now."""

    @abstractmethod
    def flush(self) -> None:
        """Make what was written durable. Raises when that fails."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a new sink must know to go on from here; plain values."""

    def finish(self, outcome: Outcome) -> Iterator[None]:
        """What is left to do after the last point. Yields between pieces of work; raises as `flush` does."""
        yield from ()

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""
