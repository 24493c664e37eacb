"""Trainings under one agent, one for each set of parameters, and what their outputs show.

Separate from the table, which says what is to be seen. Everything is read as a user reads it: files, console,
event files through TensorBoard's reader, W&B's files through W&B's, MLflow through its client.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import simulated
import yaml
from mlflow_server import MLflowReader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb_double import WandbReader

HERE = Path(__file__).parent
PATIENCE = 90.0
_COLOUR = re.compile(r"\x1b\[\d+m")
_LINE = re.compile(r"\] :  iteration +(\d+)/|\] : step: +(\d+)  ")


class Seen:
    """One training: `name` tells its folder; `config`, `environ`, `steps`, `world_size` are its own."""

    def __init__(self, node: Any, name: str, told: dict[str, Any]) -> None:
        self.node, self.root = node, node.base / name
        self.config, self.environ = told.get("config", {}), told.get("environ", {})
        self.steps, self.world_size = told.get("steps", 0), told.get("world_size", 1)
        self.argv = told.get("argv", [])
        self.name, self.last = name, self.world_size - 1
        self.process: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """All its ranks."""
        self.root.mkdir()
        for rank in range(self.world_size):
            told = {
                "root": str(self.root),
                "rank": rank,
                "world_size": self.world_size,
                "config": self.config,
                "steps": self.steps if rank == self.last else min(self.steps, 2),
                "go": str(self.node.base / f"{self.name}.go"),
            }
            command = [sys.executable, str(HERE / "train.py"), json.dumps(told), *self.argv]
            with open(self.node.base / f"{self.name}-{rank}.out", "wb") as out:
                process = subprocess.Popen(
                    command, env={**self.node.env, **self.environ}, cwd=self.node.base, stderr=out, stdout=out
                )
            self.process.append(process)
            self.node.started.append(process)

    def end(self) -> None:
        """Let it go once its last line is there."""
        if self.steps:
            self.node.until(lambda: self.steps in self.iterations, f"the last line of {self.name}", PATIENCE)
        (self.node.base / f"{self.name}.go").touch()
        self.node.finish(*self.process)

    # -- what is seen --------------------------------------------------------------------------------

    @property
    def console(self) -> str:
        return self.node.log(f"{self.name}-{self.last}")

    @property
    def folder(self) -> Path:
        return self.root / "logs" / "pretrain" / f"rank-{self.last}"

    @property
    def files(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.log"))

    @property
    def log(self) -> str:
        """The file of the lowest level."""
        found = [self.folder / f"{name}.log" for name in ("debug", "info", "warning", "error")]
        return next((path.read_text() for path in found if path.exists()), "")

    @property
    def lines(self) -> list[str]:
        """Training lines."""
        return [line for line in self.log.split("\n") if _LINE.search(_COLOUR.sub("", line))]

    @property
    def iterations(self) -> list[int]:
        matches = [_LINE.search(_COLOUR.sub("", line)) for line in self.lines]
        return [int(found[1] or found[2]) for found in matches if found]

    def said(self, levels: str = "DEBUG INFO WARNING ERROR", where: str = "log") -> list[str]:
        """Which levels' lines are there."""
        text = getattr(self, where)
        return [level for level in levels.split() if f" : said as {level}\n" in text]

    def has(self, *texts: str) -> bool:
        """Whether all stand in the rank's log."""
        return all(text in self.log for text in texts)

    def there(self, name: str) -> bool:
        """A file or folder below exp_root."""
        return (self.root / name).exists()

    @cached_property
    def scalars(self) -> dict[str, dict[int, float]]:
        """{tag: {step: value}} of all event files, wherever they lie."""
        folders = {path.parent for path in self.root.rglob("events.out.tfevents.*")}
        found: dict[str, dict[int, float]] = {}
        for folder in folders:
            events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
            for tag in events.Tags()["scalars"]:
                found[tag] = {each.step: each.value for each in events.Scalars(tag)}
        return found

    @cached_property
    def wandb(self) -> dict[str, Any]:
        """What W&B's run is called."""
        (run,) = WandbReader(self.root).records("run")[:1]
        return {name: run.get(name, "") for name in ("project", "display_name", "entity")}

    @cached_property
    def mlflow(self) -> MLflowReader:
        uri = self.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{self.root}/mlflow.db")
        return MLflowReader(uri, (self.root / "snapshot" / "key").read_text())

    @cached_property
    def artifacts(self) -> list[str]:
        """Top folders of what MLflow holds."""
        return [each.path for each in self.mlflow.client.list_artifacts(self.mlflow.run.info.run_id)]

    @property
    def experiment(self) -> str:
        found: str = self.mlflow.client.get_experiment(self.mlflow.run.info.experiment_id).name
        return found

    @cached_property
    def kept(self) -> dict[str, Any]:
        """The resolved configuration of the attempt."""
        found: dict[str, Any] = yaml.safe_load((self.root / "snapshot/attempt-1/config.yaml").read_text())
        return found


@pytest.fixture
def trained(node, tmp_path):
    """{name: Seen} of trainings, all over and all delivered."""
    if why := simulated.missing():
        pytest.skip(f"amdsmi over a simulated library: {why}")

    def run(trainings: dict[str, dict[str, Any]]) -> dict[str, Seen]:
        rules = tmp_path / "rules"
        rules.write_text("gpus - * 4\nreversed - * 1\n")
        gpus = simulated.environment(simulated.build(tmp_path / "rocm"), rules, node.env)
        (node.base / "agent.yaml").write_text("system_seconds: 0\n")
        node.agent("--config", "agent.yaml", **{n: v for n, v in gpus.items() if n not in node.env})
        seen = {name: Seen(node, name, told) for name, told in trainings.items()}
        for each in seen.values():
            each.start()
        for each in seen.values():
            each.end()
        node.until(
            lambda: node.all_delivered() and len(list((node.state / "done").iterdir())) >= len(seen),
            "all delivered",
            PATIENCE,
        )
        return seen

    return run
