"""What grows in an agent while it is loaded: memory, descriptors, threads, and its state folder."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

LONG = os.environ.get("RANKSIDE_CHAOS", "short") == "long"


def _e2e() -> Any:
    """The node of the e2e tests; folders of tests are no packages."""
    path = Path(__file__).parents[1] / "e2e" / "conftest.py"
    spec = importlib.util.spec_from_file_location("e2e_node", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_node = _e2e()
node = _node.node
numbers = _node.numbers


@pytest.fixture
def size() -> Callable[[Any, Any], Any]:
    """The size of a load: the short one of CI, or the long one."""
    return lambda short, long: long if LONG else short


class Look(NamedTuple):
    """One look at a process."""

    rss: int  # bytes
    descriptors: int
    threads: int


class Watch:
    """Looks at a process and its children twice a second."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self.looks: list[Look] = []
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def now(self) -> Look:
        """Of the agent alone: its sinks are processes that come and go."""
        with self._process.oneshot():
            return Look(self._process.memory_info().rss, self._process.num_fds(), self._process.num_threads())

    def end(self) -> None:
        self._ended.set()
        self._thread.join(10)

    def assert_flat(self, growth: float = 1.3) -> None:
        """The last quarter's greatest is no more than `growth` times the second quarter's."""
        quarter = len(self.looks) // 4
        early, late = self.looks[quarter : 2 * quarter], self.looks[-quarter:]
        assert early, "not looked at long enough"
        for field in Look._fields:
            before, after = (max(getattr(look, field) for look in looks) for looks in (early, late))
            assert after <= before * growth + 4, f"{field} grows: {before} to {after}"

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            try:
                self.looks.append(self.now())
            except psutil.Error:
                return


@pytest.fixture
def watch() -> Iterator[Callable[[int], Watch]]:
    begun: list[Watch] = []

    def begin(pid: int) -> Watch:
        begun.append(Watch(pid))
        return begun[-1]

    yield begin
    for each in begun:
        each.end()
