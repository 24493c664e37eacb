"""Primus' logger, rebuilt: loguru with four level files and a console, and calls that say where they stand.

After what AMD-AGI/Primus has in primus/core/utils/logger.py, in words of our own: the yardstick for what
rankside writes. Separate from the tests because it is a program of its own, which knows nothing of rankside.
What is put right here, and not as Primus has it, is marked "Corrected".
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger as loguru_logger

FILES = ("debug", "info", "warning", "error")
_logger: Any = None
_width = 23


@dataclass(frozen=True)
class LoggerConfig:
    """Who speaks, and from which level on it is heard where."""

    exp_root_path: str
    work_group: str
    user_name: str
    exp_name: str
    module_name: str
    file_sink_level: str = "INFO"
    stderr_sink_level: str = "INFO"
    node_ip: str = "localhost"
    rank: int = 0
    world_size: int = 1


def file_form(is_head: bool) -> str:
    """The layout of a file's line."""
    time, who = "[<green>{time:YYYYMMDD HH:mm:ss}</>]", "[<blue>{extra[user]}/{extra[team]}</>]"
    module, said = (
        "[<magenta>{extra[module_name]: <11}</>]",
        "<level>{extra[grade]}</level><level>{message}</level>",
    )
    place = "{extra[rank]}/{extra[world_size]}</>]"
    if is_head:
        before = "<blue>(PrimusMaster  pid={process}, ip={extra[node_ip]}) </>"
        return f"{before}{time}{who}{module}[<cyan>node-{place}{said}"
    return f"{time}{who}{module}[<cyan>ip-{{extra[node_ip]}}</>][<cyan>rank-{place}{said}"


def console_form(is_head: bool) -> str:
    """The layout on stderr."""
    # Corrected: PRIMUS_LOG_TIMESTAMP, which Primus' shell scripts alone obey
    time = (
        "[<green>{time:YYYYMMDD HH:mm:ss}</>]" if os.environ.get("PRIMUS_LOG_TIMESTAMP", "1") == "1" else ""
    )
    before, who = ("<blue>(PrimusMaster  pid={process}) </>", "node") if is_head else ("", "rank")
    place = f"[<cyan>{who}-{{extra[rank]}}/{{extra[world_size]}}</>]"
    return f"{before}{time}{place}<level>{{extra[grade]}}</level><level>{{message}}</level>"


def add_file_sinks(folder: Path, least: str, is_head: bool) -> list[int]:
    """The level files that are wanted; returns loguru's numbers of them."""
    lowest = loguru_logger.level(least.upper()).no
    # Corrected: Primus compares whole levels, so by name: with INFO it writes no error.log
    wanted = [name for name in FILES if loguru_logger.level(name.upper()).no >= lowest]
    return [
        loguru_logger.add(
            folder / f"{'master-' if is_head else ''}{name}.log",
            level=name.upper(),
            format=file_form(is_head),
            filter=lambda record: _graded(record) and not record["extra"].get("console_only"),
            colorize=False,
            rotation="10 MB",
            encoding="utf-8",
            errors="backslashreplace",  # Corrected: Primus loses a line with half of a surrogate pair
            **_EXCEPTIONS,
        )
        for name in wanted
    ]


# Corrected: Primus prints the values of locals, which may be secrets, and the callers of who caught it
_EXCEPTIONS = {"backtrace": False, "diagnose": False}


def _graded(record: Any) -> bool:
    """The level in brackets, with spaces up to where the longest ends."""
    record["extra"]["grade"] = f"[{record['level'].name}]".ljust(11)
    return True


