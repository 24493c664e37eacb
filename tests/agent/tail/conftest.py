"""A run's log folder as the agent writes it, and `rankside tail` as a process."""

from __future__ import annotations

import gzip
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankside_agent.lines import LEVEL_FILES
from rankside_agent.tail.assembly import Kind
from rankside_agent.tail.line import Head, level_line, node_line
from rankside_agent.tail.log import Log
from rankside_agent.tail.record import LEVELS, Record, Source

SECONDS = 20.0  # until an event that is sure to come; a busy machine is slow


def level_text(rank: object, text: str, at: str = "20260102 03:04:05", level: str = "INFO", world: int = 8) -> str:
    """A record as level files have it."""
    head = f"[{at[:17]}][user/team][pretrain   ][ip-10.0.0.7][rank-{rank}/{world}]"
    return f"{head}{f'[{level}]':<11}[{'train.py:215':->23}] : {text}\n"


def node_text(
    rank: object, text: str, at: str = "20260102 03:04:05.000001", level: str = "INFO", world: int = 8
) -> str:
    """A record as node logs have it."""
    head = f"[{at}][rank-{rank}/{world}]{f'[{level}]':<11}"
    first, *others = text.split("\n")
    return "".join([f"{head}[{'train.py:215':->23}] : {first}\n", *(f"{head}| {line}\n" for line in others)])


class Run:
    """A run's folder: writes the same record to the node log and the rank's level files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs"

    def node(self, host: str = "a", module: str = "pretrain") -> Path:
        return self._made(self.logs / module / f"node-{host}.log")

    def level(self, rank: object, name: str = "debug", module: str = "pretrain") -> Path:
        return self._made(self.logs / module / f"rank-{rank}" / f"{name}.log")

    def say(
        self,
        rank: object,
        text: str,
        at: str = "20260102 03:04:05.000001",
        level: str = "INFO",
        host: str = "a",
        module: str = "pretrain",
    ) -> None:
        append(self.node(host, module), node_text(rank, text, at, level))
        for name, least in LEVEL_FILES:
            if LEVELS[level] >= least:
                append(self.level(rank, name, module), level_text(rank, text, at, level))

    def _made(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def append(path: Path, text: str | bytes) -> None:
    with open(path, "ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def rotate(path: Path, stamp: str, *, packed: bool = False) -> Path:
    """Rename the live file as the agent does; the next append makes a new one."""
    target = path.with_name(f"{path.stem}.{stamp}.log")
    os.rename(path, target)
    if packed:
        target = pack(target)
    return target


def pack(path: Path) -> Path:
    target = path.with_name(f"{path.name}.gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return target


def stamp(number: int) -> str:
    """Rotation stamps in order."""
    return f"2026-01-02_03-{number // 60:02d}-{number % 60:02d}_000000"


class Tail:
    """`rankside tail` in a process of its own; its lines are waited for, never slept for."""

    def __init__(self, *arguments: object, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rankside_agent", "tail", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        self.lines: list[str] = []
        self.notices: list[str] = []
        self._events: queue.Queue[None] = queue.Queue()
        self._readers = [self._reader(self.process.stdout, self.lines), self._reader(self.process.stderr, self.notices)]

    def wait_for(self, what: Callable[[], object], seconds: float = SECONDS) -> None:
        """Until it holds; it is asked again after each line."""
        deadline = time.monotonic() + seconds
        while not what():
            left = deadline - time.monotonic()
            assert left > 0, f"not within {seconds} s; lines {self.lines[-5:]}, notices {self.notices[-5:]}"
            try:
                self._events.get(timeout=min(left, 0.5))
            except queue.Empty:
                continue

    def wait_for_line(self, part: str) -> None:
        self.wait_for(lambda: any(part in line for line in list(self.lines)))

    def wait_for_notice(self, part: str) -> None:
        self.wait_for(lambda: any(part in line for line in list(self.notices)))

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.finish()

    def finish(self) -> int:
        status = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.finish()

    def _reader(self, stream: object, into: list[str]) -> threading.Thread:
        def read() -> None:
            with stream:  # type: ignore[attr-defined]
                for line in stream:  # type: ignore[attr-defined]
                    into.append(line.decode())
                    self._events.put(None)
            self._events.put(None)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture
def tail() -> Iterator[Callable[..., Tail]]:
    started: list[Tail] = []

    def start(*arguments: object, **options: dict[str, str]) -> Tail:
        started.append(Tail(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()
