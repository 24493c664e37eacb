"""The monitor of one process: stamps records, puts them into the spool, and never raises into training.

Separate from the spool and the transport because it is what a training loop holds: it knows calls and
lifetimes (fork, exit), and nothing of files or sockets.
"""

from __future__ import annotations

import atexit
import os
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from rankside import endpoint, record, wire
from rankside.identity import Hello
from rankside.parameters import LEVELS
from rankside.settings import DEFAULT_FLUSH
from rankside.spool import Spool
from rankside.transport import Transport, warn
from rankside.wire import Kind

STATUSES = ("finished", "failed", "killed")
_REOPEN = 5.0  # seconds between attempts where no folder had room for a spool


@dataclass(frozen=True)
class Options:
    """How a monitor behaves, apart from who it is."""

    endpoint: str | None = None
    spool_limit: int = 64 << 20  # bytes
    flush_seconds: float = DEFAULT_FLUSH


class Monitor:
    """What `rankside.init` returns. Any thread may call; no call raises, blocks or waits for the agent."""

    def __init__(self, hello: Hello, options: Options, notes: tuple[str, ...] = ()) -> None:
        self._hello = hello
        self._options = options
        self._pack = record.Packer()
        self._lock = threading.RLock()
        self._closed = False
        self._status: str | None = None
        self._refused: set[str] = set()
        self._undo: list[Callable[[], None]] = []
        self._spool: Spool | None = None
        self._transport: Transport | None = None
        self._not_before = 0.0
        self.lost = 0  # records that found no spool at all
        self._open()
        for note in notes:
            warn(note)
            self._log(30, "WARNING", "rankside", 0, note)
        _LIVING.add(self)

    # -- calls of a training loop --------------------------------------------------------------------

    def metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Named numbers of one step: Python and numpy numbers, 0-d tensors, one-element arrays."""
        try:
            body = self._pack((time.time(), step, values))
            if len(body) > wire.MAX_BODY:
                return self._in_halves(values, step)
            self._append(2, body)
        except Exception as error:  # noqa: BLE001
            self._refuse("metrics", error)

    def throughput(self, step: int | None = None, **fields: Any) -> None:
        """One sample of speed: elapsed_s, global_batch_size, seq_length, tflops and others, where known."""
        self._put(Kind.THROUGHPUT, step, fields)

    def params(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Parameters of the run; objects without a plain form become readable text."""
        try:
            self._put(Kind.PARAMS, record.tree({**dict(values or {}), **more}))
        except Exception as error:  # noqa: BLE001  not a mapping
            self._refuse("params", error)

    def event(self, name: str, **fields: Any) -> None:
        """Something that happened: a name and plain fields."""
        self._put(Kind.EVENT, record.cut(str(name)), record.tree(fields))

    def artifact(self, path: str | os.PathLike[str]) -> None:
        """A file for the trackers; the agent uploads it."""
        try:
            self._put(Kind.ARTIFACT, os.path.abspath(os.fspath(path)))
        except Exception as error:  # noqa: BLE001  not a path
            self._refuse("artifact", error)

    def log(self, message: object, level: str = "INFO", **fields: Any) -> None:
        """One log line. The message is taken as it is, never formatted; fields follow it as name=value."""
        try:
            name = str(level).upper()
            frame = sys._getframe(1)
            text = " ".join([str(message), *(f"{key}={value}" for key, value in fields.items())])
            stem = os.path.basename(frame.f_code.co_filename).removesuffix(".py")
            self._log(LEVELS.get(name, 20), name, stem, frame.f_lineno, text)
        except Exception as error:  # noqa: BLE001  a __str__ may raise anything
            self._refuse("log", error)

    def capture_logging(self, level: str | int | None = None) -> None:
        """Take what stdlib logging and loguru log from here on, and exceptions that nobody catches.

        `level` is the lowest taken, default INFO for the standard library (whose root logger is opened that
        far), everything for loguru. What these loggers print elsewhere stays as it is.
        """
        from rankside import logs

        try:
            with self._lock:
                if not self._undo and not self._closed:
                    self._undo = logs.capture(self, level)
        except ValueError:
            raise  # an unknown level, at start-up: the one thing worth stopping for
        except Exception as error:  # noqa: BLE001
            self._refuse("capture_logging", error)

    def set_module(self, name: str) -> None:
        """The next phase (pretrain, sft): new log folder, same run."""
        self._hello = replace(self._hello, module=str(name))
        self._put(Kind.MODULE, str(name))

    def close(self, status: str | None = None) -> None:
        """Say goodbye: "finished", "failed" or "killed". Waits at most `flush_seconds` for the agent."""
        with self._lock:
            if self._closed:
                return
            said = status if status in STATUSES else self._status or "finished"
            for undo in self._undo:
                _quietly(undo)
            self._undo = []
            if self._spool is not None:
                self._put(Kind.CLOSE, said)
            self._closed = True
            _LIVING.discard(self)
        self._leave()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and kind is not SystemExit and error is not None:
            from rankside.logs import exception_text

            self._log(50, "CRITICAL", *_place_of(trace), f"training ended by {exception_text(error)}")
        failed = "finished" if kind in (None, SystemExit) else "failed"
        self.close("killed" if kind is KeyboardInterrupt else failed)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<rankside.Monitor {self._hello.exp_name} rank {self._hello.label}/{self._hello.world_size} {state}>"

    @property
    def exp_root(self) -> str:
        """The folder of this run's files."""
        return self._hello.exp_root

    @property
    def config(self) -> dict[str, Any]:
        """Every parameter, resolved."""
        return dict(self._hello.config)

    # -- inside --------------------------------------------------------------------------------------

    def _log(self, level_no: int, level: str, file: str, line: int, text: str, at: float = 0.0) -> None:
        """A finished log line; used by the captures too."""
        if len(text) > 200_000:
            text = record.cut(text)
        body = self._pack((at or time.time(), level_no, level, file, line, text))
        self._append(1, body, level_no >= 30)

    def _put(self, kind: Kind, *fields: Any) -> None:
        try:
            self._append(kind, self._pack((time.time(), *fields)))
        except Exception as error:  # noqa: BLE001
            self._refuse(kind.name.lower(), error)

    def _append(self, kind: int, body: bytes, urgent: bool = True) -> None:
        spool, transport = self._spool, self._transport
        if spool is None or transport is None:
            if self._closed or not self._open():
                self.lost += 1
                return
            return self._append(kind, body, urgent)
        spool.append(kind, body, urgent)
        if not transport.awake:
            transport.wake()

    def _in_halves(self, values: Mapping[str, Any], step: int | None) -> None:
        if len(values) < 2:
            raise ValueError(f"one metric of more than {wire.MAX_BODY} bytes")
        for half in record.halves(values):
            self.metrics(half, step)

    def _refuse(self, call: str, error: Exception) -> None:
        """One warning a kind of trouble, and training goes on."""
        what = f"{call}(): {type(error).__name__}"
        if what in self._refused:
            return
        self._refused.add(what)
        try:
            text = f"{what}: {str(error)[:300]}; further ones of this kind are not shown"
            warn(text)
            self._log(30, "WARNING", "rankside", 0, text)
        except Exception:  # noqa: BLE001  the warning itself cannot be made; the count stays
            self.lost += 1

    def _open(self) -> bool:
        """Make the channel: at init, and in a forked child at its first record."""
        with self._lock:
            if self._spool is not None:
                return True
            if time.monotonic() < self._not_before:
                return False
            self._spool = self._new_spool()
            if self._spool is None:
                self._not_before = time.monotonic() + _REOPEN
                return False
            self._transport = Transport(self._spool, self._hello.packed(), self._options.endpoint)
            try:
                self._transport.start()
            except RuntimeError:
                self._transport.awake = True  # no threads at interpreter shutdown: the agent reads the spool
            return True

    def _new_spool(self) -> Spool | None:
        group = endpoint.spool_group(self._options.endpoint)
        problems = []
        for root in endpoint.spool_roots():
            folder = root / group / self._hello.channel
            hello = replace(self._hello, spool=str(folder))
            try:
                spool = Spool(folder, wire.pack(hello.packed()), self._options.spool_limit)
            except OSError as error:
                problems.append(f"{root}: {error.strerror or error}")
            else:
                self._hello = hello
                return spool
        warn(f"no room for a spool, records are lost until there is: {'; '.join(problems)}")
        return None

    def _leave(self) -> None:
        spool, transport = self._spool, self._transport
        if spool is None or transport is None:
            return
        delivered = _quietly(lambda: transport.flush(self._options.flush_seconds))
        if _quietly(lambda: transport.stop(1.0)):
            spool.close(remove=bool(delivered))
        self._spool = None

    def _after_fork(self) -> None:
        """In the child: everything inherited is the parent's. A channel of its own opens at the first call."""
        _INHERITED.append((self._spool, self._transport, self._lock))  # never finalized here
        if self._spool is not None:
            _quietly(self._spool.abandon)
        self._lock = threading.RLock()
        self._pack = record.Packer()
        self._spool = self._transport = None
        self._not_before = 0.0
        parent = self._hello.channel
        self._hello = replace(
            self._hello,
            channel=new_channel(self._hello.host, self._hello.label),
            pid=os.getpid(),
            parent=self._hello.parent or parent,
            started=time.time(),
        )


