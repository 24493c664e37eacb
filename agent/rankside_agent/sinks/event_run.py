"""One line of steps out of several attempts: what TensorBoard shows as one run.

Separate from the files: here it is decided at which step each thing stands, and what a new attempt replaces.
A training that is started again goes on from its last checkpoint, at a step N that it had passed before. It
gets a new file, and in front of its first explicit step a START at N: readers drop what they have seen from
N on. What comes without a step before that is held back, so that the START does not drop it as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankside.identity import safe_name
from rankside_agent.sinks import event_protos
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.event_folder import EventFolder
from rankside_agent.sinks.points import End, Notice, Params, Point, Scalars, Source
from rankside_agent.sinks.standard_scalars import gate
from rankside_agent.sinks.starts import Starts

log = logging.getLogger(__name__)

MOST_HELD = 1000  # points, and
MOST_HELD_BYTES = 8 << 20  # their rough size; a training beyond that runs without steps


class EventRun:
    """Takes points for one folder. `state` is what `state()` gave at the checkpoint, or empty."""

    def __init__(self, folder: Path, run_id: str, state: Mapping[str, Any], counts: Counts) -> None:
        self._events = EventFolder(folder, run_id, state)
        self._counts = counts
        self._attempt = int(state.get("attempt", 0))
        self._step = int(state.get("step", 0))  # the last explicit one
        self._open = bool(state.get("open", False))  # whether the newest attempt's START is still to come
        self._starts = Starts(state.get("starts", ()))
        self._held: list[Point] = []
        self._held_bytes = 0
        self._source: Source | None = None
        self._interval = 1
        self._passes = gate({})

    @property
    def settled(self) -> bool:
        """Whether nothing is held back."""
        return not self._held

    def take(self, point: Point) -> None:
        """Put a point where it belongs. Raises OSError."""
        if point.source is not self._source:
            self._change(point.source)
        if point.source.attempt < self._attempt:
            self._late(point)
        elif isinstance(point, End):
            self._release()
        elif (step := _step(point)) is not None and not point.source.aside:
            if self._open:
                self._start(step, point.time)
            self._step = step
            self._put(point, step)
        elif self._open:
            self._hold(point)  # another rank may be steps ahead: only the speaking one says where it begins
        else:
            self._stand(point)

    def flush(self) -> None:
        """Bring all to the disk. Raises OSError."""
        self._events.flush()

    def state(self) -> dict[str, Any]:
        """As of the last flush, which must have followed the last point."""
        mine = {
            "attempt": self._attempt,
            "step": self._step,
            "open": self._open,
            "starts": self._starts.plain(),
        }
        return {**self._events.state(), **mine}

    def close(self) -> None:
        """Let go of the file."""
        self._events.close()

    def _change(self, source: Source) -> None:
        self._source = source
        self._passes = gate(source.config)
        self._interval = _count(source.config, "tensorboard_log_interval", 1)
        self._events.queue = _count(source.config, "tensorboard_queue_size", 1000)
        if source.attempt <= self._attempt:
            return
        self._release()
        self._events.name_parts = f".rank-{safe_name(source.label)[:64]}.attempt-{source.attempt}"
        self._events.begin_file()
        self._open = source.attempt > 1
        self._attempt = source.attempt

    def _start(self, step: int, time: float) -> None:
        self._events.put(event_protos.start(step, time))
        self._open = False
        self._step = step
        self._starts.add(self._attempt, step)
        self._release()

    def _hold(self, point: Point) -> None:
        self._held.append(point)
        self._held_bytes += len(repr(point))
        if len(self._held) >= MOST_HELD or self._held_bytes >= MOST_HELD_BYTES:
            self._open = False
            self._release()

    def _release(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        for point in held:
            self._stand(point)

    def _late(self, point: Point) -> None:
        """Of an attempt that a newer one has replaced: shown up to the newer one's START."""
        step = self._starts.late(point.source.attempt, _step(point), self._step)
        if step is None:
            self._counts.superseded += _size(point)
        else:
            self._put(point, step)

    def _stand(self, point: Point) -> None:
        step = _step(point)
        self._put(point, self._step if step is None else step)

    def _put(self, point: Point, step: int) -> None:
        if isinstance(point, Scalars) and point.step is not None and point.step % self._interval:
            return
        if isinstance(point, Scalars):
            point = self._gated(point)
        if not _size(point):
            return
        try:
            event = _event(point, step)
        except (ValueError, TypeError, RecursionError) as error:  # would be tried for ever
            log.warning("a point of step %d cannot be shown: %s", step, error)
            self._counts.refused += _size(point)
            return
        self._events.put(event)
        self._counts.points += _size(point)

    def _gated(self, point: Scalars) -> Scalars:
        kept = {name: value for name, value in point.values.items() if self._passes(name)}
        return point if len(kept) == len(point.values) else point._replace(values=kept)


def _step(point: Point) -> int | None:
    return point.step if isinstance(point, Scalars) else None


def _event(point: Point, step: int) -> bytes:
    if isinstance(point, Scalars):
        return event_protos.scalars(point.values, step, point.time)
    if isinstance(point, Params):
        return event_protos.table("params", point.values, step, point.time)
    assert isinstance(point, Notice)
    return event_protos.table(f"events/{point.name}", point.fields, step, point.time)


def _size(point: Point) -> int:
    return len(point.values) if isinstance(point, Scalars) else int(not isinstance(point, End))


def _count(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    return value if isinstance(value, int) and value > 0 else default
