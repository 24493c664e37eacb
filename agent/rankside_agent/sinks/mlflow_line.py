"""One line of steps out of several attempts: what MLflow shows as one run.

Separate from how entries get there: here it is decided at which step and time each number stands.

- MLflow deletes no point. A step that a later attempt trains again has both values, and the rule for readers
  is MLflow's own for "latest": per step, the value with the newest timestamp. Tags say where each attempt
  began, `rankside.attempt_{n}.first_step`. What an older attempt brings later than that is not sent.
- MLflow ignores the exact repeat of a point, so a replay doubles nothing as long as every point gets the same
  time again: it is the record's, and one millisecond later than the record before where that had the same
  step and an equal or later time. This, as all that is decided here, depends on points and state alone.
- NaN stays NaN. An infinity, which MLflow would make 1.797e308, is not sent; `nonfinite/{name}` has 1 at that
  step, or -1 for minus infinity, and a tag says where it happened first.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.sinks import mlflow_leftovers as leftovers
from rankside_agent.sinks.base import Counts, Outcome, Run
from rankside_agent.sinks.mlflow_batches import Batches
from rankside_agent.sinks.mlflow_client import Tracker
from rankside_agent.sinks.mlflow_errors import Away
from rankside_agent.sinks.mlflow_events import Events
from rankside_agent.sinks.mlflow_origin import Origin
from rankside_agent.sinks.mlflow_params import Parameters
from rankside_agent.sinks.mlflow_performance import Performance
from rankside_agent.sinks.mlflow_run import TrackerRun
from rankside_agent.sinks.mlflow_uploads import Uploads
from rankside_agent.sinks.points import Notice, Params, Point, Scalars, Source
from rankside_agent.sinks.starts import Starts

log = logging.getLogger(__name__)

MOST_NONFINITE = 100  # names that get a tag and a line in the log
_DAY_MS = 86_400_000
_PORTION = 100  # files that are asked for at once when a run has ended
_STATUSES = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}
_WANTS = ("mlflow_upload_logs", "mlflow_upload_traces", "mlflow_upload_performance_metrics")


class Line:
    """Takes points for one run of the tracker. `state` is what `state()` gave at the mark, or empty.

    `log_root` is that of its attempts; those beside a living one have a run of their own.
    """

    def __init__(
        self, tracker: Tracker, run: Run, log_root: str, state: Mapping[str, Any], counts: Counts
    ) -> None:
        beside = log_root.partition("/")[2]
        self._home = run
        self._log_root = log_root
        self._counts = counts
        self._tracker = tracker
        self._attempt = int(state.get("attempt", 0))
        self._step = int(state.get("step", 0))  # the last explicit one
        self._open = bool(state.get("open", False))  # whether the attempt's first step is still to come
        self._starts = Starts(state.get("starts", ()))
        self._last_ms, self._last_step = state.get("last", (0, 0))  # of the last record
        self._floor_ms = int(state.get("floor", 0))  # the newest of the attempts before this one
        self._newest_ms = int(state.get("newest", 0))  # of all
        self._nonfinite: dict[str, None] = dict.fromkeys(state.get("nonfinite", ()))
        self._wants = set(state.get("wants", ()))
        self._source: Source | None = None
        folder = run.folder / "sinks" / "mlflow" / beside
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        identity = f"{run.key}/{beside}" if beside else run.key
        self._run = TrackerRun(tracker, identity, state.get("run_id", ""), folder)
        self._run.ended = bool(state.get("ended", False))
        self._batches = Batches(self._run, counts)
        self._parameters = Parameters(self._run, self._batches, folder)
        self._events = Events(folder, state.get("events", {}), self._batches, counts)
        self._origin = Origin(run.folder, run.exp_root, self._batches, int(state.get("origin", 0)))
        self._performance = Performance(state.get("performance", {}))
        self._uploads = Uploads(self._run, state.get("uploads", {}), counts)

    @property
    def remark(self) -> str:
        """Of its artifacts."""
        return self._uploads.remark

    @property
    def nonfinite(self) -> int:
        """How many names had an infinity."""
        return len(self._nonfinite)

    def take(self, point: Point) -> None:
        """Put a point where it belongs. Raises Away when a request is full and cannot be sent."""
        self._run.ended = False
        if point.source is not self._source:
            self._change(point.source)
        if isinstance(point, Scalars):
            self._scalars(point)
        elif isinstance(point, Params):
            self._parameters.take(point.source, point.values)
            self._counts.points += 1
        elif isinstance(point, Notice) and point.name == "artifact":
            self._artifact(point)
        elif isinstance(point, Notice):
            self._events.take(point)

    def flush(self) -> None:
        """Send what waits; files go on their way beside. Raises Away."""
        self._batches.flush_metrics()
        self._offer(self._parameters.flush())
        self._offer(self._origin.flush(self._attempt))
        self._offer(self._events.flush())
        self._batches.flush()
        self._uploads.pump()

    def state(self) -> dict[str, Any]:
        """As of the last flush, which must have followed the last point."""
        return {
            "run_id": self._run.known_id,
            "ended": self._run.ended,
            "attempt": self._attempt,
            "step": self._step,
            "open": self._open,
            "starts": self._starts.plain(),
            "last": [self._last_ms, self._last_step],
            "floor": self._floor_ms,
            "newest": self._newest_ms,
            "nonfinite": list(self._nonfinite),
            "wants": sorted(self._wants),
            "origin": self._origin.done,
            "events": self._events.state(),
            "performance": self._performance.state(),
            "uploads": self._uploads.state(),
        }

    def finish(self, outcome: Outcome) -> Iterator[None]:
        """Upload what is wanted, and tell how it ended. Raises Away.

        Where another node speaks for the newest attempt, the end and what is left is that one's.
        """
        if not self._attempt:
            return
        if outcome.is_elsewhere(self._log_root.partition("/")[2]):
            self.flush()
            yield from self._uploads.drain(everything=True)
            return
        self.flush()
        self._run.settle()
        yield
        try:
            yield from self._upload_all(outcome)
        except Away:  # of the store, perhaps: the tracker itself may well be there
            self._end(outcome)
            yield
            raise
        self.flush()
        self._end(outcome)
        yield

    def _upload_all(self, outcome: Outcome) -> Iterator[None]:
        self._offer(self._events.flush(all_of_it=True))
        self._offer(self._summary())
        yield from self._uploads.drain()
        offered = 0
        for found in self._leftovers(outcome):
            if found is None:
                yield
                continue
            self._uploads.offer(*found)
            offered += 1
            if offered % _PORTION == 0:
                yield from self._uploads.drain()
        yield from self._uploads.drain()
        yield from self._uploads.drain(everything=True)

    def _end(self, outcome: Outcome) -> None:
        status = _STATUSES.get(outcome.attempts.get(self._attempt, outcome.status), "FAILED")
        self._tracker.call("set_terminated", self._run.id, status, int(outcome.ended * 1000))
        self._run.ended = True

    def _change(self, source: Source) -> None:
        self._source = source
        if source.attempt <= self._attempt:
            self._run.source = self._run.source or source
            return
        self._attempt, self._open = source.attempt, True
        self._floor_ms = self._newest_ms
        self._run.source = source
        self._wants = {name for name in _WANTS if source.config.get(name) is True}
        self._origin.begin(source)
        self._parameters.environment(source)

    def _scalars(self, point: Scalars) -> None:
        attempt = point.source.attempt
        late = attempt < self._attempt
        step = self._starts.late(attempt, point.step, self._step) if late else self._due(point)
        if step is None:
            self._counts.superseded += len(point.values)
            return
        ms = self._ms(point, step)
        self._counts.points += len(point.values)
        for name, value in point.values.items():
            if self._infinite(name, value, ms, step):
                self._counts.points -= 1
                self._counts.refused += 1
        if "mlflow_upload_performance_metrics" in self._wants and not point.source.aside:
            for name, value in self._performance.derive(point.values):
                self._infinite(name, value, ms, step)

    def _due(self, point: Scalars) -> int:
        """The step of a point of the newest attempt."""
        if point.step is None:
            return self._step
        if not point.source.aside:
            self._step = point.step
            if self._open:
                self._open = False
                self._starts.add(self._attempt, point.step)
                self._batches.tag(f"rankside.attempt_{self._attempt}.first_step", point.step)
        return point.step

    def _ms(self, point: Scalars, step: int) -> int:
        """The time at which a record stands; see above."""
        ms = int(point.time * 1000)
        if point.source.attempt == self._attempt and ms <= self._floor_ms < ms + _DAY_MS:
            ms = self._floor_ms + 1  # this node's clock is behind; what is trained again must be the newest
        if step == self._last_step and ms <= self._last_ms < ms + _DAY_MS:
            ms = self._last_ms + 1
        self._last_ms, self._last_step = ms, step
        self._newest_ms = max(self._newest_ms, ms)
        return ms

    def _infinite(self, name: str, value: float, ms: int, step: int) -> bool:
        """Every number's way to the tracker; whether it was none that MLflow can show."""
        if not math.isinf(value):
            self._batches.metric(name, value, ms, step)
            return False
        self._batches.metric(f"nonfinite/{name}", math.copysign(1.0, value), ms, step)
        if name not in self._nonfinite and len(self._nonfinite) < MOST_NONFINITE:
            self._nonfinite[name] = None
            log.warning("%r is %s at step %d: infinities are shown as nonfinite/%s", name, value, step, name)
            key = self._batches.names.behind("rankside.nonfinite.", name)
            self._batches.tag(key, f"{value:+} first at step {step}")
        return True

    def _artifact(self, point: Notice) -> None:
        base = point.source.launch.get("cwd") or self._home.exp_root
        self._uploads.artifact(Path(str(base)) / str(point.fields.get("path", "")))
        self._counts.points += 1

    def _offer(self, artifacts: Iterable[tuple[str, Path]]) -> None:
        for destination, path in artifacts:
            self._uploads.offer(destination, path)

    def _summary(self) -> Iterator[tuple[str, Path]]:
        if summary := self._performance.summary():
            path = self._folder / "summary.json"
            files.replace(path, json.dumps(summary, indent=1).encode())
            yield "performance/summary.json", path

    def _leftovers(self, outcome: Outcome) -> Iterator[tuple[str, Path] | None]:
        exp_root = Path(self._home.exp_root)
        if "mlflow_upload_logs" in self._wants:
            yield from leftovers.logs(exp_root, self._log_root, outcome.log_roots)
        if "mlflow_upload_traces" in self._wants:
            yield from leftovers.traces(exp_root)