class NoMonitor:
    """Stands in before `init` and under RANKSIDE_DISABLE: takes every call and does nothing."""

    exp_root = ""
    config: dict[str, Any] = {}

    def metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Nothing."""

    def throughput(self, step: int | None = None, **fields: Any) -> None:
        """Nothing."""

    def params(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Nothing."""

    def event(self, name: str, **fields: Any) -> None:
        """Nothing."""

    def artifact(self, path: str | os.PathLike[str]) -> None:
        """Nothing."""

    def log(self, message: object, level: str = "INFO", **fields: Any) -> None:
        """Nothing."""

    def capture_logging(self, level: str | int | None = None) -> None:
        """Nothing."""

    def set_module(self, name: str) -> None:
        """Nothing."""

    def close(self, status: str | None = None) -> None:
        """Nothing."""

    def __enter__(self) -> NoMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing."""


def new_channel(host: str, label: str) -> str:
    """A name no other process ever has, and that may stand as a folder."""
    return f"{host[:40]}-{label[:60]}-{os.getpid()}-{secrets.token_hex(6)}".replace("/", "_")


def _place_of(trace: TracebackType | None) -> tuple[str, int]:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "rankside", 0
    return os.path.basename(trace.tb_frame.f_code.co_filename).removesuffix(".py"), trace.tb_lineno


def _quietly(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  leaving must not fail a training that succeeded
        warn(f"{type(error).__name__}: {error}")
        return None


def _close_all() -> None:
    for monitor in list(_LIVING):
        monitor.close()


def _fork_all() -> None:
    for monitor in list(_LIVING):
        monitor._after_fork()


_LIVING: weakref.WeakSet[Monitor] = weakref.WeakSet()
_INHERITED: list[Any] = []
atexit.register(_close_all)
os.register_at_fork(after_in_child=_fork_all)
