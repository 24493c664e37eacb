"""Read metrics back with MLflow's own client, from the store in the run's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rankside_agent.demo.account import Point
from rankside_agent.sinks import mlflow_library

# The library would ask the network otherwise
_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "GIT_PYTHON_REFRESH": "quiet"}


def read(root: Path, last: int) -> dict[str, list[Point]]:
    """Every metric of the run up to the step `last`: an earlier attempt may have gone further."""
    database = root / "mlflow.db"
    if not database.is_file():
        return {}
    os.environ.update(_QUIET)
    mlflow_library.load()
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    found: dict[str, list[Point]] = {}
    for run in client.search_runs(experiments):
        for name in run.data.metrics:
            points = _latest(client.get_metric_history(run.info.run_id, name))
            found.setdefault(name, []).extend(point for point in points if point.step <= last)
    return found


def _latest(history: list[Any]) -> list[Point]:
    """MLflow keeps what earlier attempts said of a step; per step the newest counts, equals all."""
    newest: dict[int, int] = {}
    for metric in history:
        newest[metric.step] = max(newest.get(metric.step, metric.timestamp), metric.timestamp)
    kept = [metric for metric in history if metric.timestamp == newest[metric.step]]
    return [Point(metric.step, metric.value) for metric in sorted(kept, key=lambda metric: int(metric.step))]
