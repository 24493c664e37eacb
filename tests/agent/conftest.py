"""What the agent's tests share: waiting for events, records as a rank packs them, what a channel is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankside import wire
from rankside.identity import Hello
from rankside.wire import Kind
from rankside_agent.config import Settings
from rankside_agent.gauges import Seen
from rankside_agent.journal import Entry, Journal, Reader
from rankside_agent.logfile import Rotation, rotated
from rankside_agent.logfiles import LogFiles
from rankside_agent.progress import Channel
from rankside_agent.registry import Registry
from rankside_agent.runs import Run

PATIENCE = 30.0  # seconds; what fails, fails after this


def wait_until(true: Callable[[], object], what: str = "", patience: float = PATIENCE) -> None:
    """Wait for an event, with a deadline."""
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.005)


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits for an event."""
    return wait_until


def seal_all(first: int, bodies: Iterable[tuple[Kind, Any]]) -> bytes:
    return b"".join(wire.seal(first + at, kind, wire.pack(body)) for at, (kind, body) in enumerate(bodies))


@pytest.fixture
def sealed() -> Callable[[int, Iterable[tuple[Kind, Any]]], bytes]:
    """Frames of records, numbered from `first` on, as one batch of a rank holds them."""
    return seal_all


@pytest.fixture
def logged() -> Callable[..., bytes]:
    """Frames of INFO lines, numbered from `first` on."""

    def make(first: int, *texts: str, level: int = 20, name: str = "INFO", at: float = 1.7e9) -> bytes:
        return seal_all(first, [(Kind.LOG, (at, level, name, "train", 7, text)) for text in texts])

    return make


@pytest.fixture
def hello(tmp_path: Path) -> Callable[..., Hello]:
    """What a rank says of itself; any field can be given."""

    def make(rank: int | None = 0, **more: Any) -> Hello:
        label = more.pop("label", f"here-{more.get('pid', 4000)}" if rank is None else str(rank))
        fields: dict[str, Any] = {
            "channel": f"here-{label}-a",
            "exp_root": str(tmp_path / "exp"),
            "exp_name": "exp",
            "user": "user",
            "team": "team",
            "module": "pretrain",
            "role": "worker",
            "rank": rank,
            "label": label,
            "world_size": 8,
            "local_rank": rank,
            "host": "here",
            "node_ip": "10.0.0.7",
            "pid": 4000 + (rank or 0),
            "parent": None,
            "job": "job-1",
            "shared_job": True,
            "started": 1.7e9,
            "spool": "/nonexistent/spool",
        }
        return Hello(**{**fields, **more})

    return make


@pytest.fixture
def info(hello: Callable[..., Hello]) -> Callable[..., dict[str, Any]]:
    """What a journal holds of a channel."""

    def make(rank: int | None = 0, **more: Any) -> dict[str, Any]:
        own = {"attempt": 1, "log_root": "logs", "file_level": 10, "opened": 1.7e9, "last": 0}
        own.update({name: more.pop(name) for name in list(more) if name in own})
        return {**hello(rank, **more).packed(), **own}

    return make


