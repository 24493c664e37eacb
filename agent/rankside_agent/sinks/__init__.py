"""The table of sinks: one tracker a name. A new one is a new file and a line here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankside_agent import choices

if TYPE_CHECKING:
    from rankside_agent.sinks.base import Sink

SINKS = {
    "mlflow": "rankside_agent.sinks.mlflow:MLflow",
    "tensorboard": "rankside_agent.sinks.tensorboard:TensorBoard",
    "wandb": "rankside_agent.sinks.wandb:Wandb",
}


def load(name: str) -> type[Sink]:
    """The class of a sink, imported now; its tracker's library only when it is made. Raises ValueError."""
    found: type[Sink] = choices.load("sinks", SINKS, name)
    return found


def cursor_path(run_dir: Path, name: str) -> Path:
    """Where a sink says how far it is and how it fares."""
    return run_dir / "sinks" / f"{name}.json"
