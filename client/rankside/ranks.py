"""Log calls that only some ranks make: rank 0, the last, every one, or each text once; names with values.

Separate from the monitor because they are for code that holds none: each asks for the process's own. A call
that this rank drops looks at one number and returns; none formats its message, and none raises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType, SimpleNamespace
from typing import Any

import rankside

__all__ = [
    "debug_rank_0",
    "debug_rank_all",
    "error_rank_0",
    "error_rank_all",
    "log_dict_aligned",
    "log_kv_rank_0",
    "log_once",
    "log_rank_0",
    "log_rank_all",
    "log_rank_last",
    "warning_rank_0",
    "warning_rank_all",
]
KEY_WIDTH = 20  # of a name in log_kv_rank_0, as in Primus
_RULE = "-" * 80  # above and below a block, as in Primus
_DEPTH = 20  # of groups in groups; one that holds itself must not end a training
_MOST_SAID = 10_000  # texts of log_once that are remembered
_said: set[str] = set()


def log_rank_0(message: object, *args: Any, **kwargs: Any) -> None:
    """INFO from rank 0. What follows the message is taken and left aside, as Primus does."""
    if not rankside.current().rank:
        _log("INFO", message, sys._getframe(1))


def log_rank_last(message: object, *args: Any, **kwargs: Any) -> None:
    """INFO from the last rank."""
    if rankside.current().is_last:
        _log("INFO", message, sys._getframe(1))


def log_rank_all(message: object, *args: Any, **kwargs: Any) -> None:
    """INFO from every rank."""
    _log("INFO", message, sys._getframe(1))


def debug_rank_0(message: object, *args: Any, **kwargs: Any) -> None:
    """DEBUG from rank 0."""
    if not rankside.current().rank:
        _log("DEBUG", message, sys._getframe(1))


def debug_rank_all(message: object, *args: Any, **kwargs: Any) -> None:
    """DEBUG from every rank."""
    _log("DEBUG", message, sys._getframe(1))


def warning_rank_0(message: object, *args: Any, **kwargs: Any) -> None:
    """WARNING from rank 0."""
    if not rankside.current().rank:
        _log("WARNING", message, sys._getframe(1))


def warning_rank_all(message: object, *args: Any, **kwargs: Any) -> None:
    """WARNING from every rank."""
    _log("WARNING", message, sys._getframe(1))


def error_rank_0(message: object, *args: Any, **kwargs: Any) -> None:
    """ERROR from rank 0."""
    if not rankside.current().rank:
        _log("ERROR", message, sys._getframe(1))


def error_rank_all(message: object, *args: Any, **kwargs: Any) -> None:
    """ERROR from every rank."""
    _log("ERROR", message, sys._getframe(1))


def log_once(message: object, level: str | int = "INFO") -> None:
    """Each text once in this process, from every rank."""
    text = shown(message)
    if text not in _said and len(_said) < _MOST_SAID:
        _said.add(text)
        _log(level, text, sys._getframe(1))


def log_kv_rank_0(key: object, value: object) -> None:
    """`name:               value`, from rank 0."""
    if not rankside.current().rank:
        _log("INFO", key_value(key, value), sys._getframe(1))


def log_dict_aligned(title: str, data: Any, indent: str = "  ", rank_filter: str = "rank_0") -> None:
    """Names, values and their types in columns, sorted, below `title: (n parameters)`, between two rules.

    `data` is a mapping or a namespace; groups in it are flattened to `group.name`. `rank_filter` is rank_0,
    rank_last or rank_all; another one counts as rank_0.
    """
    wanted = rank_filter if isinstance(rank_filter, str) else "rank_0"
    if not FILTERS.get(wanted, FILTERS["rank_0"])(rankside.current()):
        return
    try:
        lines = aligned(title, data, indent)
    except Exception as error:  # noqa: BLE001  a foreign mapping may raise anything
        lines = [f"{shown(title)}: cannot be shown: {type(error).__name__}"]
    for line in lines:
        _log("INFO", line, sys._getframe(1))


def aligned(title: str, data: Any, indent: str = "  ") -> list[str]:
    """The lines of `log_dict_aligned`."""
    named = sorted(_flat(data).items())
    if not named:
        return [_RULE, f"{title}: (empty)", _RULE]
    width = max(len(name) for name, _ in named)
    rows = [f"{indent}{name:<{width}} : {shown(value)} ({type(value).__name__})" for name, value in named]
    return [_RULE, f"{title}: ({len(named)} parameters)", *rows, _RULE]


def _flat(data: Any, prefix: str = "", depth: int = _DEPTH) -> dict[str, Any]:
    """By dotted names. Groups are dicts and SimpleNamespaces, as in Primus; empty ones vanish."""
    values = data if isinstance(data, Mapping) else vars(data) if hasattr(data, "__dict__") else {}
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{shown(key)}" if prefix else shown(key)
        group = depth and isinstance(value, dict | SimpleNamespace)
        found.update(_flat(value, name, depth - 1) if group else {name: value})
    return found


FILTERS: dict[str, Callable[[Any], bool]] = {
    "rank_0": lambda monitor: not monitor.rank,
    "rank_last": lambda monitor: bool(monitor.is_last),
    "rank_all": lambda _monitor: True,
}


def _log(level: Any, message: object, frame: FrameType) -> None:
    monitor = rankside.current()
    number, name = monitor._level(level)
    stem = str(frame.f_globals.get("__name__", "")).rpartition(".")[2]
    monitor._log(number, name, stem, frame.f_lineno, shown(message))


def key_value(key: object, value: object = "") -> str:
    """The text of `log_kv_rank_0`."""
    return f"{shown(key)}:".ljust(KEY_WIDTH) + shown(value)


def shown(value: object) -> str:
    """Its text, whatever its __str__ does."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  a __str__ may raise anything
        return f"<{type(value).__name__}: {type(error).__name__}>"
