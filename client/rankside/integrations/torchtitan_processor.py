"""TorchTitan's metrics processor with a config of its own, which is how a version with configs is extended.

Separate because the classes are made when they are first wanted: their parents are torchtitan's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import import_module
from typing import Any

from rankside import Monitor
from rankside.integrations.care import active, chosen, harmless
from rankside.integrations.torchtitan_logger import Logger, Shape, joined

_monitors: list[Monitor | None] = [None]  # the one given, if any: configs are copied, and printed as text


def monitored_config(theirs: Any, monitor: Monitor | None = None) -> Any:
    """A config with the same values, which builds the processor `theirs` would, with our logger in it."""
    _monitors[0] = monitor
    made = _config_class(theirs.__class__)
    return made(**{each.name: getattr(theirs, each.name) for each in fields(theirs) if each.init})


class ProcessorCalls:
    """What is added to a MetricsProcessor."""

    def _build_metric_logger(self, **given: Any) -> Any:
        theirs = super()._build_metric_logger(**given)  # type: ignore[misc]  # the parent is torchtitan's
        return _with_ours(theirs, given) or theirs


@harmless
def _with_ours(theirs: Any, given: Mapping[str, Any]) -> Any:
    monitor = chosen(_monitors[0])
    if not active(monitor):
        return theirs
    told = given.get("config_dict")
    if told:
        monitor.params(told)
    ours = Logger(monitor, Shape.of(told, given.get("parallel_dims")), given.get("tag"))
    return joined(theirs, ours, import_module("torchtitan.components.metrics").LoggerContainer)


@lru_cache(maxsize=8)
def _config_class(theirs: Any) -> Any:
    """TorchTitan wants a config class within each processor class, and finds the one by the other."""
    if issubclass(theirs._owner, ProcessorCalls):
        return theirs
    body = {"__annotations__": {}, "__module__": theirs.__module__, "__doc__": theirs.__doc__}
    config: Any = dataclass(kw_only=True, slots=True)(type("Config", (theirs,), body))
    made: Any = type("RanksideMetricsProcessor", (ProcessorCalls, theirs._owner), {"Config": config})
    return made.Config
