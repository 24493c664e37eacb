"""The monitor of one process: stamps records, puts them into the spool, and never raises into training.

Separate from the spool and the transport because it is what a training loop holds: it knows calls and
lifetimes (fork, exit), and nothing of files or sockets.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from rankside import endpoint, record, wire
from rankside.captures import Captures
from rankside.console import Console, level_of
from rankside.device import Device
from rankside.exits import exits
from rankside.identity import Hello, is_last
from rankside.level import INFO, Level, NoLevel, of_call
from rankside.settings import (
    DEFAULT_FLUSH,
    LEVEL_NAMES,
    ConfigError,
    checked_levels,
    file_level,
    with_levels,
)
from rankside.spool import Spool
from rankside.transport import Transport, warn
from rankside.wire import Kind

STATUSES = ("finished", "failed", "killed")
_REOPEN = 5.0  # seconds between attempts where no folder had room for a spool
_MAX_BODY = wire.MAX_BODY
_SURELY_FITS = wire.MAX_BODY // 5  # characters of a log text that need not be measured


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
        self._pack = record.Packer().pack
        self._lock = threading.RLock()
        self._closed = False
        self._status: str | None = None
        self._refused: set[str] = set()
        self._captures = Captures(self)
        self._device = Device(_shows_memory(hello))
        self._console: Console | None = None
        self._on_module: Callable[[bytes], None] | None = None  # captured output changes its folder, too
        self._spool: Spool | None = None
        self._transport: Transport | None = None
        self._opening = False
        self._not_before = 0.0
        self._lost: Counter[int] = Counter()  # by kind: records that found no spool, until there is one
        _LIVING.add(self)
        exits.watch()
        self._open()
        for note in notes:
            self._refused.add(note)
            self._tell(note)

    # -- calls of a training loop --------------------------------------------------------------------

    def metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Named numbers of one step: Python and numpy numbers, 0-d tensors, one-element arrays."""
        try:
            if type(values) is not dict:
                values = dict(values)
            if step is not None and step.__class__ is not int:
                step = self._step(step)
            for name in values:
                if type(name) is not str:
                    values = record.named(values)
                    break
            body = self._pack((time.time(), step, values))
            spool, transport = self._spool, self._transport
            if spool is None or transport is None or len(body) > _MAX_BODY:
                self._put_metrics(body)
                return
            spool.append(2, body)  # as in _append: each call costs
            if not transport.awake:
                transport.wake()
        except Exception as error:  # noqa: BLE001
            try:
                self._spare_metrics(values, step, error)
            except RecursionError:  # not a frame is left to say so
                self._lost[2] = dict.get(self._lost, 2, 0) + 1

    def throughput(self, /, step: int | None = None, **fields: Any) -> None:
        """One sample of speed, each figure where it is known.

        elapsed_s (of one iteration), global_batch_size, seq_length, tflops (per GPU), consumed_samples,
        train_iters, skipped_iterations, nan_iterations, and timers, a dict of seconds by name. Others are
        scalars `throughput/{name}`.
        """
        if step is not None and step.__class__ is not int:
            step = self._step(step)
        self._put(Kind.THROUGHPUT, step, {**fields, **self._device.fields()})

    def params(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Parameters of the run; objects without a plain form become readable text, secrets are masked."""
        try:
            from rankside import secrets  # its patterns are no part of a rank's start

            plain = record.tree({**dict(values or {}), **more})
            known = secrets.known_values(os.environ)
            self._put_params(time.time(), secrets.masked_params(plain, known))
        except Exception as error:  # noqa: BLE001  not a mapping
            self._refuse("params", error)

    def event(self, name: str = "", /, **fields: Any) -> None:
        """Something that happened: a name and plain fields, secrets masked."""
        try:
            from rankside import secrets

            name = name or fields.pop("name", "event")
            at, title = time.time(), record.cut(str(name), record.MAX_NAME)
            plain = secrets.masked_params(record.tree(fields), secrets.known_values(os.environ))
            body = self._pack((at, title, plain))
            if len(body) > wire.MAX_BODY:
                body = self._pack((at, title, {"fields": record.cut(str(plain))}))
            self._append(Kind.EVENT, body)
        except Exception as error:  # noqa: BLE001  a __str__ may raise anything
            self._refuse("event", error)

    def artifact(self, path: str | os.PathLike[str]) -> None:
        """A file for the trackers; the agent uploads it."""
        try:
            plain = os.fsdecode(path)
            if not plain:
                raise ValueError("an empty path names nothing, not the working directory")
            self._put(Kind.ARTIFACT, os.path.abspath(plain))
        except Exception as error:  # noqa: BLE001  not a path
            self._refuse("artifact", error)

    def log(self, message: object = None, /, level: str | int = "INFO", **fields: Any) -> None:
        """One log line. The message is taken as it is, never formatted; fields follow it as name=value.

        `level` is a name in any case, or a number. Anything else is INFO, with one warning.
        """
        try:
            number, name = self._level(level)
            message = fields.pop("message", None) if message is None else message
            frame = sys._getframe(1)
            text = " ".join([str(message), *(f"{key}={value}" for key, value in fields.items())])
            stem = os.path.basename(frame.f_code.co_filename).removesuffix(".py")
            self._log(number, name, stem, frame.f_lineno, text)
        except Exception as error:  # noqa: BLE001  a __str__ may raise anything
            self._refuse("log", error)

    def capture_logging(
        self,
        level: str | int | None = None,
        console: bool = False,
        print: bool = False,
        fds: bool = False,
    ) -> None:
        """Take what stdlib logging and loguru log from here on, and exceptions that nobody catches.

        `level` is the lowest taken, default INFO for the standard library (whose root logger is opened that
        far), everything for loguru. What these loggers print elsewhere stays as it is; with `console`
        what they write on stderr and stdout of recorded records is held back, and every record is shown
        there as Primus does, from `stderr_sink_level` on; what is printed stays where it is printed.
        `print` takes what is printed, too, and `fds` all that reaches the descriptors 1 and 2: of C++ code,
        of child processes, of an interpreter that dies. With `fds`, `print` adds nothing. A further call
        adds to the first, and may name another level.
        """
        try:
            with self._lock:
                if not self._closed:
                    self._captures.want(level, console, "fds" if fds else "print" if print else None)
        except ValueError:
            raise  # an unknown level, at start-up: the one thing worth stopping for
        except Exception as error:  # noqa: BLE001
            self._refuse("capture_logging", error)

    def set_module(self, name: str = "", /, **levels: str) -> None:
        """The next phase (pretrain, sft): new log folder, same run.

        `levels`: other values from here on for sink_level, file_sink_level, stderr_sink_level.
        """
        try:
            module = record.cut(str(name or levels.pop("name", "")), record.MAX_NAME)
            config = with_levels(self._hello.config, self._good(levels))
            self._hello = replace(self._hello, module=module, config=config)
            if self._on_module is not None:
                self._on_module(self._pack((time.time(), module, file_level(config))))
            self._put(Kind.MODULE, module, file_level(config))
            if self._console is not None:
                self._console.level = level_of(config, os.environ, sys.argv)
        except Exception as error:  # noqa: BLE001  a __str__ may raise anything
            self._refuse("set_module", error)

    def close(self, status: str | None = None) -> None:
        """Say goodbye: "finished", "failed" or "killed". Waits at most `flush_seconds` for the agent."""
        with self._lock:
            if self._closed:
                return
            known = type(status) is str and status in STATUSES
            if status is not None and not known:
                self._refuse("close", ValueError(f"no such status; choices: {', '.join(STATUSES)}"))
            said = status if known else self._status or "finished"
            self._captures.end()
            if self._spool is None and self._lost:  # the last chance to tell of them
                self._not_before = 0.0
                self._open()
            self._closed = True
        self._leave(_quietly(lambda: self._pack((time.time(), said))))
        _LIVING.discard(self)
        if not _LIVING:
            exits.rest()

    def _end_with_process(self) -> None:
        """At the exit of the interpreter: as the process ends, so does the training."""
        error = exits.error()
        if error is not None and self._status is None:
            self._captures.uncaught(error)
        self.close(self._status or exits.status())

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close("finished")
            return
        if not isinstance(error, SystemExit):
            from rankside.logs import exception_text

            self._log(50, "CRITICAL", *_place_of(trace), f"training ended by {exception_text(error)}")
        self.close("killed" if isinstance(error, KeyboardInterrupt) else "failed")

    def __repr__(self) -> str:
        state, hello = "closed" if self._closed else "open", self._hello
        return f"<rankside.Monitor {hello.exp_name} rank {hello.label}/{hello.world_size} {state}>"

    def __copy__(self) -> Monitor:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Monitor:
        return self

    def __reduce__(self) -> tuple[Callable[[], Monitor], tuple[()]]:
        """In another process it is that one's monitor: of a DataLoader's worker, say."""
        import rankside

        return rankside.current, ()

    @property
    def exp_root(self) -> str:
        """The folder of this run's files."""
        return self._hello.exp_root

    @property
    def config(self) -> dict[str, Any]:
        """Every parameter, resolved."""
        return {name: copy(value) for name, value in self._hello.config.items()}

    @property
    def rank(self) -> int | None:
        """None where it is not known."""
        return self._hello.rank

    @property
    def world_size(self) -> int:
        """Of the job; 1 where it is not known."""
        return self._hello.world_size

    @property
    def is_last(self) -> bool:
        """Whether trackers hear the run from this rank."""
        return is_last(self._hello.rank, self._hello.world_size)

    @property
    def logging_level(self) -> int:
        """The console's level as a number, for Megatron's `logging_level`."""
        return level_of(self._hello.config, os.environ, sys.argv)

    @property
    def lost(self) -> int:
        """Records that found no room for a spool at all; told as dropped as soon as there is one."""
        return sum(self._lost.values())

    # -- inside --------------------------------------------------------------------------------------

    def _log(
        self,
        level_no: int,
        level: str,
        file: str,
        line: int,
        text: str,
        at: float = 0.0,
        extras: dict[str, Any] | None = None,
        shown: bool = False,
    ) -> None:
        """A finished log line, and plain values beside it; used by the captures too.

        `shown`: it is on the terminal already, and the console leaves it out.
        """
        if self._console is not None and not shown:
            self._console.write(at or time.time(), level_no, level, file, line, text)
        if len(text) > _SURELY_FITS:
            text = record.cut(text)
        if extras is None:
            body = self._pack((at or time.time(), level_no, level, file, line, text))
        else:
            body = self._pack((at or time.time(), level_no, level, file, line, text, extras))
            if len(body) > _MAX_BODY:
                body = self._pack((at or time.time(), level_no, level, file, line, record.cut(text)))
        spool, transport = self._spool, self._transport
        if spool is None or transport is None:
            self._append(Kind.LOG, body, level_no >= 30)
            return
        spool.append(1, body, level_no >= 30)  # as in _append
        if not transport.awake:
            transport.wake()

    def _level(self, given: Any) -> Level:
        """The level of a call; what is none is told once, and the record goes as INFO."""
        try:
            return of_call(given)
        except NoLevel as error:
            self._refuse("log", error)
            return INFO

    def _step(self, given: Any) -> Any:
        """A step as a whole number where it is one; else told once, and left as it is."""
        plain = record.tree(given)
        if isinstance(plain, str) and len(plain) < 20 and plain.removeprefix("-").isdecimal():
            plain = int(plain)
        if isinstance(plain, float) and plain.is_integer():
            plain = int(plain)
        if plain is not None and not (isinstance(plain, int) and abs(plain) < 1 << 63):
            said = "is no whole number; what comes with such a step is not drawn"
            self._refuse("step", ValueError(f"{record.cut(str(plain), 100)} {said}"))
        return plain

    def _good(self, levels: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `set_module` that are allowed: a bad one holds up neither the module nor the others."""
        good: dict[str, Any] = {}
        for name, value in levels.items():
            try:
                good.update(checked_levels({name: value}))
            except ConfigError as error:
                self._refuse("set_module", error)
        return good

    def _again(self, module: str, given: Mapping[str, Any], notes: tuple[str, ...]) -> None:
        """`init` was called once more for this run and rank; with "" it named no module."""
        config = self._hello.config
        changed = {name: value for name, value in given.items() if value != config.get(name)}
        levels = {name: changed[name] for name in LEVEL_NAMES if name in changed}
        other = changed.keys() - levels.keys()
        if other:
            shown = ", ".join(sorted(other)[:10])
            notes += (f"init() again, for a run and rank whose monitor is open: the first {shown} stay",)
        for note in notes:
            if note not in self._refused:
                self._refused.add(note)
                self._tell(note)
        if levels or module not in ("", self._hello.module):
            self.set_module(module or self._hello.module, **levels)

    def _show(self, level_no: int, level: str, file: str, line: int, text: str, at: float) -> None:
        """A line for the console alone."""
        if self._console is not None:
            self._console.write(at, level_no, level, file, line, text)

    def _show_all(self) -> Callable[[], None]:
        """Take the console over from the loggers; returns what gives it back."""
        from rankside import console, console_mute

        give_back = console_mute.mute()
        self._console = console.console_of(self._hello, os.environ, sys.argv)

        def undo() -> None:
            self._console = None
            give_back()

        return undo

    def _put(self, kind: Kind, *fields: Any) -> None:
        try:
            self._append(kind, self._pack((time.time(), *fields)))
        except Exception as error:  # noqa: BLE001
            self._refuse(kind.name.lower(), error)

    def _append(self, kind: int, body: bytes, urgent: bool = True) -> None:
        spool, transport = self._spool, self._transport
        if spool is None or transport is None:
            if self._closed:
                return
            if not self._open():
                self._lost[kind] += 1
                return
            self._append(kind, body, urgent)
            return
        spool.append(kind, body, urgent)
        if not transport.awake:
            transport.wake()

    def _put_metrics(self, body: bytes) -> None:
        """As they are, or in halves where one record cannot hold them; unpacked, no value is asked again."""
        if len(body) <= _MAX_BODY:
            self._append(Kind.METRICS, body)
            return
        at, step, values = wire.unpack(body)
        if len(values) < 2:
            self._refuse("metrics", ValueError(f"a value of more than {_MAX_BODY} bytes"))
            return
        for half in record.halves(values):
            self._put_metrics(self._pack((at, step, half)))

    def _spare_metrics(self, values: Mapping[Any, Any], step: int | None, error: Exception) -> None:
        """One value made the others fail (a list that holds itself): they go without it."""
        try:
            self._put_metrics(self._pack((time.time(), step, record.spared(values))))
        except Exception:  # noqa: BLE001  no mapping at all
            self._refuse("metrics", error)

    def _put_params(self, at: float, plain: dict[str, Any]) -> None:
        body = self._pack((at, plain))
        if len(body) <= wire.MAX_BODY:
            self._append(Kind.PARAMS, body)
        elif len(plain) > 1:
            for half in record.halves(plain):
                self._put_params(at, half)
        else:
            self._put_params(at, {name: record.cut(str(value)) for name, value in plain.items()})

    def _tell(self, text: str) -> None:
        """A warning of ours, on stderr and in the log."""
        warn(text)
        self._log(30, "WARNING", "rankside", 0, text)

    def _refuse(self, call: str, error: Exception) -> None:
        """One warning a kind of trouble, and training goes on; a record that was lost to it is counted."""
        try:
            if isinstance(error, (MemoryError, RecursionError)):
                self._count_lost(_LOST_BY.get(call, Kind.LOG))
            what = f"{call}(): {type(error).__name__}"
            if what in self._refused:
                return
            self._refused.add(what)
            self._tell(f"{what}: {str(error)[:300]}; further ones of this kind are not shown")
        except Exception:  # noqa: BLE001  the warning itself cannot be made; the count stays
            self._lost[Kind.LOG] += 1

    def _count_lost(self, kind: int) -> None:
        """Announced by the spool with its next record, or once there is one."""
        if self._spool is None:
            self._lost[kind] += 1
        else:
            self._spool.lost_before({kind: 1})

    def _open(self) -> bool:
        """Make the channel: at init, and in a forked child at its first record."""
        with self._lock:
            if self._opening:  # this thread is in here already: a signal handler logs
                return False
            if self._spool is None and time.monotonic() >= self._not_before:
                self._opening = True
                try:
                    self._open_channel()
                except Exception as error:  # noqa: BLE001  a full disk, no more file descriptors
                    self._not_before = time.monotonic() + _REOPEN
                    if "spool" not in self._refused:
                        self._refused.add("spool")
                        warn(f"no room for a spool, records are lost until there is: {error}")
                finally:
                    self._opening = False
            return self._spool is not None

    def _open_channel(self) -> None:
        spool = self._new_spool()
        try:
            transport = Transport(spool, self._hello.packed(), self._options.endpoint)
        except OSError:
            spool.close(remove=True)
            raise
        if self._lost:
            spool.lost_before(self._lost)
            self._lost = Counter()
        self._transport = transport
        self._spool = spool  # last: from here on other threads use the two
        try:
            transport.start()
        except RuntimeError:
            transport.awake = True  # no threads at interpreter shutdown: the agent reads the spool

    def _new_spool(self) -> Spool:
        group = endpoint.spool_group(self._options.endpoint)
        problems = []
        for root in endpoint.spool_roots():
            folder = root / group / self._hello.channel
            hello = replace(self._hello, spool=str(folder))
            try:
                endpoint.own_default(root)
                spool = Spool(folder, wire.pack(hello.packed()), self._options.spool_limit)
            except OSError as error:
                problems.append(f"{root}: {error.strerror or error}")
            else:
                self._hello = hello
                return spool
        raise OSError("; ".join(problems))

    def _leave(self, goodbye: bytes | None) -> None:
        spool, transport = self._spool, self._transport
        if spool is None or transport is None:
            if self._lost:
                warn(f"{self.lost} records are lost: there was no room for a spool to the end")
            return
        if self._lost:
            _quietly(lambda: spool.lost_before(self._lost))
        if goodbye is not None:
            _quietly(lambda: spool.finish(goodbye))
        seconds = self._options.flush_seconds if agents else 0.0
        delivered = _quietly(lambda: transport.flush(seconds))
        if not delivered and seconds and not self._hello.parent:
            self._say_where(spool, transport)
        if _quietly(lambda: transport.stop(1.0)):
            _quietly(lambda: spool.close(remove=bool(delivered)))
        self._spool = None

    def _say_where(self, spool: Spool, transport: Transport) -> None:
        """A training that nobody watched must not look like one that was."""
        if transport.nobody:
            waiting = f"{spool.last} records wait in {self._hello.spool}"
            warn(f"no agent has answered on {transport.nobody}; {waiting} for the next one: rankside agent")

    def _after_fork(self) -> None:
        """In the child: what is inherited is the parent's. A channel of its own opens at the first call."""
        _INHERITED.append((self._spool, self._transport, self._lock))  # never finalized here
        if self._spool is not None:
            _quietly(self._spool.abandon)
        self._lock = threading.RLock()
        self._pack = record.Packer().pack
        self._spool = self._transport = None
        self._opening, self._not_before, self._lost = False, 0.0, Counter()
        self._device = Device(False)
        parent = self._hello.channel
        self._hello = replace(
            self._hello,
            channel=new_channel(self._hello.host, self._hello.label),
            pid=os.getpid(),
            parent=self._hello.parent or parent,
            started=time.time(),
            launch={},  # told by the parent
            environ={},
        )


def living(exp_root: str, exp_name: str, role: str, label: str, world_size: int) -> Monitor | None:
    """This process's own monitor of that run and rank, as long as it is open; not one it was forked with."""
    for monitor in list(_LIVING):
        hello = monitor._hello
        theirs = (hello.exp_root, hello.exp_name, hello.role, hello.label, hello.world_size)
        same = theirs == (exp_root, exp_name, role, label, world_size)
        if same and hello.parent is None and not monitor._closed:
            return monitor
    return None


def new_channel(host: str, label: str) -> str:
    """A name no other process ever has, and that may stand as a folder."""
    return f"{host[:40]}-{label[:60]}-{os.getpid()}-{os.urandom(6).hex()}".replace("/", "_")


def _shows_memory(hello: Hello) -> bool:
    """Whether this rank's memory stands in the training line, or among MLflow's performance metrics."""
    flags = ("log_throughput", "mlflow_upload_performance_metrics")
    return is_last(hello.rank, hello.world_size) and any(hello.config.get(flag) is True for flag in flags)


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
    global leaving  # noqa: PLW0603
    leaving = True
    for monitor in list(_LIVING):
        _quietly(monitor._end_with_process)


def _fork_all() -> None:
    for monitor in list(_LIVING):
        monitor._after_fork()


_LOST_BY = {kind.name.lower(): kind for kind in Kind}  # what is lost when the call of that name fails
agents = True  # whether one may be waited for at the end; not in the tests of other programs
leaving = False  # the interpreter is at its exit: what is printed from here on is captured all the same
_LIVING: set[Monitor] = set()  # strong: one that nobody holds any more says goodbye at exit, too
_INHERITED: list[Any] = []
atexit.register(_close_all)
os.register_at_fork(after_in_child=_fork_all)
