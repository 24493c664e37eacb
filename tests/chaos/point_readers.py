"""What a user of a tracker sees of a run, through the tracker's own reader: scalars as (step, value).

Separate from the verdict; imports nothing of rankside. W&B's core is asked itself:
`wandb` takes a second to start.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from rankside_agent.sinks import mlflow_library

Scalars = list[tuple[int, float]]


def tensorboard(folder: Path, tag: str) -> Scalars:
    """As TensorBoard draws them."""
    shown = _accumulated(folder)
    if shown is None or tag not in shown.Tags()["scalars"]:
        return []
    return [(event.step, event.value) for event in shown.Scalars(tag)]


def tensorboard_events(folder: Path) -> list[tuple[str, int]]:
    """(stream, number) of our events, as their texts tell."""
    shown = _accumulated(folder)
    if shown is None:
        return []
    tags = [tag for tag in shown.Tags()["tensors"] if tag.startswith("events/chaos")]
    texts = [
        b" ".join(event.tensor_proto.string_val).decode() for tag in tags for event in shown.Tensors(tag)
    ]
    found = []
    for text in texts:
        stream, number = re.search(r"k\d+r\d+\w+", text), re.search(r"number\W+(\d+)", text)
        if stream and number:
            found.append((stream[0], int(number[1])))
    return found


def _accumulated(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of each attempt that goes back
    if not folder.is_dir():
        return None
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def mlflow(uri: str, tag: str) -> Scalars:
    """All rows of all runs; a step that a later attempt trained again has several."""
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", GIT_PYTHON_REFRESH="quiet")
    mlflow_library.load()
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiments = [each.experiment_id for each in client.search_experiments()]
    rows = [
        row
        for run in client.search_runs(experiments)
        for row in client.get_metric_history(run.info.run_id, tag)
    ]
    return [(row.step, row.value) for row in rows]


def wandb(exp: Path, tag: str) -> Scalars:
    """Rows of all offline files; a row's number in two files of a run is one row, as `wandb sync` has it."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted(exp.glob("wandb/offline-run-*/run-*.wandb")):
        for item in _history(path):
            rows[path.name, int(item["_step"])] = item
    return [(int(item["train_step"]), float(item[tag])) for item in rows.values() if tag in item]


def _history(path: Path) -> list[dict[str, Any]]:
    from wandb.util import get_core_path

    command = [
        get_core_path(),
        "leet",
        "inspect",
        "--no-observability",
        "--json",
        "--run-file",
        path,
        path.parent,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [record["history"]["item"] for record in records if record["type"] == "history"]