class Scene:
    """A journal, what reads it into files, and a clock that stands until told."""

    def __init__(self, root: Path, info: Callable[..., dict[str, Any]]) -> None:
        self.root, self._info = root, info
        self.exp = root / "exp"
        self.rotation = Rotation(10_000_000, None, False)
        self.journal = Journal(root / "journal")
        self.now = 100.0
        self.reports: list[str] = []
        self.last: dict[int, int] = {}
        self.step_bytes = 1 << 20
        self.files = self.take_up()

    def take_up(self) -> LogFiles:
        """As an agent does that was just started."""
        self.files = LogFiles(
            self.journal.folder,
            self.root / "logfiles.json",
            self.exp,
            self.rotation,
            self.reports.append,
            clock=lambda: self.now,
        )
        self.files._step_bytes = self.step_bytes
        return self.files

    def channel(self, rank: int | None = 0, **more: Any) -> int:
        index = len(self.last) + 1
        self.last[index] = more.get("last", 0)
        self.journal.open_channel(index, self._info(rank, **{"channel": f"channel-{index}", **more}))
        return index

    def put(self, channel: int, *records: tuple[Kind, Any]) -> None:
        first = self.last[channel] + 1
        self.last[channel] += len(records)
        frames = seal_all(first, records)
        self.journal.batch(channel, first, self.last[channel], len(records), frames)

    def log(self, channel: int, *texts: str, level: int = 20, name: str = "INFO", at: float = 1.7e9) -> None:
        self.put(channel, *((Kind.LOG, (at, level, name, "train", 7, text)) for text in texts))

    def drain(self, files: LogFiles | None = None) -> None:
        """As far as it goes without time passing."""
        files = files or self.files
        while files.advance():
            pass

    def wait(self, seconds: float = 60.0) -> None:
        """Time passes, and what may be tried again is."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            self.drain()

    def path(
        self, rank: int | str = 0, level: str = "debug", module: str = "pretrain", root: str = "logs"
    ) -> Path:
        return self.exp / root / module / f"rank-{rank}" / f"{level}.log"

    def node_path(self, module: str = "pretrain") -> Path:
        return self.exp / "logs" / module / "node-here.log"

    def text(self, path: Path) -> str:
        """Of the rotated files and the live one."""
        return "".join(each.read_text() for each in [*rotated(path), path] if each.exists())

    def texts(self, *where: Any, **more: Any) -> list[str]:
        """What stands behind the location in each first line."""
        return re.findall(r"^\[.*?\] : (.*)$", self.text(self.path(*where, **more)), re.M)

    def node_texts(self, module: str = "pretrain") -> list[str]:
        return re.findall(r"^\[.*?\] : (.*)$", self.text(self.node_path(module)), re.M)


@pytest.fixture
def scene(tmp_path: Path, info: Callable[..., dict[str, Any]]) -> Scene:
    """A run's journal and log files, without a thread or a process."""
    return Scene(tmp_path, info)


class House:
    """A node's runs without a socket: what the agent's loop does with them, step by step."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root, self.state = root, root / "state"
        self.settings = Settings(**{"finish_after_seconds": 0.0, "segment_bytes": 1 << 16, **settings})
        self.reports: list[str] = []
        self.polls: list[Callable[[Seen | None], None]] = []  # that wait for the node's GPUs
        self.registry = self.start()

    def start(self) -> Registry:
        """An agent that was just started, or started again after it was killed."""
        self.registry = Registry(
            self.state, self.settings, self.reports.append, lambda: None, self.polls.append
        )
        return self.registry

    def kill(self) -> None:
        """Without a goodbye; only the threads end, for they are this test's own."""
        for run in self.registry.runs.values():
            run.writer.stop(0.0)
            run.writer.join(PATIENCE)
            run.claims.stop()
        self.registry.runs.clear()

    def ask(self, hello: Hello, first: int = 1) -> list[tuple[Run, Channel]]:
        """Ask for a channel; it appears in the list."""
        found: list[tuple[Run, Channel]] = []
        self.registry.open(hello, first, lambda run, channel: found.append((run, channel)))
        return found

    def open(self, hello: Hello, first: int = 1) -> tuple[Run, Channel]:
        """Open a channel, to its end."""
        found = self.ask(hello, first)

        def opened() -> bool:
            self.registry.settle()
            return bool(found)

        wait_until(opened, f"{hello.channel} is open; {self.reports}")
        return found[0]

    def tick(self) -> None:
        self.registry.tick(time.monotonic())

    def finish(self) -> None:
        """Until no run is left."""

        def finished() -> bool:
            self.tick()
            return not self.registry.runs

        wait_until(finished, f"all runs finished; {self.reports}")

    def entries(self, run: Run, which: str = "logs") -> list[Entry]:
        reader, found = Reader(run.folder / "journal" / which), []
        while entries := reader.read():
            found += entries
        return found

    def sequence(self, run: Run, which: str = "logs") -> list[tuple[int, int]]:
        """(sequence number, kind) of every record of a journal."""
        return [
            (seq, kind)
            for entry in self.entries(run, which)
            if entry.records()
            for seq, kind, _ in entry.frames()
        ]

    def lines(self, path: Path) -> list[str]:
        """What stands behind the location."""
        return re.findall(r"^\[.*?\] : (.*)$", path.read_text(), re.M) if path.exists() else []


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A node's runs."""
    made = House(tmp_path)
    yield made
    made.kill()