def setup_logger(cfg: LoggerConfig, is_head: bool = False) -> list[int]:
    """Files, console, and everybody's records of the standard library's logging."""
    global _logger  # noqa: PLW0603  as Primus keeps it, and as rankside looks for it
    root = Path(cfg.exp_root_path) / "logs"
    folder = root / "master" if is_head else root / cfg.module_name / f"rank-{cfg.rank}"
    loguru_logger.remove()
    context = {
        "team": cfg.work_group,
        "user": cfg.user_name,
        "exp": cfg.exp_name,
        "module_name": cfg.module_name,
        "node_ip": cfg.node_ip,
        "rank": cfg.rank,
        "world_size": cfg.world_size,
    }
    # Corrected: a record that did not come through the calls below has no place in Primus, and where it did
    # not come through Primus' own logger it is an error of the format
    loguru_logger.configure(extra=context, patcher=_placed)
    numbers = add_file_sinks(folder, cfg.file_sink_level, is_head)
    loguru_logger.add(
        sys.stderr,
        level=cfg.stderr_sink_level.upper(),
        format=console_form(is_head),
        filter=_graded,
        colorize=sys.stderr.isatty(),  # Corrected: Primus writes colours into pipes and files, too
        **_EXCEPTIONS,
    )
    # Corrected: each record has a place here, which widens the field where no sink takes it, as the calls do
    loguru_logger.add(lambda _message: None, level="DEBUG", format="")
    logging.root.handlers = [Intercept()]
    logging.root.setLevel(logging.NOTSET)
    _logger = loguru_logger.bind(placed=True)
    return numbers


def _placed(record: Any) -> None:
    if not record["extra"].get("placed"):
        stem = record["file"].name.removesuffix(".py")
        record["message"] = f"{place(stem, record['line'])}: {record['message']}"


class Intercept(logging.Handler):
    """Hands the standard library's records to loguru."""

    def emit(self, record: logging.LogRecord) -> None:
        """By the level's name, where loguru knows it; the file is the last part of the logger's name."""
        try:
            level: str | int = loguru_logger.level(record.levelname).name
        except ValueError:
            level = record.levelno
        text = f"{place(record.name.split('.')[-1], record.lineno)}: {record.getMessage()}"
        _logger.opt(depth=6, exception=record.exc_info).log(level, text)


def place(module: str, line: int) -> str:
    """Where a record stands; the field never gets narrower again."""
    global _width  # noqa: PLW0603  as Primus keeps it
    text = f"{module}.py:{line}"
    _width = max(_width, len(text))
    return f"[{text.rjust(_width, '-')}] "


def key_value(key: object, value: object, width: int, fillchar: str = " ") -> str:
    """A name and its value in columns."""
    return f"{key}:".ljust(width, fillchar) + f"{value}"


def caller(depth: int = 2) -> tuple[str, int]:
    """The last part of the name of the module that called, and its line."""
    frame = sys._getframe(depth)
    return frame.f_globals["__name__"].split(".")[-1], frame.f_lineno


# What the trainers call. Each finds its caller by itself: what rankside replaces is the body of the function.


def debug(message: str, *args: Any, **kwargs: Any) -> None:
    _logger.debug(f"{place(*caller())}: {message}", *args, **kwargs)


def info(message: str, *args: Any, **kwargs: Any) -> None:
    _logger.info(f"{place(*caller())}: {message}", *args, **kwargs)


def log(message: str, *args: Any, **kwargs: Any) -> None:
    _logger.info(f"{place(*caller())}: {message}", *args, **kwargs)


def warning(message: str, *args: Any, **kwargs: Any) -> None:
    _logger.warning(f"{place(*caller())}: {message}", *args, **kwargs)


def error(message: str, *args: Any, **kwargs: Any) -> None:
    _logger.error(f"{place(*caller())}: {message}", *args, **kwargs)


def log_kv(key: str, value: object, width: int = 18, fillchar: str = " ") -> None:
    _logger.info(f"{place(*caller())}: {key_value(key, value, width, fillchar)}")


def debug_with_caller(message: str, module_name: str, function_name: str, line: int) -> None:
    _logger.debug(f"{place(module_name, line)}: {message}")


def info_with_caller(message: str, module_name: str, function_name: str, line: int) -> None:
    _logger.info(f"{place(module_name, line)}: {message}")


def warning_with_caller(message: str, module_name: str, function_name: str, line: int) -> None:
    # Corrected, as later versions have it: earlier ones did not pad the place of a warning
    _logger.warning(f"{place(module_name, line)}: {message}")


def error_with_caller(message: str, module_name: str, function_name: str, line: int) -> None:
    # Corrected, as later versions have it: earlier ones made a warning of it
    _logger.error(f"{place(module_name, line)}: {message}")


def log_kv_with_caller(
    key: str,
    value: object,
    module_name: str,
    function_name: str,
    line: int,
    width: int = 20,
    fillchar: str = " ",
) -> None:
    _logger.info(f"{place(module_name, line)}: {key_value(key, value, width, fillchar)}")
