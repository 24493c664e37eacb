"""What a call costs the training process: rankside's beside what people use, and beside a bare packb.

Every candidate sits in a process of its own; one block of calls of each makes a round, so that what else the
machine does meets all of them. Ratios are formed within a round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from figures import Section, Value, median, percentile, spread
from samples import sizes
from setups import OURS, SETUPS
from workplace import HERE, Agent, Process, Workplace, hear, say

STATES = ("up", "absent", "frozen")
_SETTLE = 0.06  # seconds after a block for a living agent: its rank sends after 50 ms
_STEP_LINES, _STEP_PAUSE, _STEP_SCALARS = 10, 0.002, 100
_REFERENCE_STEP = 100_000.0  # microseconds: the step of design, 10 a second


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    calls: int  # of a cheap candidate in one round
    slices: int  # of the loop with pauses
    steps: int  # in one slice


@dataclass
class Candidate:
    """One row: which worker makes which call, and what a packb of the same record is called."""

    title: str
    worker: str
    call: str
    packed: str
    dear: int = 1  # so many times fewer calls in a round
    took: list[list[int]] = field(default_factory=list)  # nanoseconds, a list for each round

    def medians(self) -> list[float]:
        """Microseconds, one for each round."""
        return [median(each) / 1000 for each in self.took]


def candidates() -> list[Candidate]:
    """All rows, in the order of the table."""
    ours = [("metrics() of 4 scalars", "metrics", "metrics"), ("stdlib log call", "log", "log")]
    ours.append(("loguru call", "loguru", "log"))
    return [
        Candidate("msgpack.packb of the log record", "pack", "log", "log"),
        Candidate("msgpack.packb of the metrics record", "pack", "metrics", "metrics"),
        *(
            Candidate(f"rankside: {title}, agent {state}", state, call, packed)
            for title, call, packed in ours
            for state in STATES
        ),
        Candidate("stdlib logging, NullHandler", "nulls", "log", "log"),
        Candidate("loguru, null sink, nothing formatted", "loguru bare", "log", "log"),
        Candidate("loguru, null sink, default format", "loguru null", "log", "log", 2),
        Candidate("loguru, four rotated files as Primus", "loguru four", "log", "log", 8),
        Candidate("stdlib FileHandler", "file handler", "log", "log", 2),
        Candidate("stdlib QueueHandler and QueueListener", "queue handler", "log", "log", 2),
        Candidate("structlog, JSON into a file", "structlog", "log", "log", 2),
        Candidate("torch SummaryWriter.add_scalar x4", "summary writer", "metrics", "metrics", 8),
        Candidate("W&B run.log, offline", "wandb offline", "metrics", "metrics", 8),
        Candidate("mlflow.log_metrics to a local server", "mlflow local", "metrics", "metrics", 80),
    ]


class Callers:
    """The worker processes and their agents."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self.agents = {state: place.agent(f"caller-{state}") for state in ("up", "frozen")}
        self._workers: dict[str, Process] = {}
        for name in SETUPS:
            if name != OURS:
                self._start(name, name, {})
        for state in STATES:
            self._start(state, OURS, self._environment(state))
        self.missing: dict[str, str] = {}
        for name, worker in self._workers.items():
            answer = json.loads(hear(worker))
            if not answer["ready"]:
                self.missing[name] = answer["why"]
        self.agents["frozen"].freeze()

    def _environment(self, state: str) -> dict[str, str]:
        agent = self.agents.get(state)
        if agent is not None:
            return agent.environment
        nobody = f"ipc://{self._place.disk}/nobody.sock"
        spool = str(self._place.memory / "nobody-spool")
        return {"RANKSIDE_ENDPOINT": nobody, "RANKSIDE_SPOOL_DIR": spool, "BENCH_NO_AGENT": "1"}

    def _start(self, name: str, setup: str, environment: dict[str, str]) -> None:
        script = str(HERE / "worker.py")
        folder = self._place.disk / "callers" / name.replace(" ", "-")
        self._workers[name] = self._place.start(script, setup, str(folder), environment=environment)

    def ask(self, worker: str, **asked: Any) -> dict[str, Any]:
        """One block. Raises RuntimeError where records were dropped: no figure of records kept."""
        say(self._workers[worker], json.dumps(asked))
        answer: dict[str, Any] = json.loads(hear(self._workers[worker]))
        if answer["dropped"]:
            raise RuntimeError(f"{worker}: {answer['dropped']} records dropped; measure fewer calls")
        if worker == "up":
            time.sleep(_SETTLE)
        return answer

    def end(self) -> None:
        """The agents first thawed, the workers gone before them."""
        self.agents["frozen"].thaw()
        self._place.end(*self._workers.values())
        self._place.end(*(agent.process for agent in self.agents.values()))


