"""What hangs in TorchTitan's loggers: one for its metrics, one for its structured records.

Separate from where they are hung, which differs from version to version.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankside import Monitor
from rankside.integrations.care import harmless

_ELAPSED = "time_metrics/end_to_end(s)"


class Shape(NamedTuple):
    """Of a step, as the configuration tells it; None where it does not."""

    global_batch_size: int | None = None
    seq_length: int | None = None
    train_iters: int | None = None
    log_freq: int | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any] | None, parallel_dims: Any = None) -> Shape:
        """A negative global batch size stands for one local batch of each data-parallel rank."""
        training, metrics = (_group(config, name) for name in ("training", "metrics"))
        batch = _whole(training.get("global_batch_size"))
        local = _whole(training.get("local_batch_size"))
        if batch is None and local is not None:
            shares = (_whole(getattr(parallel_dims, f"dp_{kind}", 1)) or 1 for kind in ("replicate", "shard"))
            batch = local
            for share in shares:
                batch *= share
        return cls(
            batch,
            _whole(training.get("seq_len")),
            _whole(training.get("steps")),
            _whole(metrics.get("log_freq")),
        )

    def fields(self) -> dict[str, int]:
        """Of a throughput sample."""
        known = {name: value for name, value in self._asdict().items() if value is not None}
        known.pop("log_freq", None)
        return known


class Logger:
    """A logger for TorchTitan's LoggerContainer: `log(metrics, step)` on every rank, the agent chooses."""

    def __init__(self, monitor: Monitor, shape: Shape | None = None, tag: str | None = None) -> None:
        self._monitor = monitor
        self._shape = shape or Shape()
        self._tag = tag
        self._last: int | None = None

    @harmless
    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """TorchTitan's names, unchanged; with a tag before them where its own loggers have one."""
        named = {name if self._tag is None else f"{self._tag}/{name}": each for name, each in metrics.items()}
        self._monitor.metrics(named, step=step)
        if _ELAPSED in metrics:
            self._monitor.throughput(step=step, **self._sample(metrics, step))

    def close(self) -> None:
        """The monitor stays open: it says at the exit how the training ended."""

    def _sample(self, metrics: Mapping[str, Any], step: int) -> dict[str, Any]:
        elapsed = float(metrics[_ELAPSED])
        if step == 1:  # TorchTitan divides by its log_freq although one step has passed
            elapsed *= self._shape.log_freq or 1
        found: dict[str, Any] = {**self._shape.fields(), "elapsed_s": elapsed}
        if "tflops" in metrics:
            found["tflops"] = metrics["tflops"]
        timers = SPANS.pop(self._monitor, None if self._last is None else step - self._last)
        self._last = step
        return {**found, "timers": timers} if timers else found


class Spans(logging.Handler):
    """TorchTitan's structured records: scalars become metrics, the times of spans a sample's timers."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(logging.INFO)
        self._monitor = monitor

    @harmless
    def emit(self, record: logging.LogRecord) -> None:
        """The fields are attributes of the record; "None" stands for no value."""
        kind, value = getattr(record, "log_type_name", ""), getattr(record, "value", None)
        if not isinstance(value, int | float):
            return
        step = getattr(record, "step", None)
        if kind == "metric_value":
            name = str(getattr(record, "event_name", "metric"))
            self._monitor.metrics({name: value}, step=step if isinstance(step, int) else None)
        elif kind.endswith("_end"):
            SPANS.add(self._monitor, kind.removesuffix("_end"), value / 1000.0, kind == "step_end")


class _Sums:
    """Seconds by span since the last sample, and the steps in them."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._steps = 0
        self._of: Monitor | None = None

    def add(self, monitor: Monitor, name: str, seconds: float, step: bool) -> None:
        """One span that ended."""
        self._of = monitor
        self._seconds[name] += seconds
        self._steps += step

    def pop(self, monitor: Monitor, steps: int | None) -> dict[str, float]:
        """Seconds a step. The first time the steps are those that ended, and the one under way."""
        if self._of is not monitor:
            return {}
        count = max(steps or self._steps + 1, 1)
        found = {name: seconds / count for name, seconds in self._seconds.items() if name != "step"}
        self._seconds.clear()
        self._steps = 0
        return found


SPANS = _Sums()


def joined(theirs: Any, ours: Logger, container: Any) -> Any:
    """One logger that calls both: theirs, if it is a container already, or a new one."""
    if isinstance(theirs, container):
        theirs.add_logger(ours)
        return theirs
    both = container()
    both.add_logger(theirs)
    both.add_logger(ours)
    return both


def _group(config: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    found = (config or {}).get(name)
    if isinstance(found, Mapping):
        return found
    return {} if found is None else vars(found)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
