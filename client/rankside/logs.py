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
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rankside.extras import attached
from rankside.parameters import LEVELS
from rankside.twins import NOW, is_of_loguru

if TYPE_CHECKING:
    from rankside.client import Monitor

Undo = Callable[[], None]


def capture(monitor: Monitor, level: str | int | None) -> list[Undo]:
    """Attach everything; returns what detaches it again. Raises ValueError for an unknown level."""
    number = level_number(level)
    undo = [_capture_stdlib(monitor, logging.INFO if number is None else number)]
    if "loguru" in sys.modules or _installed("loguru"):
        undo.append(_capture_loguru(monitor, number or 0))
    return [*undo, _capture_warnings(monitor), *_capture_uncaught(monitor)]


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
        return "".join(traceback.format_exception(type(error), error, error.__traceback__)).removesuffix("\n")
    except Exception as problem:  # noqa: BLE001  its __str__ or __cause__ may raise anything
        return f"{type(error).__name__} (its text cannot be made: {type(problem).__name__})"


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


def _capture_stdlib(monitor: Monitor, level: int) -> Undo:
    from rankside import stdlib_tap

    return stdlib_tap.listen(_taker(monitor), level)


def _capture_loguru(monitor: Monitor, level: int) -> Undo:
    from rankside import loguru_sink

    return loguru_sink.capture(monitor, level)


def _taker(monitor: Monitor) -> Callable[[logging.LogRecord], str]:
    """What makes a line of a record; the file is the last part of the logger's name, as Primus prints it."""

    def take(record: logging.LogRecord) -> str:
        text = ""
        try:
            text = said = record.msg if type(record.msg) is str and not record.args else message_of(record)
            if NOW.in_loguru and is_of_loguru(text):
                return text
            if record.exc_info or record.exc_text or record.stack_info:
                said += _attached(record)
            name, line, at = record.name.rpartition(".")[2], record.lineno, record.created + 0.0
            if getattr(record, "console_only", False):
                monitor._show(record.levelno, record.levelname, name, line, said, at)
            else:
                monitor._log(record.levelno, record.levelname, name, line, said, at, attached(record))
        except Exception:  # noqa: BLE001  a log call never raises
            _take_odd(monitor, record, text)
        return text

    return take


def _take_odd(monitor: Monitor, record: logging.LogRecord, text: str) -> None:
    """A record that is not as logging makes them, of makeLogRecord or a log that was read in."""
    try:
        name, grade, line = str(record.name or "root"), str(record.levelname), record.lineno
        number = record.levelno if isinstance(record.levelno, int) else logging.INFO
        place = name.rpartition(".")[2], line if isinstance(line, int) else 0
        monitor._log(number, grade, *place, f"{text or message_of(record)}{_attached(record)}")
    except Exception as error:  # noqa: BLE001  a log call never raises
        monitor._refuse("logging", error)


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
        log_uncaught(monitor, "uncaught exception", error.with_traceback(trace))
        before(kind, error, trace)

    def thread_hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread else "?"
            log_uncaught(monitor, f"uncaught exception in thread {name}", args.exc_value)
        before_in_thread(args)

    def undo() -> None:
        if sys.excepthook is hook:
            sys.excepthook = before
        if threading.excepthook is thread_hook:
            threading.excepthook = before_in_thread

    sys.excepthook, threading.excepthook = hook, thread_hook
    return [undo]


def log_uncaught(monitor: Monitor, title: str, error: BaseException) -> None:
    """One CRITICAL line, at the place where it was raised."""
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
