"""What happens in a chaos run, all of it drawn from the seed: the run's settings, its starts, and the deeds.

Separate from doing it, so that a plan can be printed and played again. Instants are seconds from the first
start; processes are free in between, so a seed comes back as the same plan and nearly the same run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

RANKS = 8
NEVER = 1000.0  # seconds: the first agent comes when all starts are over


class Deed(NamedTuple):
    """Something that is done at an instant; `what` is a name of deeds.DEEDS."""

    at: float
    what: str
    how: dict[str, Any]

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.how.items())
        return f"{self.at:6.2f} s  {self.what} {told}"


@dataclass(frozen=True)
class Start:
    """One start of the training: its world, and what each rank is told."""

    number: int
    world: int
    gap: float  # seconds after the last rank of the start before; negative: while that one still lives
    ranks: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Plan:
    """All of one seed."""

    seed: int
    agent: dict[str, Any]  # its settings
    trackers: tuple[str, ...]
    late: float  # seconds that the first agent comes after the first ranks; negative: before them
    starts: tuple[Start, ...]
    deeds: tuple[Deed, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"seed {self.seed}: agent {self.agent}, late {self.late:.2f}, {' '.join(self.trackers)}"
        for start in self.starts:
            shared = {k: start.ranks[0][k] for k in ("turns", "pause", "spool_bytes", "flood", "longest")}
            yield f"  start {start.number}: {start.world} ranks, {shared}"
        for deed in self.deeds:
            yield f"  {deed}"


def plan(seed: int, trackers: str = "") -> Plan:
    """The plan of a seed; `trackers` (as in "tensorboard,mlflow") instead of those that it draws."""
    chance = random.Random(seed)
    drawn = _trackers(chance)
    chosen = tuple(trackers.split(",")) if trackers else drawn
    agent = {
        "rotation_bytes": chance.choice((6_000, 20_000, 100_000, 10_000_000)),
        "gzip_rotated": chance.random() < 0.5,
        "segment_bytes": chance.choice((65_536, 200_000, 16 << 20)),
        "finish_after_seconds": chance.choice((0.2, 2.0)),
        "stop_grace_seconds": chance.choice((0.5, 3.0)),
        "system_seconds": 0.0,
        "gpu_sources": [],
    }
    late = chance.choice((-1.0, -1.0, -1.0, -1.0, -1.0, 0.3, 2.5, 6.0, NEVER))
    starts = tuple(_starts(chance, seed))
    deeds = tuple(sorted(_deeds(chance, starts, chosen), key=lambda each: each.at))
    return Plan(seed, agent, chosen, late, starts, deeds)


def _trackers(chance: random.Random) -> tuple[str, ...]:
    """TensorBoard always; the others are slow to start."""
    more = chance.choice(((),) * 7 + (("mlflow",), ("wandb",), ("mlflow-server",)))
    return ("tensorboard", *more)


def _starts(chance: random.Random, seed: int) -> Iterator[Start]:
    first_step = 1
    for number in range(1, chance.choice((1, 2, 2, 3)) + 1):
        world = RANKS if number == 1 else chance.randint(1, RANKS)
        turns = chance.randint(60, 200)
        spool = chance.choice((64 << 20, 4 << 20, 1 << 20))
        shared = {
            "seed": seed,
            "start": number,
            "world": world,
            "first_step": first_step,
            "turns": turns,
            "pause": chance.choice((0.01, 0.03, 0.06)),
            "longest": chance.choice((300, 3_000, 20_000)),
            "spool_bytes": spool,
            "flood": chance.choice((0, 0, 300, 1500)),
            "flush_seconds": chance.choice((0.0, 2.0, 2.0)),
        }
        gap = chance.choice((0.0, 0.05, 0.5, 1.0, 3.0, -1.0))
        yield Start(number, world, gap, tuple(_rank(chance, shared, rank) for rank in range(world)))
        first_step += chance.randint(0, turns // 5)


def _rank(chance: random.Random, shared: dict[str, Any], rank: int) -> dict[str, Any]:
    turns = shared["turns"]
    return {
        **shared,
        "rank": rank,
        "threads": chance.choice((["m"], ["m"], ["m", "t"])),
        "flood_at": chance.randrange(turns),
        "module_at": chance.choice((-1, -1, chance.randrange(turns))),
        "fork_at": chance.choice(([], [], [chance.randrange(turns)])),
        "ending": chance.choice(("return", "return", "close", "_exit", "raise")),
    }


def _deeds(chance: random.Random, starts: tuple[Start, ...], trackers: tuple[str, ...]) -> Iterator[Deed]:
    """Of each kind some, over the time that the starts take; ranks of a later start are reached by it too."""
    makers = [make for make, needs in MAKERS if not needs or needs in trackers]
    span = 1.0 + sum(1.5 + each.ranks[0]["turns"] * each.ranks[0]["pause"] * 0.6 for each in starts)
    for _ in range(chance.randint(5, 20)):
        what, how = chance.choice(makers)(chance)
        yield Deed(round(chance.uniform(0.2, span), 2), what, how)


_Made = tuple[str, dict[str, Any]]


def _pause(chance: random.Random) -> float:
    return round(chance.choice((0.05, 0.5, 2.0, 4.0)) * (0.5 + chance.random()), 2)


def _file(chance: random.Random) -> dict[str, Any]:
    return {
        "rank": chance.randrange(RANKS),
        "name": chance.choice(("debug", "info", "warning", "error", "node")),
    }


# What the agent does on its disks, to be killed in the middle of: names of deeds.TRACES
EVENTS = (
    *("rotated", "compressing", "compressed", "written", "written", "checkpoint"),
    *("segment", "segment", "attempt", "retired"),
)

MAKERS: tuple[tuple[Any, str], ...] = (
    (lambda c: ("agent_kill", {"seconds": _pause(c)}), ""),
    (lambda c: ("agent_kill", {"seconds": 0.0}), ""),
    (lambda c: ("agent_kill_at", {"event": c.choice(EVENTS), "after": c.choice((0.0, 0.0, 1e-4, 1e-3))}), ""),
    (lambda c: ("agent_kill_at", {"event": c.choice(EVENTS), "after": c.choice((0.0, 0.0, 1e-4, 1e-3))}), ""),
    (lambda c: ("agent_term", {"seconds": _pause(c)}), ""),
    (lambda c: ("agent_stop", {"seconds": _pause(c)}), ""),
    (lambda c: ("rank_kill", {"rank": c.randrange(RANKS)}), ""),
    (lambda c: ("rank_kill", {"rank": c.randrange(RANKS)}), ""),
    (lambda c: ("rank_stop", {"rank": c.randrange(RANKS), "seconds": _pause(c)}), ""),
    (lambda c: ("both_kill", {"rank": c.randrange(RANKS), "seconds": _pause(c)}), ""),
    (lambda c: ("job_kill", {}), ""),
    (lambda c: ("sink_kill", {"which": c.random()}), ""),
    (lambda c: ("sink_stop", {"which": c.random(), "seconds": _pause(c)}), ""),
    (lambda c: ("disk_full", {"disk": "exp", "left": c.randrange(20_000), "seconds": _pause(c)}), ""),
    (lambda c: ("disk_full", {"disk": "state", "left": c.randrange(20_000), "seconds": _pause(c)}), ""),
    (lambda c: ("size_limit", {"more": c.randrange(3_000), "seconds": _pause(c)}), ""),
    (lambda c: ("file_delete", _file(c)), ""),
    (lambda c: ("file_replace", _file(c)), ""),
    (lambda c: ("file_truncate", _file(c)), ""),
    (lambda c: ("file_rename", _file(c)), ""),
    (lambda c: ("clock_jump", {"seconds": c.choice((-3600.0, -5.0, 5.0, 3600.0, 3.15e8, 0.0))}), ""),
    (lambda c: ("tracker_down", {"seconds": _pause(c)}), "mlflow-server"),
    (
        lambda c: (
            "tracker_trouble",
            {"how": c.choice((500, 503, 429, "hang", "drop")), "seconds": _pause(c)},
        ),
        "mlflow-server",
    ),
)
