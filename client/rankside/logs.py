"""Where a process's own logging comes in: stdlib logging, loguru, warnings, exceptions nobody caught.

Separate from the monitor because it knows other libraries' records, and is imported only when asked for.
A message is finished here and never formatted again; an exception becomes text here, without the values
of locals, and never travels as an object.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rankside.parameters import LEVELS

if TYPE_CHECKING:
    from rankside.client import Monitor

Undo = Callable[[], None]
_NEAR = 20  # frames between a handler that passes records on and loguru's call of us
_CALL_HANDLERS = logging.Logger.callHandlers.__code__


def capture(monitor: Monitor, level: str | int | None) -> list[Undo]:
    """Attach everything; returns what detaches it again. Raises ValueError for an unknown level."""
    number, twins = level_number(level), _Twins()
    undo = [_capture_stdlib(monitor, logging.INFO if number is None else number, twins)]
    if "loguru" in sys.modules or _installed("loguru"):
        undo += _capture_loguru(monitor, number or 0, twins)
    return [*undo, _capture_warnings(monitor), *_capture_uncaught(monitor)]


def silence_consoles() -> Undo:
    """Take off what prints on stderr or stdout: root's stream handlers, and loguru's own first sink.

    Returns what puts stdlib's handlers back. loguru's sink cannot be had again as it was: it is gone.
    """
    root = logging.getLogger()
    streams = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    printing = [h for h in root.handlers if type(h) is logging.StreamHandler and h.stream in streams]
    for handler in printing:
        root.removeHandler(handler)
    if "loguru" in sys.modules:
        from loguru import logger

        with suppress(ValueError):  # the program removed it
            logger.remove(0)

    def undo() -> None:
        for handler in printing:
            root.addHandler(handler)

    return undo


def level_number(level: str | int | None) -> int | None:
    """The number of a level. Raises ValueError that names the choices."""
    if level is None:
        return None
    name = str(level).upper()
    number = level if isinstance(level, int) else LEVELS.get(name, logging.getLevelName(name))
    if not isinstance(number, int) or number < 0:
        raise ValueError(
            f"capture_logging: level {level!r} is unknown; choices: {', '.join(LEVELS)} or a number"
        )
    return number


def exception_text(error: BaseException) -> str:
    """The traceback as text, whatever the exception holds."""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip("\n")
    except Exception as problem:  # noqa: BLE001  its __str__ or __cause__ may raise anything
        return f"{type(error).__name__} (its text cannot be made: {type(problem).__name__})"


class Handler(logging.Handler):
    """stdlib records into a monitor. Takes no lock: the spool has its own, and forks are safe with it.

    On the root logger, with `as_before`, it also keeps up what logging does where nobody handles a record.
    """

    def __init__(
        self, monitor: Monitor, as_before: AsBefore | None = None, twins: _Twins | None = None
    ) -> None:
        super().__init__()
        self._monitor = monitor
        self._as_before = as_before
        self._twins = twins

    def createLock(self) -> None:
        """None: `handle` below does not use it."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """As logging.Handler, without the lock."""
        if self.filters and not self.filter(record):
            return False
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """The file is the last part of the logger's name, as Primus prints it."""
        try:
            text = record.msg if type(record.msg) is str and not record.args else message_of(record)
            if record.exc_info or record.exc_text or record.stack_info:
                text += _attached(record)
            name = record.name.rpartition(".")[2]
            if getattr(record, "console_only", False):
                self._monitor._show(
                    record.levelno, record.levelname, name, record.lineno, text, record.created
                )
                return
            self._monitor._log(record.levelno, record.levelname, name, record.lineno, text, record.created)
            if self._twins is not None:
                self._twins.taken(record)
            if self._as_before is not None and record.levelno >= logging.WARNING:
                self._last_resort(record, self._as_before)
        except Exception as error:  # noqa: BLE001  a log call never raises
            self._monitor._refuse("logging", error)

    @staticmethod
    def _last_resort(record: logging.LogRecord, as_before: AsBefore) -> None:
        last = logging.lastResort
        if last is None or record.levelno < last.level or len(logging.root.handlers) > 1:
            return
        if as_before.filter(record) and not any(each.handlers for each in _path_to_root(record.name)):
            last.handle(record)


class AsBefore(logging.Filter):
    """What a handler was given before the root logger was opened further: consoles show no more than that."""

    def __init__(self, root_level: int) -> None:
        super().__init__()
        self._level = root_level

    def filter(self, record: logging.LogRecord) -> bool:
        """Where no logger on the record's way has a level of its own, the root's held."""
        return record.levelno >= self._level or any(logger.level for logger in _path_to_root(record.name))


class _Twins:
    """Records of stdlib logging that a handler of the program passes on to loguru: they are taken once."""

    def __init__(self) -> None:
        self._local = threading.local()

    def taken(self, record: logging.LogRecord) -> None:
        """The root logger's first handler, ours, has it; the others get it now."""
        self._local.record = record

    def passed_on(self) -> bool:
        """Whether loguru's call, in which we are, comes from a handler that was given that record."""
        record = getattr(self._local, "record", None)
        if record is None:
            return False
        self._local.record = None
        frame = sys._getframe(2).f_back
        for _ in range(_NEAR):
            if frame is None:
                return False
            if frame.f_code is _CALL_HANDLERS:
                return frame.f_locals.get("record") is record
            frame = frame.f_back
        return False


