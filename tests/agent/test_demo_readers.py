"""The demo's readers of MLflow and W&B, on files that these trackers' own libraries wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankside_agent.demo.account import Point
from rankside_agent.demo.trackers import TRACKERS
from rankside_agent.sinks import SINKS


def test_every_sink_can_be_chosen_in_the_demo() -> None:
    assert list(TRACKERS) == list(SINKS)


def test_mlflow_shows_the_newest_value_of_a_step_and_a_point_that_is_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sqlalchemy", reason="mlflow-skinny has no store")
    pytest.importorskip("alembic", reason="mlflow-skinny has no store")
    from rankside_agent.demo.read_mlflow import read

    monkeypatch.setattr(os, "environ", os.environ.copy())
    assert read(tmp_path, 3) == {}
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    run = client.create_run(client.create_experiment("exp", f"file://{tmp_path}/artifacts")).info.run_id
    first = [Metric("lm loss", 0.5 + step, 1000 + step, step) for step in (1, 2, 3, 4)]
    second = [Metric("lm loss", 1.5 + step, 2000 + step, step) for step in (2, 3)]
    client.log_batch(run, [*first, *second, Metric("lm loss", 9.0, 2003, 3)])
    client.log_batch(run, second)
    assert read(tmp_path, 3) == {"lm loss": [Point(1, 1.5), Point(2, 3.5), Point(3, 4.5), Point(3, 9.0)]}


WRITE = """
import sys, wandb
run = wandb.init(project="p", dir=sys.argv[1], mode="offline", settings=wandb.Settings(console="off"))
for number, (attempt, step) in enumerate([(1, 1), (1, 2), (1, 3), (2, 2), (2, 2)]):
    columns = {"attempt": attempt, "train_step": step}
    run.log({"lm loss": number + 0.5, "events/x": "text", **columns}, step=number)
run.finish()
"""


def test_wandb_shows_the_rows_of_the_newest_attempt_and_one_that_is_there_twice(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from rankside_agent.demo.read_wandb import read

    assert read(tmp_path, 3) == {}
    env = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    (tmp_path / "write.py").write_text(WRITE)
    command = [sys.executable, "write.py", str(tmp_path)]
    subprocess.run(
        command, check=True, capture_output=True, cwd=tmp_path, env={**env, "WANDB_SILENT": "true"}
    )
    assert read(tmp_path, 3)["lm loss"] == [Point(2, 3.5), Point(2, 4.5)]
    assert set(read(tmp_path, 3)) == {"lm loss", "train_step", "attempt"}
