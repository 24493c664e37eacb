"""Lightning: a Logger, for `lightning` and `pytorch_lightning` alike.

    from rankside.integrations import lightning

    rankside.init(exp_name="finetune")
    Trainer(logger=lightning.logger())

Separate from the others because it knows what a Trainer asks of a logger: checkpoints lie where it says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rankside import Monitor
from rankside.integrations.care import chosen, harmless
from rankside.integrations.scalars import Scalars

_PACKAGES = (
    "lightning.pytorch",
    "pytorch_lightning",
)  # two copies of one framework, each with its own classes


def logger(monitor: Monitor | None = None) -> Any:
    """A Logger of each of the two packages that is loaded, or of the first that is installed."""
    bases = [_logger_of(name) for name in _PACKAGES if sys.modules.get(name) is not None]
    bases = bases or [found for found in map(_installed, _PACKAGES) if found is not None][:1]
    if not bases:
        raise ImportError(f"rankside's lightning.logger(): none of {', '.join(_PACKAGES)} can be imported")
    made: Any = type("RanksideLogger", (LoggerCalls, *bases), {})
    return made(monitor)


def _logger_of(package: str) -> Any:
    return import_module(f"{package}.loggers.logger").Logger


def _installed(package: str) -> Any:
    try:
        return _logger_of(package)
    except ImportError:
        return None


class LoggerCalls:
    """The calls of a Logger. Lightning makes them on every rank; the agent chooses."""

    def __init__(self, monitor: Monitor | None = None) -> None:
        super().__init__()
        self._given = monitor
        self._scalars: Scalars | None = None
        self._saved: set[str] = set()

    @property
    def experiment(self) -> Monitor:
        """The monitor, for `self.logger.experiment.event(...)` in a module."""
        return chosen(self._given)

    @property
    def name(self) -> str:
        """Empty, as the version, so that checkpoints come into `{exp_root}/checkpoints`."""
        return ""

    @property
    def version(self) -> str:
        """Attempts are counted by the agent."""
        return ""

    @property
    def save_dir(self) -> str | None:
        """The run's folder; without a monitor Lightning's own default."""
        return self.experiment.exp_root or None

    @harmless
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Lightning's names, unchanged."""
        if self._scalars is None or self._scalars.monitor is not self.experiment:
            self._scalars = Scalars(self.experiment)
        self._scalars.send(metrics, step)

    @harmless
    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        """A dict or a namespace."""
        self.experiment.params(vars(params) if isinstance(params, argparse.Namespace) else params)

    @harmless
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """An event and a line for each new file. Lightning tells this to rank 0 alone, whose events no
        tracker shows where another rank is the last."""
        for kind in ("best", "last"):
            path = str(getattr(checkpoint_callback, f"{kind}_model_path", "") or "")
            if path and path not in self._saved:
                self._saved.add(path)
                self.experiment.event("checkpoint", path=path, kind=kind)
                self.experiment.log(f"checkpoint ({kind}): {path}")

    @harmless
    def finalize(self, status: str) -> None:
        """An event; the monitor stays open, for a test after a fit."""
        self.experiment.event("trainer end", status=status)

    def save(self) -> None:
        """Nothing waits to be saved."""

    def log_graph(self, *_: Any, **__: Any) -> None:
        """A module's graph is not shown."""
