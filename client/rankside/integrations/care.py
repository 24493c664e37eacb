"""Calls that a framework makes into rankside: what goes wrong in one is said once and never reaches training.

Separate because every adapter needs it: so foreign values and foreign objects are caught in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import rankside
from rankside.transport import warn

P = ParamSpec("P")
R = TypeVar("R")
_said: set[str] = set()


def harmless(call: Callable[P, R]) -> Callable[P, R | None]:
    """`call`, which returns None instead of raising; the first error of each kind is told."""

    @wraps(call)
    def careful(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  a framework's objects may raise anything
            tell(f"{call.__qualname__}: {type(error).__name__}", error)
            return None

    return careful


def tell(what: str, detail: object = "") -> None:
    """A warning on the console and in the log, once each `what` in a process; a `detail` may differ."""
    if what in _said:
        return
    _said.add(what)
    try:
        text = f"{what}: {str(detail)[:300]}; further ones of this kind are not shown" if detail else what
    except Exception:  # noqa: BLE001  an exception whose __str__ raises
        text = what
    warn(text)
    rankside.current().log(text, level="WARNING")


def chosen(monitor: rankside.Monitor | None) -> rankside.Monitor:
    """The one given, or this process's."""
    return rankside.current() if monitor is None else monitor


def active(monitor: rankside.Monitor) -> bool:
    """Whether anybody listens: not before `init`, nor with RANKSIDE_DISABLE=1."""
    return not isinstance(monitor, rankside.NoMonitor)
