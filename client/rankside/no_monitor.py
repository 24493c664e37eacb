"""The monitor of a process that is not monitored: every call is taken and nothing is done.

Separate so that library code may always call, and that a reader sees at a glance how little happens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rankside.client import Monitor
from rankside.level import INFO, Level
from rankside.transport import warn

_YES = frozenset(("1", "true", "yes", "on"))
_NO = frozenset(("", "0", "false", "no", "off"))
_warned: set[str] = set()


def disabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether RANKSIDE_DISABLE asks for it: anything but an empty one, 0, false, no and off does."""
    said = environ.get("RANKSIDE_DISABLE", "").strip().lower()
    if said not in _YES | _NO and said not in _warned:
        _warned.add(said)
        warn(f"RANKSIDE_DISABLE: {said[:100]!r} counts as 1, nothing is monitored; choices: 1, 0")
    return said not in _NO


class NoMonitor(Monitor):
    """Stands in before `init` and under RANKSIDE_DISABLE: takes every call and does nothing."""

    def __init__(self) -> None:
        """Opens nothing: what Monitor sets up is not there, and no method here looks for it."""

    def __repr__(self) -> str:
        return "<rankside.NoMonitor>"

    @property
    def exp_root(self) -> str:
        """No folder."""
        return ""

    @property
    def config(self) -> dict[str, Any]:
        """No parameters."""
        return {}

    @property
    def rank(self) -> int | None:
        """None is told."""
        return None

    @property
    def world_size(self) -> int:
        """As of a process that knows of no other."""
        return 1

    @property
    def is_last(self) -> bool:
        """It is the only one."""
        return True

    @property
    def logging_level(self) -> int:
        """INFO."""
        return 20

    @property
    def lost(self) -> int:
        """Nothing is taken, so nothing is lost."""
        return 0

    def metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Nothing."""

    def throughput(self, /, step: int | None = None, **fields: Any) -> None:
        """Nothing."""

    def params(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Nothing."""

    def event(self, name: str = "", /, **fields: Any) -> None:
        """Nothing."""

    def artifact(self, path: str | os.PathLike[str]) -> None:
        """Nothing."""

    def log(self, message: object = None, /, level: str | int = "INFO", **fields: Any) -> None:
        """Nothing."""

    def capture_logging(
        self, level: str | int | None = None, console: bool = False, print: bool = False, fds: bool = False
    ) -> None:
        """Nothing."""

    def set_module(self, name: str = "", /, **levels: str) -> None:
        """Nothing."""

    def _level(self, given: Any) -> Level:
        """Nobody hears it."""
        return INFO

    def _log(self, *_given: Any, **_named: Any) -> None:
        """Nothing."""

    def close(self, status: str | None = None) -> None:
        """Nothing."""

    def __enter__(self) -> NoMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing."""
