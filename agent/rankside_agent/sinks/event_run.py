"""One line of steps out of several attempts: what TensorBoard shows as one run.

Separate from the files: here it is decided at which step each thing stands, and what a new attempt replaces.
A training that is started again goes on from its last checkpoint, at a step N that it had passed before. It
gets a new file, and in it a START at N: readers drop what they have seen from N on, of all tags. So it stands
where a tag is truly given again that an earlier attempt had further than that, never where one is merely
named at a low step, and never behind points of the new attempt that it would take along. What comes before
that is decided is held back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rankside.identity import safe_name
from rankside_agent.sinks import event_protos
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.event_folder import EventFolder
from rankside_agent.sinks.event_tags import Tags
from rankside_agent.sinks.points import End, Notice, Params, Point, Scalars, Source
from rankside_agent.sinks.standard_scalars import gate
from rankside_agent.sinks.starts import Starts

log = logging.getLogger(__name__)

MOST_HELD = 1000  # points, and
MOST_HELD_BYTES = 8 << 20  # their rough size; a training beyond that runs without steps
MOST_STEPS = 10  # of a new attempt, that may wait for one which tells where it goes on


class EventRun:
    """Takes points for one folder. `state` is what `state()` gave at the checkpoint, or empty."""

    def __init__(self, folder: Path, run_id: str, state: Mapping[str, Any], counts: Counts) -> None:
        self._events = EventFolder(folder, run_id, state)
        self._counts = counts
        self._attempt = int(state.get("attempt", 0))
        self._step = int(state.get("step", 0))  # the last explicit one
        self._open = bool(state.get("open", False))  # whether the newest attempt's START may still come
        self._undecided = bool(state.get("undecided", self._open))  # and its points wait for it
        self._own = int(state.get("own", -1))  # its last step that is shown
        self._tags = Tags(state.get("tags") if state else {})
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
        elif (step := _step(point)) is None or point.source.aside:
            # another rank may be steps ahead: only the speaking one says where it begins
            (self._hold if self._undecided else self._place)(point)
        elif self._open and self._goes_back(point, step):
            self._start(step, point.time)
            self._place(point)
        elif self._undecided:
            self._hold(point)
            self._decide(step)
        else:
            self._place(point)

    def flush(self) -> None:
        """Bring all to the disk. Raises OSError."""
        self._events.flush()

    def state(self) -> dict[str, Any]:
        """As of the last flush, which must have followed the last point."""
        mine = {
            "attempt": self._attempt,
            "step": self._step,
            "open": self._open,
            "undecided": self._undecided,
            "own": self._own,
            "tags": self._tags.plain(),
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
        if source.attempt > 1 and not self._attempt:
            self._tags = Tags(None)  # earlier attempts were another agent's: what they have is not known here
        self._events.name_parts = f".rank-{safe_name(source.label)[:64]}.attempt-{source.attempt}"
        self._events.begin_file()
        self._open = self._undecided = source.attempt > 1
        self._own = -1
        self._attempt = source.attempt

    def _goes_back(self, point: Point, step: int) -> bool:
        """Whether an earlier attempt had any of it further, and a START would hide nothing of this one."""
        if not self._tags.complete:
            return self._undecided  # as far as is known, the first step
        values = point.values if isinstance(point, Scalars) else ()
        return self._own < step and self._tags.beyond(values, self._attempt, step)

    def _decide(self, step: int) -> None:
        """Go on without a START where nothing can be gone back over any more, or nothing was for long."""
        on = step > self._tags.furthest(self._attempt)
        if on:
            self._starts.add(self._attempt, step)
        if on or len(set(self._held_steps())) >= MOST_STEPS:
            self._release()
            self._undecided = False

    def _start(self, step: int, time: float) -> None:
        self._put_start(step, time)
        self._starts.add(self._attempt, step)
        self._release(step)

    def _put_start(self, step: int, time: float) -> None:
        self._events.put(event_protos.start(step, time))
        self._tags.cut(step)
        self._open = self._undecided = False

    def _hold(self, point: Point) -> None:
        self._held.append(point)
        self._held_bytes += len(repr(point))
        if len(self._held) >= MOST_HELD or self._held_bytes >= MOST_HELD_BYTES:
            self._undecided = False
            self._release()

    def _held_steps(self) -> list[int]:
        """Those that the speaking rank has named."""
        steps = ((_step(point), point.source.aside) for point in self._held)
        return [step for step, aside in steps if step is not None and not aside]

    def _release(self, started: int | None = None) -> None:
        """Show what was held. What has no step before the first one stands there, or where it `started`."""
        steps = self._held_steps()
        if steps and self._repeated(min(steps)):
            self._put_start(min(steps), self._held[0].time)
        self._step = next(iter(steps), self._step if started is None else started)
        held, self._held, self._held_bytes = self._held, [], 0
        for point in held:
            self._place(point)

    def _repeated(self, first: int) -> bool:
        """Whether all that a START at the first step would hide is held, to be shown again at that very step.

        Without it a step that was repeated exactly would show two points.
        """
        hidden = self._tags.at_or_beyond(self._attempt, first)
        if not self._open or not hidden or any(step > first for step in hidden.values()):
            return False
        scalars = [point for point in self._held if isinstance(point, Scalars) and point.step == first]
        return hidden.keys() <= {name for point in scalars for name in point.values}

    def _late(self, point: Point) -> None:
        """Of an attempt that a newer one has replaced: shown up to the newer one's START."""
        step = self._starts.late(point.source.attempt, _step(point), self._step)
        if step is None:
            self._counts.superseded += _size(point)
        else:
            self._put(point, step)

    def _place(self, point: Point) -> None:
        """At its own step, or at the last one that the speaking rank has named."""
        step = _step(point)
        if step is not None and not point.source.aside:
            self._step = step
        self._put(point, self._step if step is None else step)

    def _put(self, point: Point, step: int) -> None:
        if isinstance(point, Scalars) and point.step is not None and point.step % self._interval:
            return
        size = _size(point)
        if isinstance(point, Scalars):
            gated = self._gated(point)
            size, point = _size(gated), self._fresh(gated, step)
        if not _size(point):
            self._counts.points += size  # a reader has them
            return
        try:
            event = _event(point, step)
        except (ValueError, TypeError, RecursionError) as error:  # would be tried for ever
            log.warning("a point of step %d cannot be shown: %s", step, error)
            self._counts.refused += size
            return
        self._events.put(event)
        self._counts.points += size
        self._note(point, step)

    def _note(self, point: Point, step: int) -> None:
        attempt = point.source.attempt
        if attempt >= self._attempt:
            self._own = max(self._own, step)
        for name, value in _tagged(point):
            self._tags.note(name, attempt, step, value)

    def _fresh(self, point: Scalars, step: int) -> Scalars:
        """Without what an earlier attempt shows at this step, to the digit."""
        attempt, same = point.source.attempt, self._tags.same
        if attempt == 1:
            return point
        kept = {name: each for name, each in point.values.items() if not same(name, attempt, step, each)}
        return point if len(kept) == len(point.values) else point._replace(values=kept)

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


def _tagged(point: Point) -> Iterable[tuple[str, float | None]]:
    if isinstance(point, Scalars):
        return point.values.items()
    return [(f"events/{point.name}" if isinstance(point, Notice) else "params", None)]


def _size(point: Point) -> int:
    return len(point.values) if isinstance(point, Scalars) else int(not isinstance(point, End))


def _count(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    return value if isinstance(value, int) and value > 0 else default