def _path_to_root(name: str) -> list[logging.Logger]:
    """A logger and those above it, without the root."""
    found, logger = [], logging.root.manager.loggerDict.get(name)
    while isinstance(logger, logging.Logger) and logger is not logging.root:
        found.append(logger)
        logger = logger.parent
    return found


def message_of(record: logging.LogRecord) -> str:
    """The message; where its arguments do not fit, the raw text and the arguments."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  a wrong format, or a __str__ that raises
        return raw_message(record.msg, record.args, {})


def raw_message(message: object, args: Any, fields: dict[str, Any]) -> str:
    """An unformatted message with what was to be formatted into it."""
    given = args if isinstance(args, tuple) else (args,)
    told = [shown(arg) for arg in given] + [f"{name}={shown(value)}" for name, value in fields.items()]
    return f"{shown(message, str)} [unformatted, arguments: {', '.join(told)}]"


def shown(value: object, how: Callable[[Any], str] = repr) -> str:
    """A value as text, whatever its __repr__ or __str__ does."""
    try:
        return how(value)
    except Exception as error:  # noqa: BLE001  a __repr__ may raise anything
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _attached(record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
        parts.append(exception_text(record.exc_info[1]))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return "".join(f"\n{part}" for part in parts)


def _capture_stdlib(monitor: Monitor, level: int, twins: _Twins) -> Undo:
    root = logging.getLogger()
    before, as_before = root.level, AsBefore(root.level)
    handler = Handler(monitor, as_before, twins)
    loggers = [each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    consoles = [other for logger in (root, *loggers) for other in logger.handlers]
    if level < root.level:
        for other in consoles:
            other.addFilter(as_before)
        root.setLevel(level)
    root.addHandler(handler)
    root.handlers.insert(0, root.handlers.pop())  # the first: see _Twins

    def undo() -> None:
        root.removeHandler(handler)
        for other in consoles:
            other.removeFilter(as_before)
        if root.level == level:
            root.setLevel(before)

    return undo


def _capture_loguru(monitor: Monitor, level: int, twins: _Twins) -> list[Undo]:
    from loguru import logger

    from rankside import loguru_guard

    def take(entry: Any) -> bool:
        try:
            if twins.passed_on():
                return False
            text = entry["message"]
            if entry["exception"] is not None and entry["exception"].value is not None:
                text = f"{text}\n{exception_text(entry['exception'].value)}"
            stem = entry["file"].name.removesuffix(".py")
            grade = entry["level"]
            if entry["extra"].get("console_only"):
                monitor._show(grade.no, grade.name, stem, entry["line"], text, entry["time"].timestamp())
                return False
            monitor._log(grade.no, grade.name, stem, entry["line"], text, entry["time"].timestamp())
        except Exception as error:  # noqa: BLE001  a log call never raises
            monitor._refuse("loguru", error)
        return False

    # A filter that takes the record and lets none through: a sink would be called after loguru has formatted
    # the exception, and under a lock that a signal handler's record would find taken.
    number = logger.add(_nothing, filter=take, level=level, format="", colorize=False, catch=True)

    def undo() -> None:
        try:
            logger.remove(number)
        except ValueError:
            return  # the program removed all sinks meanwhile

    return [undo, loguru_guard.install()]


def _nothing(_message: Any) -> None:
    """A sink that nothing reaches."""


def _capture_warnings(monitor: Monitor) -> Undo:
    before = warnings.showwarning
    if before.__module__ == "logging":  # logging.captureWarnings: they come in as log records
        return lambda: None

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        if file is None:
            try:
                stem = os.path.basename(filename).removesuffix(".py")
                monitor._log(30, "WARNING", stem, lineno, f"{category.__name__}: {message}")
            except Exception as error:  # noqa: BLE001  a warning never raises
                monitor._refuse("warnings", error)
        before(message, category, filename, lineno, file, line)

    def undo() -> None:
        if warnings.showwarning is show:
            warnings.showwarning = before

    warnings.showwarning = show
    return undo


def _capture_uncaught(monitor: Monitor) -> list[Undo]:
    before, before_in_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        monitor._status = "killed" if issubclass(kind, KeyboardInterrupt) else "failed"
        _log_uncaught(monitor, "uncaught exception", error.with_traceback(trace))
        before(kind, error, trace)

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread else "?"
            _log_uncaught(monitor, f"uncaught exception in thread {name}", args.exc_value)
        before_in_thread(args)

    def undo() -> None:
        if sys.excepthook is hook:
            sys.excepthook = before
        if threading.excepthook is thread_hook:
            threading.excepthook = before_in_thread

    sys.excepthook, threading.excepthook = hook, thread_hook
    return [undo]


def _log_uncaught(monitor: Monitor, title: str, error: BaseException) -> None:
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        file = os.path.basename(trace.tb_frame.f_code.co_filename) if trace else "rankside"
        line = trace.tb_lineno if trace else 0
        monitor._log(50, "CRITICAL", file.removesuffix(".py"), line, f"{title}\n{exception_text(error)}")
    except Exception as problem:  # noqa: BLE001  the interpreter's own report still follows
        monitor._refuse("excepthook", problem)


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None
