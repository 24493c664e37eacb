"""A place of its own for each test: spool, endpoint and environment below one short temporary path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import rankside
from rankside import client, wire
from rankside.leftover import Leftover
from rankside.wire import Kind, Message

PATIENCE = 30.0  # seconds; what fails, fails after this
OF_LAUNCHERS = ("RANKSIDE_", "PRIMUS_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "MPI_")
OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture
def here() -> Iterator[Path]:
    """A folder with a short name: a socket's path has 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher, no agent, no spool but this test's; every monitor is closed at the end."""
    for name in list(os.environ):
        if name.startswith(OF_LAUNCHERS) or name in OF_TORCHRUN:
            monkeypatch.delenv(name)
    monkeypatch.setenv("RANKSIDE_SPOOL_DIR", str(here / "spool"))
    monkeypatch.setenv("RANKSIDE_ENDPOINT", f"ipc://{here}/a.sock")
    monkeypatch.setattr(rankside, "_current", rankside.NoMonitor())
    yield
    for monitor in list(client._LIVING):
        monitor._options = client.Options(flush_seconds=0)
        monitor.close()


@pytest.fixture
def until() -> Callable[..., Any]:
    """Wait for an event, with a deadline; returns what became true."""

    def wait(true: Callable[[], Any], what: str = "an event", patience: float = PATIENCE) -> Any:
        deadline = time.monotonic() + patience
        while not (found := true()):
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.005)
        return found

    return wait


@pytest.fixture
def start(here: Path) -> Callable[..., Any]:
    """`rankside.init` of a rank that nobody listens to, and that does not wait for anyone when it leaves."""

    def begin(**given: Any) -> Any:
        wanted = {"exp_root": here / "exp", "rank": 0, "world_size": 1, "flush_seconds": 0}
        wanted |= {"endpoint": f"ipc://{here}/a.sock", "spool_bytes": 16 << 20, **given}
        return rankside.init(**wanted)

    return begin


def stored(folder: Path, after: int = 0) -> list[tuple[int, Kind, list[Any]]]:
    """Every whole record of a spool: (sequence number, kind, fields)."""
    found = []
    for seq, kind, frame in Leftover(folder).frames(after):
        found.append((seq, Kind(kind), wire.unpack(frame[wire.HEAD.size :])))
    return found


def spools(here: Path) -> list[Path]:
    """The spools that lie below a test's folder, in the order in which they were begun: pids begin anew."""
    found = sorted((here / "spool").glob("*/*/channel"), key=lambda path: path.stat().st_mtime_ns)
    return [path.parent for path in found]


@pytest.fixture
def records(here: Path) -> Callable[..., list[Any]]:
    """The fields of all records of one kind: of a monitor, of a spool's folder, or of the only spool."""

    def find(kind: Kind | None = None, where: Any = None) -> list[Any]:
        if where is None:
            (folder,) = spools(here)
        else:
            folder = where if isinstance(where, Path) else where._spool.folder
        return [fields for _, each, fields in stored(folder) if kind is None or each == kind]

    return find


@pytest.fixture
def texts(records: Callable[..., list[Any]]) -> Callable[..., list[str]]:
    """The texts of all log records, in order."""
    return lambda where=None: [fields[5] for fields in records(Kind.LOG, where)]


@pytest.fixture
def every_spool(here: Path) -> Callable[[], dict[Path, list[tuple[int, Kind, list[Any]]]]]:
    """All spools below the test's folder, with their records."""
    return lambda: {folder: stored(folder) for folder in spools(here)}


