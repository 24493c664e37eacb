"""Journal entries made into points, in the same names for every tracker, each record counted once.

Separate from the trackers because what a record means to them is one decision; which rank's metrics count is
another, in speaker.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from rankside import record, wire
from rankside.wire import Kind
from rankside_agent.journal import Entry, EntryType
from rankside_agent.sinks.points import End, Notice, Params, Point, Scalars, Source, finite, source_of
from rankside_agent.sinks.speaker import Speaker

if TYPE_CHECKING:
    from rankside_agent.sinks.base import Counts

_LATEST = 1e11  # seconds, about the year 5138; a time beyond it is noise


class Translator:
    """Turns entries into points, and counts every record.

    `wanted` is the sink's: an attempt whose parameters do not ask for the tracker does not get it.
    `speaker` is what `state()` gave, or empty. `elsewhere`: see speaker.py.
    """

    def __init__(
        self,
        counts: Counts,
        wanted: Callable[[Mapping[str, Any]], bool],
        speaker: Mapping[str, Any],
        elsewhere: Callable[[Source], bool] = lambda _source: False,
    ) -> None:
        self._counts = counts
        self._wanted = wanted
        self._speaker = Speaker(counts, speaker, elsewhere)
        self._sources: dict[int, tuple[dict[str, Any], Source | None]] = {}
        self._asides: dict[str, Source] = {}

    @property
    def settled(self) -> bool:
        """Whether no point waits to be given."""
        return self._speaker.settled

    def state(self) -> dict[str, Any]:
        """Who speaks, while settled."""
        return self._speaker.state()

    def of(self, entry: Entry) -> Iterator[Point]:
        """The points of one entry."""
        if entry.type == EntryType.BATCH:
            yield from self._batch(entry)
        elif entry.type == EntryType.FIGURES:
            yield from self._figures(entry)
        elif entry.type == EntryType.SILENT:
            source = self._source(entry)
            if source is not None and source.last:
                yield from self._speaker.silent(source)
        elif entry.type == EntryType.END:
            source = self._source(entry)
            self._sources.pop(entry.channel, None)  # seldom comes back, and is then found again
            if source is not None:
                yield from self._end(source, entry)

    def _end(self, source: Source, entry: Entry) -> Iterator[Point]:
        if source.last:
            ended = entry.value()
            yield from self._speaker.ended(source)
            yield End(source, _time(ended.get("time"), source), str(ended.get("status", "")))
        else:
            yield from self._speaker.left(source)

    def _figures(self, entry: Entry) -> Iterator[Point]:
        """The agent's own, which belong to no record: they are points, and not counted among those."""
        source, value = self._source(entry), entry.value()
        if source is not None and source.last and value["values"]:
            time, step = _time(value["time"], source), _step(value["step"])[0]
            yield Scalars(source, time, step, dict(value["values"]))

    def _batch(self, entry: Entry) -> Iterator[Point]:
        source = self._source(entry)
        if source is None:
            self._counts.skipped += entry.records()
            return
        for _, kind, packed in entry.frames():
            yield from self._record(source, kind, packed)

    def _record(self, source: Source, kind: int, packed: bytes) -> Iterator[Point]:
        make = _MAKERS.get(kind)
        if make is None or (not source.last and kind not in _OF_ANY_RANK):
            self._counts.skipped += 1
            return
        try:
            point, refused = make(source, *wire.unpack(packed))
        except (ValueError, TypeError, AttributeError):
            self._counts.failed += 1
            return
        if point is None:  # at the step before it would be taken for that one's
            self._counts.skipped += 1
            self._counts.refused += refused if source.last else 0
            return
        if source.last:
            self._counts.refused += refused
        if kind == Kind.METRICS:
            yield from self._metrics(point)
        elif source.last:
            yield from self._one(point)
        elif source.everyone:
            yield from self._one(self._aside(point))
        else:
            self._counts.skipped += 1

    def _metrics(self, point: Scalars) -> Iterator[Point]:
        if point.source.everyone and not point.source.last:
            yield from self._one(self._aside(point))
        yield from self._speaker.hear(point)

    def _one(self, point: Point) -> Iterator[Point]:
        yield point
        self._counts.delivered += 1  # now that the sink has taken it

    def _aside(self, point: Scalars) -> Scalars:
        """Metrics of a rank that does not speak for the run, under its own name."""
        source = self._asides.get(point.source.channel)
        if source is None or source.module != point.source.module:
            source = self._asides[point.source.channel] = replace(point.source, aside=True)
        mine = {f"rank-{source.label}/{name}": value for name, value in point.values.items()}
        return point._replace(source=source, values=mine)

    def _source(self, entry: Entry) -> Source | None:
        info, source = self._sources.get(entry.channel, ({}, None))
        if info is not entry.info:
            source = source_of(entry.info)
            if source is not None and not self._wanted(source.config):
                source = None
            self._sources[entry.channel] = entry.info, source
        return source


_Made: TypeAlias = tuple[Any, int]  # a point, and how many values were left out of it


def _metrics(source: Source, time: Any, step: Any, values: Any) -> tuple[Scalars | None, int]:
    good, refused = record.numbers(values)
    plain, odd = _step(step)
    if odd:
        return None, len(good) + len(refused)
    return Scalars(source, _time(time, source), plain, good), len(refused)


def _throughput(source: Source, time: Any, step: Any, values: Any) -> _Made:
    drawn = {name: value for name, value in values.items() if name not in _NOT_DRAWN}
    point, refused = _metrics(source, time, step, drawn)
    if point is None:
        return None, refused
    named = {_THROUGHPUT_NAMES.get(name, f"throughput/{name}"): value for name, value in point.values.items()}
    return point._replace(values=named), refused


# What the agent makes figures of its own of (training/samples.py), and what is the same in every step
_NOT_DRAWN = frozenset(
    (
        *("tflops", "global_batch_size", "seq_length", "train_iters", "consumed_samples", "device", "timers"),
        *("hip_free", "hip_total", "cuda_free", "cuda_total", "skipped_iterations", "nan_iterations"),
    )
)
_THROUGHPUT_NAMES = {"elapsed_s": "iteration-time"}  # Megatron's name for it


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

_OF_ANY_RANK = frozenset((Kind.METRICS, Kind.THROUGHPUT))


def _step(value: Any) -> tuple[int | None, int]:
    """A step that fits trackers' 64 bits, and 1 if it is none."""
    if value is None:
        return None, 0
    number = finite(value)
    if number is None or number != int(number) or not -(2**63) <= value < 2**63:
        return None, 1
    return int(value), 0


def _time(value: Any, source: Source) -> float:
    """Wall time of the record, or of its channel's start where that is no time."""
    number = finite(value)
    return number if number is not None and 0 <= number < _LATEST else source.started
