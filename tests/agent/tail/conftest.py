"""A run's log folder as the agent writes it, and `rankside tail` as a process."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rankside_agent.lines import LEVEL_FILES
from rankside_agent.tail import line as parse
from rankside_agent.tail.assembly import Kind
from rankside_agent.tail.line import Head, seconds
from rankside_agent.tail.log import Log
from rankside_agent.tail.record import LEVELS, Record, Source

SOURCE = Source("pretrain", "pretrain", "a")
NOON = "20260102 12:00:00.000001"
SECONDS = 20.0  # until an event that is sure to come; a busy machine is slow


def level_line(rank: object, text: str, at: str = NOON, level: str = "INFO", world: int = 8) -> str:
    """A record as level files have it."""
    head = f"[{at[:17]}][user/team][pretrain   ][ip-10.0.0.7][rank-{rank}/{world}]"
    return f"{head}{f'[{level}]':<11}[{'train.py:215':->23}] : {text}\n"


def node_line(rank: object, text: str, at: str = NOON, level: str = "INFO", world: int = 8) -> str:
    """A record as node logs have it."""
    head = f"[{at}][rank-{rank}/{world}]{f'[{level}]':<11}"
    first, *others = text.split("\n")
    return "".join([f"{head}[{'train.py:215':->23}] : {first}\n", *(f"{head}| {line}\n" for line in others)])


class Run:
    """A run's folder: writes the same record to the node log and to the rank's level files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs"
        self.notices: list[str] = []

    def node(self, host: str = "a", module: str = "pretrain") -> Path:
        return self._made(self.logs / module / f"node-{host}.log")

    def level(self, rank: object, name: str = "debug", module: str = "pretrain") -> Path:
        return self._made(self.logs / module / f"rank-{rank}" / f"{name}.log")

    def say(self, rank: object, text: str, at: str = NOON, level: str = "INFO", **where: str) -> None:
        """One record in every file the agent would write it to; `where`: host, module."""
        self.append(self.node(**where), node_line(rank, text, at, level))
        module = where.get("module", "pretrain")
        for name, least in LEVEL_FILES:
            if LEVELS[level] >= least:
                self.append(self.level(rank, name, module), level_line(rank, text, at, level))

    def append(self, path: Path, text: str | bytes) -> None:
        with open(self._made(path), "ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def rotate(self, path: Path, number: int, *, packed: bool = False) -> Path:
        """Rename the live file as the agent does; the next append makes a new one."""
        target = path.with_name(f"{path.stem}.2026-01-02_03-{number // 60:02d}-{number % 60:02d}_000000.log")
        os.rename(path, target)
        return self.pack(target) if packed else target

    def pack(self, path: Path) -> Path:
        target = path.with_name(f"{path.name}.gz")
        target.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        return target

    def log(self, path: Path) -> Log:
        """A log as tail finds it; what it has to say lands in `notices`."""
        node = path.name.startswith("node-")
        source = Source("pretrain", "pretrain", path.stem.removeprefix("node-") if node else None)
        label = path.parent.name.removeprefix("rank-")
        blank = Head("", "", label, "?", "", "", "")
        kind = Kind(parse.node_line if node else parse.level_line, source, blank)
        return Log(path.parent, path.stem, kind, self.notices.append)

    def _made(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


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
        self._event = threading.Event()
        self._readers = [
            self._reader(self.process.stdout, self.lines),
            self._reader(self.process.stderr, self.notices),
        ]

    def wait_for(self, what: Callable[[], object], seconds: float = SECONDS) -> None:
        """Until it holds; it is asked again after each line."""
        deadline = time.monotonic() + seconds
        while not what():
            left = deadline - time.monotonic()
            assert left > 0, f"not within {seconds} s; lines {self.lines[-5:]}, notices {self.notices[-5:]}"
            self._event.wait(min(left, 0.5))
            self._event.clear()

    def wait_for_line(self, part: str) -> None:
        self._wait_for_part(self.lines, part)

    def wait_for_notice(self, part: str) -> None:
        self._wait_for_part(self.notices, part)

    def _wait_for_part(self, lines: list[str], part: str) -> None:
        seen = 0

        def came() -> bool:
            nonlocal seen
            begin, seen = seen, len(lines)
            return any(part in line for line in lines[begin:seen])

        self.wait_for(came)

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
                    self._event.set()
            self._event.set()

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Run]:
    """A new run at each call, for tests that need many."""
    return lambda: Run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="session")
def level_text() -> Callable[..., str]:
    return level_line


@pytest.fixture(scope="session")
def node_text() -> Callable[..., str]:
    return node_line


@pytest.fixture(scope="session")
def record() -> Callable[..., Record]:
    """A record of a rank that says something at so many seconds after noon."""

    def make(rank: object, text: str = "text", at: float | None = 0.0, **fields: object) -> Record:
        moment = None if at is None else datetime(2026, 1, 2, 12) + timedelta(seconds=at)
        stamp = moment.strftime("%Y%m%d %H:%M:%S.%f") if moment else "-------- --:--:--"
        made = Record(stamp, seconds(stamp), str(rank), "8", "INFO", "train.py:215", text, SOURCE)
        return made._replace(**fields)

    return make


@pytest.fixture
def tail() -> Iterator[Callable[..., Tail]]:
    started: list[Tail] = []

    def start(*arguments: object, **options: dict[str, str]) -> Tail:
        started.append(Tail(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()