class Script:
    """A real process that runs Python; ended, if need be, by its own id."""

    def __init__(self, here: Path, body: str, args: tuple[str, ...], env: dict[str, str]) -> None:
        number = len(list(here.glob("script-*.py")))
        self.path = here / f"script-{number}.py"
        self.path.write_text(textwrap.dedent(body))
        self.process = subprocess.Popen(
            [sys.executable, str(self.path), *args],
            cwd=here,
            # from 3.12 on, Python warns of every fork of a process with threads; the tests are about them
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore:This process", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )
        self.pid = self.process.pid

    def line(self) -> str:
        """The next line it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self, patience: float = PATIENCE) -> tuple[int, str, str]:
        """Wait for it: (status, stdout, stderr)."""
        out, err = self.process.communicate(timeout=patience)
        return self.process.returncode, out, err

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def script(here: Path) -> Iterator[Callable[..., Script]]:
    """Start a Python script in a process of its own."""
    started: list[Script] = []

    def run(body: str, *args: str, **env: str) -> Script:
        started.append(Script(here, body, args, env))
        return started[-1]

    yield run
    for each in started:
        each.close()


@pytest.fixture
def run(script: Callable[..., Script]) -> Callable[..., tuple[str, str]]:
    """Run a Python script to its end; its output, once it ended well."""

    def through(body: str, *args: str, **env: str) -> tuple[str, str]:
        status, out, err = script(body, *args, **env).end()
        assert status == 0, err
        return out, err

    return through


class FakeAgent:
    """A ROUTER in the test's hands: it answers what it is told to, or behaves as an agent does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(f"ipc://{path}")
        self.hellos: list[dict[str, Any]] = []
        self.batches: list[tuple[int, int]] = []  # (first, last) of every batch that came
        self.beats: list[dict[str, Any]] = []
        self.held: dict[str, dict[int, tuple[Kind, Any]]] = {}  # channel -> sequence number -> record
        self.twice = 0
        self._peers: dict[bytes, str] = {}

    def take(self, patience: float = PATIENCE) -> tuple[bytes, bytes, bytes]:
        """The next message: (peer, kind, payload)."""
        assert self.socket.poll(int(patience * 1000)), "no message came"
        peer, kind, payload = self.socket.recv_multipart()
        return peer, kind, payload

    def expect(self, kind: bytes, patience: float = PATIENCE) -> tuple[bytes, bytes]:
        """The next message of a kind; heartbeats before it are passed over."""
        deadline = time.monotonic() + patience
        while True:
            peer, found, payload = self.take(max(0, deadline - time.monotonic()))
            if found == kind:
                return peer, payload
            assert found in (Message.BEAT, Message.HELLO), f"{found!r} came where {kind!r} was due"

    def hello(self, patience: float = PATIENCE) -> tuple[bytes, dict[str, Any]]:
        peer, payload = self.expect(Message.HELLO, patience)
        return peer, wire.unpack(payload)

    def batch(self, patience: float = PATIENCE) -> tuple[bytes, int, int]:
        """The next batch: (peer, first, last)."""
        peer, payload = self.expect(Message.BATCH, patience)
        found = wire.batch(payload)
        return peer, found[0].seq, found[-1].seq

    def batches_to(self, last: int) -> list[int]:
        """The sequence numbers of all batches up to the one that ends with `last`."""
        found: list[int] = []
        while not found or found[-1] != last:
            _, first, end = self.batch()
            found += range(first, end + 1)
        return found

    def nothing(self, seconds: float, but: tuple[bytes, ...] = (Message.BEAT,)) -> None:
        """Nothing but heartbeats comes for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self.socket.poll(int(left * 1000) + 1):
                kind = self.socket.recv_multipart()[1]
                assert kind in but, f"{kind!r} came"

    def tell(self, peer: bytes, kind: bytes, payload: bytes = b"") -> None:
        self.socket.send_multipart([peer, kind, payload])

    def welcome(self, peer: bytes, last: int = 0, agent: str = "fake") -> None:
        self.tell(peer, Message.WELCOME, wire.pack({"last": last, "agent": agent}))

    def ack(self, peer: bytes, last: int) -> None:
        self.tell(peer, Message.ACK, wire.SEQ.pack(last))

    def serve(self, done: Callable[[], Any], what: str = "records", patience: float = PATIENCE) -> None:
        """Behave as an agent does until `done`."""
        deadline = time.monotonic() + patience
        while not done():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            if self.socket.poll(5):
                self._answer(*self.socket.recv_multipart())

    def _answer(self, peer: bytes, kind: bytes, payload: bytes) -> None:
        if kind == Message.HELLO:
            said = wire.unpack(payload)
            self.hellos.append(said)
            held = self.held.setdefault(said["channel"], {})
            held.setdefault(said["first"] - 1, (Kind.LOG, None))
            self._peers[peer] = said["channel"]
            self.welcome(peer, max(held))
        elif peer not in self._peers:
            self.tell(peer, Message.WHO)
        elif kind == Message.BATCH:
            self._store(peer, payload)
        else:
            self.beats.append(wire.unpack(payload))
            self.ack(peer, max(self.held[self._peers[peer]]))

    def _store(self, peer: bytes, payload: bytes) -> None:
        held, found = self.held[self._peers[peer]], wire.batch(payload)
        self.batches.append((found[0].seq, found[-1].seq))
        if found[0].seq > max(held) + 1:
            self.welcome(peer, max(held))
            return
        for frame in found:
            self.twice += frame.seq in held
            held.setdefault(frame.seq, (Kind(frame.kind), wire.unpack(wire.body(payload, frame))))
        self.ack(peer, max(held))

    def records(self, channel: str | None = None) -> list[tuple[int, Kind, Any]]:
        """All it holds of a channel, or of the only one."""
        if channel is None:
            (channel,) = self.held
        return [(seq, kind, fields) for seq, (kind, fields) in sorted(self.held[channel].items()) if fields]

    def logs(self, channel: str | None = None) -> list[str]:
        return [fields[5] for _, kind, fields in self.records(channel) if kind == Kind.LOG]

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def fake_agent(here: Path) -> Iterator[Callable[..., FakeAgent]]:
    """Bind a fake agent; more than one may follow each other at the same path."""
    made: list[FakeAgent] = []

    def bind(path: Path | None = None) -> FakeAgent:
        made.append(FakeAgent(path or here / "a.sock"))
        return made[-1]

    yield bind
    for each in made:
        each.close()
