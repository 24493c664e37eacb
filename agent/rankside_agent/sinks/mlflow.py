"""The MLflow sink: the run's points as one MLflow run, continued by each new attempt.

Where to: `MLFLOW_TRACKING_URI`; without it Databricks, where `DATABRICKS_HOST` is set; without both a sqlite
database, `{exp_root}/mlflow.db`, with artifacts in `{exp_root}/mlartifacts` (needs the full `mlflow` beside
rankside; `mlflow-skinny` is enough for a server). The experiment is `mlflow_experiment_name`, or exp_name;
the run `mlflow_run_name`, or `{work_group}_{user_name}`. A token may be given as `@/path/of/a/file`, which is
read again at each new try, as are the variables that the ranks told last.

| record     | in MLflow |
| ---------- | --------- |
| metrics    | metrics; a name that MLflow refuses is changed by rule, and in the tag `rankside.name.{new}` |
| +-infinity | `nonfinite/{name}` = 1 or -1 at that step, and the tag `rankside.nonfinite.{name}` |
| throughput | metrics `iteration-time` and what the agent makes of the sample, as in TensorBoard |
| performance | `perf/*`, derived from others, with `mlflow_upload_performance_metrics` |
| params     | params; changed by a later attempt: `attempt_{n}.{name}`; whole in `params/attempt-{n}.json` |
| environment | params `env__{NAME}` |
| event      | tag `rankside.event.{name}` with its last fields; all in `events/attempt-{n}.jsonl` |
| artifact   | an artifact under its own name; a folder with all in it |
| git        | tags `mlflow.source.git.*`, and `system/git_metadata.json` |
| the end    | the status; `logs/` and `traces/` where the parameters say so, `performance/summary.json` |

What has no step of its own stands at the last explicit one, 0 before the first. Which value of a step counts
after an attempt has trained it again: see `mlflow_line.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rankside_agent.sinks.base import Counts, Outcome, Run, Sink
from rankside_agent.sinks.points import End, Point

if TYPE_CHECKING:
    from rankside_agent.sinks.mlflow_line import Line


class MLflow(Sink):
    """Sends to a tracking server or store. Its state is that of each line, by the folder of its logs."""

    name = "mlflow"
    flush_seconds: ClassVar[float] = 3.0  # a request costs a server about as much as 100 points

    def __init__(self, run: Run, state: Mapping[str, Any], counts: Counts) -> None:
        """Raises ConnectionError where there is no tracker, or none of its libraries."""
        super().__init__(run, state, counts)
        from rankside_agent.sinks.mlflow_client import Tracker

        self._tracker = Tracker(run.folder, run.exp_root)
        self._lines = {log_root: self._line(log_root, found) for log_root, found in state.items()}

    @staticmethod
    def wanted(config: Mapping[str, Any]) -> bool:
        """As Primus decides."""
        return config.get("disable_mlflow") is False

    @property
    def remark(self) -> str:
        """Numbers that MLflow does not show as they are."""
        names = sum(line.nonfinite for line in self._lines.values())
        return f"infinities in {names} metrics, shown as nonfinite/..." if names else ""

    def write(self, point: Point) -> None:
        """Take a point. Raises ConnectionError when the tracker takes nothing now."""
        if isinstance(point, End):
            return
        log_root = f"logs/{point.source.beside}" if point.source.beside else "logs"
        if log_root not in self._lines:
            self._lines[log_root] = self._line(log_root, {})
        with self._tracker.verdicts():
            self._lines[log_root].take(point)

    def flush(self) -> None:
        """Send what waits. Raises ConnectionError."""
        with self._tracker.verdicts():
            for line in self._lines.values():
                line.flush()

    def state(self) -> dict[str, Any]:
        """As of the last flush."""
        return {log_root: line.state() for log_root, line in self._lines.items()}

    def finish(self, outcome: Outcome) -> Iterator[None]:
        """Upload what the parameters ask for, then tell the end. Raises ConnectionError."""
        with self._tracker.verdicts():
            for line in self._lines.values():
                yield from line.finish(outcome)

    def close(self) -> None:
        """Nothing is held open: the library keeps its connections for the next try."""

    def _line(self, log_root: str, state: Mapping[str, Any]) -> Line:
        from rankside_agent.sinks.mlflow_line import Line

        return Line(self._tracker, self.run, log_root, state, self.counts)
