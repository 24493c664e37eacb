"""The MLflow sink: the run's points as one MLflow run, continued by each new attempt.

Where to: `MLFLOW_TRACKING_URI`; without it Databricks, where `DATABRICKS_HOST` is set; without both a sqlite
database, `{exp_root}/mlflow.db`, with artifacts in `{exp_root}/mlartifacts` (needs the full `mlflow` beside
rankside; `mlflow-skinny` is enough for a server). The experiment is `mlflow_experiment_name`, or exp_name;
the run `mlflow_run_name`, or `{work_group}_{user_name}`. A token may be given as `@/path/of/a/file`, which is
read again at each new try, as are the variables that the ranks told last. A relative address is relative to
the working directory of the training (of the first attempt that the sink hears of).

| record     | in MLflow |
| ---------- | --------- |
| metrics    | metrics; a name that MLflow refuses is changed by rule, and in the tag `rankside.name.{new}` |
| +-infinity | `nonfinite/{name}` = 1 or -1 at that step, and the tag `rankside.nonfinite.{name}` |
| throughput | metrics `iteration-time` and what the agent makes of the sample, as in TensorBoard |
| performance | `perf/*`, derived from others, with `mlflow_upload_performance_metrics` |
| params     | params; changed by a later attempt: `attempt_{n}.{name}`; whole in `params/attempt-{n}.json` |
| environment | params `env__{NAME}`; a param of that name is `param.env__{NAME}` |
| event      | tag `rankside.event.{name}` with its last fields; all in `events/attempt-{n}.jsonl` |
| artifact   | an artifact under its own name; a folder with its first 10,000 files, 100 GiB at most |
| git        | tags `mlflow.source.git.*`, and `system/git_metadata.json` |
| the end    | the status; `performance/summary.json`; `logs/`, `traces/` where the parameters say so |

What has no step of its own stands at the last explicit one, 0 before the first. Which value of a step counts
after an attempt has trained it again: see `mlflow_line.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from rankside_agent.sinks.base import Counts, Outcome, Run, Sink
from rankside_agent.sinks.points import End, Point

if TYPE_CHECKING:
    from rankside_agent.sinks.mlflow_client import Tracker
    from rankside_agent.sinks.mlflow_line import Line

_BASE = "base"  # in the state, beside folders of logs: what the tracker's address is relative to


class MLflow(Sink):
    """Sends to a tracking server or store. Its state is that of each line, by the folder of its logs."""

    name = "mlflow"
    flush_seconds: ClassVar[float] = 3.0  # a request costs a server about as much as 100 points

    def __init__(self, run: Run, state: Mapping[str, Any], counts: Counts) -> None:
        """Raises ConnectionError where there is no tracker, or none of its libraries."""
        super().__init__(run, state, counts)
        from rankside_agent.sinks.mlflow_errors import NoFolder

        self._state = state
        self._tracker: Tracker | None = None
        self._lines: dict[str, Line] = {}
        with suppress(NoFolder):  # the first point says where the training was started
            self._opened(str(state.get(_BASE, "")))

    @staticmethod
    def wanted(config: Mapping[str, Any]) -> bool:
        """As Primus decides."""
        return config.get("disable_mlflow") is False

    @property
    def remark(self) -> str:
        """Numbers that MLflow does not show as they are, and artifacts that it does not have."""
        names = sum(line.nonfinite for line in self._lines.values())
        texts = [f"infinities in {names} metrics, shown as nonfinite/..." if names else ""]
        return "; ".join(filter(None, [*texts, *(line.remark for line in self._lines.values())]))

    def write(self, point: Point) -> None:
        """Take a point. Raises ConnectionError when the tracker takes nothing now."""
        if isinstance(point, End):
            return
        tracker = self._opened(str(point.source.launch.get("cwd") or ""))
        log_root = f"logs/{point.source.beside}" if point.source.beside else "logs"
        if log_root not in self._lines:
            self._lines[log_root] = self._line(tracker, log_root, {})
        with self._verdicts():
            self._lines[log_root].take(point)

    def flush(self) -> None:
        """Send what waits. Raises ConnectionError."""
        with self._verdicts():
            for line in self._lines.values():
                line.flush()

    def state(self) -> dict[str, Any]:
        """As of the last flush."""
        if self._tracker is None:
            return dict(self._state)
        return {_BASE: self._tracker.base, **{root: line.state() for root, line in self._lines.items()}}

    def finish(self, outcome: Outcome) -> Iterator[None]:
        """Upload what the parameters ask for, then tell the end. Raises ConnectionError."""
        from rankside_agent.sinks.mlflow_errors import Away

        if self._state:
            self._opened("")
        trouble: Away | None = None
        for line in self._lines.values():
            try:
                with self._verdicts():
                    yield from line.finish(outcome)
            except Away as away:  # one run's files do not keep the other's end back
                trouble = trouble or away
        if trouble is not None:
            raise trouble

    def close(self) -> None:
        """Nothing is held open: the library keeps its connections for the next try."""

    def _opened(self, cwd: str) -> Tracker:
        """The tracker; a relative address of it is relative to the working directory of the training."""
        from rankside_agent.sinks.mlflow_client import Tracker

        if self._tracker is None:
            tracker = Tracker(self.run.folder, self.run.exp_root, cwd=cwd)
            lines = {root: found for root, found in self._state.items() if root != _BASE}
            self._lines = {root: self._line(tracker, root, found) for root, found in lines.items()}
            self._tracker = tracker
        return self._tracker

    def _line(self, tracker: Tracker, log_root: str, state: Mapping[str, Any]) -> Line:
        from rankside_agent.sinks.mlflow_line import Line

        return Line(tracker, self.run, log_root, state, self.counts)

    @staticmethod
    def _verdicts() -> AbstractContextManager[None]:
        from rankside_agent.sinks.mlflow_client import verdicts

        return verdicts()
