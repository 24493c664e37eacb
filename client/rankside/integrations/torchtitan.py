"""TorchTitan: a logger in its own logger container, on every rank, and its console lines.

    from rankside.integrations import torchtitan
    from torchtitan.train import main

    rankside.init(exp_name="llama3-8b", framework="torchtitan")
    torchtitan.install()
    main()

or, in a config function of one's own, `return torchtitan.watched(config)`, which changes that config alone.
The version that Primus pins has no such configs: there its `build_metrics_processor` is wrapped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any

from rankside import Monitor
from rankside.integrations.care import active, chosen, harmless, tell
from rankside.integrations.torchtitan_logger import Logger, Shape, Spans, joined
from rankside.integrations.torchtitan_processor import monitored_config

_HANDLERS = "TITAN_STRUCT_LOGGER_HANDLERS"
_THEIR_HANDLER = "torchtitan.observability.structured_logger.jsonl_handler.register_jsonl_handler"
_OUR_HANDLER = f"{__name__}.attach"


def install(monitor: Monitor | None = None) -> bool:
    """Watch what `torchtitan.train.main`, or its Trainer, is going to run. Says whether it does."""
    found = chosen(monitor)
    return bool(active(found) and _install(found))


def watched(config: Any, monitor: Monitor | None = None) -> Any:
    """A Trainer's config whose metrics come here, too. Of other forms and without a monitor, as it was."""
    found = chosen(monitor)
    if active(found):
        capture(found)
        _watch(config, found)
    return config


def wrapped(build: Callable[..., Any], monitor: Monitor | None = None) -> Callable[..., Any]:
    """A `build_metrics_processor`, torchtitan's or that of a train spec, whose processor has our logger."""

    @wraps(build)
    def with_ours(job_config: Any, parallel_dims: Any, *args: Any, **kwargs: Any) -> Any:
        processor = build(job_config, parallel_dims, *args, **kwargs)
        found = chosen(monitor)
        if active(found):
            _add(processor, found, job_config, parallel_dims)
        return processor

    return with_ours


def attach(structured_logger: logging.Logger, rank: int, source: str, output_dir: str) -> None:
    """What TITAN_STRUCT_LOGGER_HANDLERS=rankside.integrations.torchtitan.attach calls: spans and scalars."""
    found = chosen(None)
    if active(found):
        capture(found)
        structured_logger.addHandler(Spans(found))


@harmless
def capture(monitor: Monitor) -> None:
    """Its console lines; that `init_logger` empties the root logger is no matter."""
    monitor.capture_logging()  # does nothing the second time


@harmless
def _install(monitor: Monitor) -> bool:
    try:
        train = import_module("torchtitan.train")
    except ImportError as error:  # it, or a package that it needs
        tell("torchtitan.install(): the package torchtitan cannot be imported", error)
        return False
    wrapped_any = False
    for name, wrap in _WRAPS.items():
        theirs = getattr(train, name, None)
        if theirs is None:
            continue
        wrapped_any = True
        if not hasattr(theirs, "_rankside"):
            ours = wrap(theirs, monitor)
            ours._rankside = True
            setattr(train, name, ours)
    if not wrapped_any:
        tell("torchtitan.install(): nothing to watch in this version", sorted(_WRAPS))
    _name_handler()
    return wrapped_any


def _name_handler() -> None:
    """Ours after those that are named; an unnamed default of theirs is dropped as soon as any is named."""
    named = os.environ.get(_HANDLERS, "").strip() or _THEIR_HANDLER
    if _OUR_HANDLER not in named:
        os.environ[_HANDLERS] = f"{named},{_OUR_HANDLER}"


def _wrapped_init(theirs: Callable[..., Any], monitor: Monitor) -> Any:
    @wraps(theirs)
    def init_logger(*args: Any, **kwargs: Any) -> Any:
        result = theirs(*args, **kwargs)
        capture(monitor)
        return result

    return init_logger


def _wrapped_manager(theirs: Any, monitor: Monitor) -> Any:
    def parse_args(self: Any, *args: Any, **kwargs: Any) -> Any:
        return watched(theirs.parse_args(self, *args, **kwargs), monitor)

    return type(theirs.__name__, (theirs,), {"parse_args": parse_args})


# In torchtitan.train, each where there is one: the first two in every version, the third in older ones
_WRAPS: dict[str, Callable[[Any, Monitor], Any]] = {
    "init_logger": _wrapped_init,
    "ConfigManager": _wrapped_manager,
    "build_metrics_processor": wrapped,
}


@harmless
def _watch(config: Any, monitor: Monitor) -> None:
    theirs = getattr(config, "metrics", None)
    if hasattr(type(theirs), "_owner"):  # configs that build what they configure
        config.metrics = monitored_config(theirs, monitor)


@harmless
def _add(processor: Any, monitor: Monitor, job_config: Any, parallel_dims: Any) -> None:
    container = import_module("torchtitan.components.metrics").LoggerContainer
    told = job_config.to_dict() if hasattr(job_config, "to_dict") else vars(job_config)
    capture(monitor)
    _params(monitor, told)
    ours = Logger(monitor, Shape.of(told, parallel_dims))
    processor.logger = joined(processor.logger, ours, container)


def _params(monitor: Monitor, values: Mapping[str, Any]) -> None:
    monitor.params(values)