def measure(place: Workplace, size: Size) -> Iterator[Section | Agent]:
    """The sections, and in between the living agent of a rank, for whoever wants to ask it something."""
    callers = Callers(place)
    found = [each for each in candidates() if each.worker not in callers.missing]
    for number in range(size.rounds):
        for each in found if number % 2 == 0 else reversed(found):
            answer = callers.ask(each.worker, call=each.call, count=size.calls // each.dear)
            each.took.append(answer["took"])
    yield _costs(found, callers.missing, size)
    yield _derived(found)
    yield _loop(callers, size)
    yield callers.agents["up"]
    callers.end()


def _costs(found: list[Candidate], missing: dict[str, str], size: Size) -> Section:
    notes = [
        f"calls back to back in small blocks, one of each candidate in each of {size.rounds} rounds",
        f"{sizes()}; rounds: without the outermost tenth on each side",
        "median: of the rounds' medians; x packb: of the rounds' ratios; p99, p99.9: of all single calls",
        "agent up: records reach its files meanwhile; absent: nobody listens; frozen: SIGSTOP; none dropped",
        *(f"{name}: left out, {why}" for name, why in missing.items()),
    ]
    columns = ("call", "median us", "x packb", "rounds us", "p99 us", "p99.9 us", "max us", "calls")
    section = Section("cost for the caller", notes, columns)
    packed = {each.call: each for each in found if each.worker == "pack"}
    for each in found:
        every = sorted(chain.from_iterable(each.took))
        bare = packed[each.packed].medians()
        ratios = [mine / theirs for mine, theirs in zip(each.medians(), bare, strict=True)]
        section.rows.append(
            {
                "call": each.title,
                "median us": median(each.medians()),
                "x packb": median(ratios),
                "rounds us": spread(each.medians()),
                "p99 us": percentile(every, 99) / 1000,
                "p99.9 us": percentile(every, 99.9) / 1000,
                "max us": every[-1] / 1000,
                "calls": str(len(every)),
            }
        )
    return section


def _derived(found: list[Candidate]) -> Section:
    """The figure of the design: what a call costs on top of the front end, in packbs."""
    notes = ["(call - front end with a null sink) / packb of the same record; the design wants 3 at most"]
    section = Section("cost of rankside alone", notes, ("call", "x packb", "rounds"))
    by = {(each.worker, each.call): each.medians() for each in found}
    rows = (
        ("metrics()", "metrics", None),
        ("stdlib log call", "log", "nulls"),
        ("loguru call", "loguru", "loguru bare"),
    )
    for title, call, front in rows:
        for state in STATES:
            ours = by[state, call]
            fronts = by[front, "log"] if front else [0.0] * len(ours)
            packs = by["pack", "metrics" if call == "metrics" else "log"]
            ratios = [(mine - base) / bare for mine, base, bare in zip(ours, fronts, packs, strict=True)]
            section.rows.append(
                {"call": f"{title}, agent {state}", "x packb": median(ratios), "rounds": spread(ratios)}
            )
    return section


def _loop(callers: Callers, size: Size) -> Section:
    """Calls of a loop that sleeps between its steps, so that the transport's thread works in between."""
    notes = [
        f"{_STEP_LINES} stdlib log calls and metrics() of {_STEP_SCALARS} scalars, then"
        f" {_STEP_PAUSE * 1000:g} ms of sleep: some 5,000 records a second, caches cold, our thread at work",
        "log calls timed singly; the whole step set against one of 100 ms, where the design wants 0.5 %",
    ]
    single = ("log calls", "median us", "p99 us", "p99.9 us", "max us", "calls")
    columns = (*single, "step us", "step p99 us", "% of 100 ms")
    section = Section("in a step loop", notes, columns)
    titles = {"nulls": "stdlib logging, NullHandler (no metrics)"}
    titles.update({state: f"rankside, agent {state}" for state in STATES})
    took: dict[str, list[int]] = {name: [] for name in titles}
    whole: dict[str, list[int]] = {name: [] for name in titles}
    for _ in range(size.slices):
        for name in titles:
            answer = callers.ask(name, steps=size.steps, lines=_STEP_LINES, pause=_STEP_PAUSE)
            took[name] += answer["took"]
            whole[name] += answer["whole"]
    for name, title in titles.items():
        section.rows.append(_loop_row(title, sorted(took[name]), sorted(whole[name])))
    return section


def _loop_row(title: str, calls: list[int], steps: list[int]) -> dict[str, Value]:
    return {
        "log calls": title,
        "median us": percentile(calls, 50) / 1000,
        "p99 us": percentile(calls, 99) / 1000,
        "p99.9 us": percentile(calls, 99.9) / 1000,
        "max us": calls[-1] / 1000,
        "calls": str(len(calls)),
        "step us": percentile(steps, 50) / 1000,
        "step p99 us": percentile(steps, 99) / 1000,
        "% of 100 ms": percentile(steps, 50) / 1000 / _REFERENCE_STEP * 100,
    }
