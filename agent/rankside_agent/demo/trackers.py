"""What the demo knows of each tracker: what it needs, how its result is read back, where a user finds it.

A table of its own beside the sinks', for the check must share nothing with what wrote: one reader a file,
each with the tracker's own means.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rankside_agent.demo.account import Point
from rankside_agent.sinks import SINKS

# A run's folder, and the last step of the newest attempt: each metric's points in the order shown
Read: TypeAlias = Callable[[Path, int], dict[str, list[Point]]]


class Tracker(NamedTuple):
    """One tracker; `{root}` is the run's folder as a shell takes it, `{url}` its absolute path."""

    title: str
    packages: tuple[str, ...]  # modules without which it cannot be used here
    reader: str
    files: str
    command: str


_KNOWN = {
    "tensorboard": Tracker(
        "TensorBoard",
        ("tensorboard",),
        "rankside_agent.demo.read_tensorboard:read",
        "{root}/tensorboard/",
        "tensorboard --logdir {root}/tensorboard",
    ),
    "mlflow": Tracker(
        "MLflow",
        ("mlflow", "sqlalchemy", "alembic"),  # the latter two: the full one, which has a store of its own
        "rankside_agent.demo.read_mlflow:read",
        "{root}/mlflow.db",
        "mlflow ui --backend-store-uri sqlite:///{url}/mlflow.db",
    ),
    "wandb": Tracker(
        "W&B",
        ("wandb",),
        "rankside_agent.demo.read_wandb:read",
        "{root}/wandb/",
        "wandb sync {root}/wandb/offline-run-*",
    ),
}
TRACKERS = {name: _KNOWN[name] for name in SINKS if name in _KNOWN}


def reader(name: str) -> Read:
    """The function that reads a tracker's result back."""
    module, _, function = TRACKERS[name].reader.partition(":")
    found: Read = getattr(import_module(module), function)
    return found
