"""What every tracker is given: typed points, each with the channel it came from.

Separate from how they are made of journal entries, because trackers know only these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from rankside.identity import is_last

_BESIDE = re.compile(r"logs/(attempt-\d+)")


@dataclass(frozen=True)
class Source:
    """The channel that a point came from, in one attempt of the run."""

    channel: str
    attempt: int
    label: str
    log_root: str  # "logs", or "logs/attempt-2" for an attempt beside a living one
    started: float
    config: Mapping[str, Any] = field(repr=False)
    rank: int = 0
    world_size: int = 1
    exp_name: str = ""
    team: str = ""
    user: str = ""
    module: str = ""
    host: str = ""
    launch: Mapping[str, Any] = field(default_factory=dict, repr=False)  # argv, cwd, environ without secrets
    aside: bool = False  # of a rank that does not speak for the run; its names begin with `rank-{r}/`

    @property
    def last(self) -> bool:
        """Whether it is the last rank, which speaks for the run."""
        return is_last(self.rank, self.world_size)

    @property
    def beside(self) -> str:
        """ "attempt-2" of an attempt beside a living one, which is a tracker's run of its own; else empty."""
        found = _BESIDE.fullmatch(self.log_root)
        return found[1] if found else ""

    @property
    def everyone(self) -> bool:
        """Whether other ranks' metrics are wanted too, under names of their own."""
        return self.config.get("metrics.save_for_all_ranks") is True


class Scalars(NamedTuple):
    """Numbers of one moment. Without a step they belong to the last one that was named."""

    source: Source
    time: float
    step: int | None
    values: dict[str, float]


class Params(NamedTuple):
    """Parameters of the training."""

    source: Source
    time: float
    values: dict[str, Any]


class Notice(NamedTuple):
    """Something that happened, with its details."""

    source: Source
    time: float
    name: str
    fields: dict[str, Any]


class End(NamedTuple):
    """The channel is at its end."""

    source: Source
    time: float
    status: str


Point: TypeAlias = Scalars | Params | Notice | End


def source_of(info: Mapping[str, Any]) -> Source | None:
    """Of a channel's OPEN; None for a launcher and for forked children.

    A process that does not know its rank is a run of one: nobody else can speak for it.
    """
    rank, world_size = info.get("rank"), info.get("world_size")
    if info.get("role") != "worker" or info.get("parent") is not None:
        return None
    known = isinstance(rank, int) and isinstance(world_size, int)
    config, started, launch = info.get("config"), info.get("started"), info.get("launch")
    return Source(
        channel=str(info.get("channel", "")),
        attempt=int(info.get("attempt", 1)),
        label=str(info.get("label", rank)),
        log_root=str(info.get("log_root", "logs")),
        started=finite(started) or 0.0,
        config=config if isinstance(config, dict) else {},
        rank=rank if known and isinstance(rank, int) else 0,
        world_size=world_size if known and isinstance(world_size, int) else 1,
        launch=launch if isinstance(launch, dict) else {},
        exp_name=str(info.get("exp_name", "")),
        team=str(info.get("team", "")),
        user=str(info.get("user", "")),
        module=str(info.get("module", "")),
        host=str(info.get("host", "")),
    )


def finite(value: Any) -> float | None:
    """The number, or None where it is none."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
