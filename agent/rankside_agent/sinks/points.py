"""Journal entries as typed points: what every tracker is given, in the same names.

Separate from the trackers because which rank speaks for the run, and what a record means, is one decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rankside import record, wire
from rankside.wire import Kind
from rankside_agent.journal import Entry, EntryType

if TYPE_CHECKING:
    from rankside_agent.sinks.base import Counts

_LATEST = 1e11  # seconds, about the year 5138; a time beyond it is noise


@dataclass(frozen=True)
class Source:
    """The channel that a point came from: the last rank's, in one attempt of the run."""

    channel: str
    attempt: int
    label: str
    log_root: str
    started: float
    config: Mapping[str, Any] = field(repr=False)


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


class Points:
    """Turns entries into points, and counts every record.

    `wanted` is the sink's: an attempt whose parameters do not ask for the tracker does not get it.
    """

    def __init__(self, counts: Counts, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
        self._counts = counts
        self._wanted = wanted
        self._sources: dict[int, tuple[dict[str, Any], Source | None]] = {}

    def of(self, entry: Entry) -> Iterator[Point]:
        """The points of one entry."""
        if entry.type == EntryType.BATCH:
            yield from self._batch(entry)
        elif entry.type == EntryType.END:
            source = self._source(entry)
            self._sources.pop(entry.channel, None)  # seldom comes back, and is then found again
            if source is not None:
                ended = entry.value()
                yield End(source, _time(ended.get("time"), source), str(ended.get("status", "")))

    def _batch(self, entry: Entry) -> Iterator[Point]:
        source = self._source(entry)
        if source is None:
            self._counts.skipped += entry.records()
            return
        for _, kind, packed in entry.frames():
            yield from self._record(source, kind, packed)

    def _record(self, source: Source, kind: int, packed: bytes) -> Iterator[Point]:
        make = _MAKERS.get(kind)
        if make is None:
            self._counts.skipped += 1
            return
        try:
            point, refused = make(source, *wire.unpack(packed))
        except (ValueError, TypeError, AttributeError):
            self._counts.failed += 1
            return
        yield point
        self._counts.delivered += 1  # now that the sink has taken it
        self._counts.refused += refused

    def _source(self, entry: Entry) -> Source | None:
        info, source = self._sources.get(entry.channel, ({}, None))
        if info is not entry.info:
            source = source_of(entry.info)
            if source is not None and not self._wanted(source.config):
                source = None
            self._sources[entry.channel] = entry.info, source
        return source


def source_of(info: Mapping[str, Any]) -> Source | None:
    """Of a channel's OPEN; None unless it is the last rank's own: trackers hear the run from that one."""
    rank, world_size = info.get("rank"), info.get("world_size")
    if info.get("role") != "worker" or info.get("parent") is not None:
        return None
    if not isinstance(rank, int) or rank + 1 != world_size:
        return None
    config, started = info.get("config"), info.get("started")
    return Source(
        channel=str(info.get("channel", "")),
        attempt=int(info.get("attempt", 1)),
        label=str(info.get("label", rank)),
        log_root=str(info.get("log_root", "logs")),
        started=_finite(started) or 0.0,
        config=config if isinstance(config, dict) else {},
    )


_Made: TypeAlias = tuple[Point, int]  # a point, and how many values were left out of it


def _metrics(source: Source, time: Any, step: Any, values: Any) -> _Made:
    good, refused = record.numbers(values)
    plain, odd = _step(step)
    return Scalars(source, _time(time, source), plain, good), len(refused) + odd


def _throughput(source: Source, time: Any, step: Any, values: Any) -> _Made:
    point, refused = _metrics(source, time, step, values)
    assert isinstance(point, Scalars)
    named = {_THROUGHPUT_NAMES.get(name, f"throughput/{name}"): value for name, value in point.values.items()}
    named.pop("", None)
    return point._replace(values=named), refused


# Sizes are the same in every step: there is nothing to draw. The time has the name that Megatron gives it
_THROUGHPUT_NAMES = {"elapsed_s": "iteration-time", "global_batch_size": "", "seq_length": ""}


def _params(source: Source, time: Any, values: Any) -> _Made:
    return Params(source, _time(time, source), {str(name): value for name, value in values.items()}), 0


def _event(source: Source, time: Any, name: Any, fields: Any) -> _Made:
    plain = {str(key): value for key, value in fields.items()}
    return Notice(source, _time(time, source), str(name), plain), 0


def _artifact(source: Source, time: Any, path: Any) -> _Made:
    return Notice(source, _time(time, source), "artifact", {"path": str(path)}), 0


_MAKERS: dict[int, Callable[..., _Made]] = {
    Kind.METRICS: _metrics,
    Kind.THROUGHPUT: _throughput,
    Kind.PARAMS: _params,
    Kind.EVENT: _event,
    Kind.ARTIFACT: _artifact,
}


def _step(value: Any) -> tuple[int | None, int]:
    """A step that fits trackers' 64 bits, and 1 if it had to be left out."""
    if value is None:
        return None, 0
    number = _finite(value)
    if number is None or number != int(number) or not -(2**63) <= value < 2**63:
        return None, 1
    return int(value), 0


def _time(value: Any, source: Source) -> float:
    """Wall time of the record, or of its channel's start where that is no time."""
    number = _finite(value)
    return number if number is not None and 0 <= number < _LATEST else source.started


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
