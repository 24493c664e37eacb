"""Primus' rank helpers of today, rebuilt; what they print goes through logger.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from primus.core.utils import logger

_rank, _world_size = 0, 1


def set_logging_rank(rank: int, world_size: int) -> None:
    """Who this process is."""
    global _rank, _world_size
    _rank, _world_size = rank, world_size


def log_rank_0(msg: object, *args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    if _rank == 0:
        logger.info_with_caller(msg, module, "", line)


def log_rank_last(msg: object, *args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    if _rank == _world_size - 1:
        logger.info_with_caller(msg, module, "", line)


def log_rank_all(msg: object, *args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    logger.info_with_caller(msg, module, "", line)


def log_kv_rank_0(key: str, value: object) -> None:
    module, line = logger.caller()
    if _rank == 0:
        logger.log_kv_with_caller(key, value, module, "", line)


def debug_rank_0(*args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    if args and _rank == 0:
        logger.debug_with_caller(kwargs.get("sep", " ").join(map(str, args)), module, "", line)


def debug_rank_all(*args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    if args:
        logger.debug_with_caller(kwargs.get("sep", " ").join(map(str, args)), module, "", line)


def warning_rank_0(msg: object, *args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    if _rank == 0:
        logger.warning_with_caller(msg, module, "", line)


def error_rank_0(msg: object, *args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    if _rank == 0:
        logger.error_with_caller(msg, module, "", line)


SPEAKERS = {"rank_0": log_rank_0, "rank_all": log_rank_all, "rank_last": log_rank_last}


def log_dict_aligned(title: str, data: Any, indent: str = "  ", rank_filter: str = "rank_0") -> None:
    """Between two rules: names with dots for what lies deeper, values, and their types."""
    say, flat = SPEAKERS.get(rank_filter, log_rank_0), flattened(data)
    say("-" * 80)
    say(f"{title}: ({len(flat)} parameters)" if flat else f"{title}: (empty)")
    width = max(map(len, flat), default=0)
    for name, value in sorted(flat.items()):
        say(f"{indent}{name:<{width}} : {value} ({type(value).__name__})")
    say("-" * 80)


def flattened(data: Any, before: str = "") -> dict[str, Any]:
    """A value by its names from the top down."""
    values = vars(data) if isinstance(data, SimpleNamespace) else data
    found: dict[str, Any] = {}
    for name, value in values.items():
        deeper = isinstance(value, SimpleNamespace | dict)
        found.update(flattened(value, f"{before}{name}.") if deeper else {f"{before}{name}": value})
    return found
