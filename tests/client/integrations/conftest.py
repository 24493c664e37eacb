"""A monitor that only remembers what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rankside import Monitor


class Told(Monitor):
    """Takes every call and opens nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        self.calls.append(("metrics", (step, dict(values))))

    def throughput(self, step: int | None = None, **fields: Any) -> None:
        self.calls.append(("throughput", (step, fields)))

    def params(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.calls.append(("params", {**dict(values or {}), **more}))

    def event(self, name: str, **fields: Any) -> None:
        self.calls.append(("event", (name, fields)))

    def artifact(self, path: Any) -> None:
        self.calls.append(("artifact", str(path)))

    def log(self, message: object, level: str = "INFO", **fields: Any) -> None:
        self.calls.append(("log", str(message)))

    def capture_logging(self, level: str | int | None = None) -> None:
        self.calls.append(("capture_logging", level))

    def _log(self, level_no: int, level: str, file: str, line: int, text: str, at: float = 0.0) -> None:
        self.calls.append(("captured", text))

    @property
    def exp_root(self) -> str:
        return "/exp"

    def of(self, kind: str) -> list[Any]:
        """What came by one kind of call."""
        return [what for name, what in self.calls if name == kind]

    def points(self, name: str) -> list[tuple[int | None, Any]]:
        """A metric's values with their steps."""
        return [(step, values[name]) for step, values in self.of("metrics") if name in values]

    def __repr__(self) -> str:
        return f"<{len(self.calls)} calls>"


@pytest.fixture
def told() -> Told:
    return Told()


class Unfit:
    """A foreign value with which nothing can be done."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("out of order")

    def __str__(self) -> str:
        raise RuntimeError("out of order")


@pytest.fixture
def unfit() -> Unfit:
    return Unfit()
