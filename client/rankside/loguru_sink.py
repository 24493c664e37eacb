"""Where loguru's records come in: a sink that finds its place again when a program removes it.

Separate from stdlib's because loguru is somebody else's, and may not be there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loguru import logger

from rankside import extras, loguru_guard, twins
from rankside.logs import exception_text

if TYPE_CHECKING:
    from rankside.client import Monitor


def capture(monitor: Monitor, level: int) -> Callable[[], None]:
    """Take what loguru logs from `level` on; returns what ends it."""
    sink = Sink(monitor, level)
    release = loguru_guard.install(sink)

    def end() -> None:
        release()
        sink.remove()

    return end


class Sink:
    """A filter that takes the record and lets none through.

    A sink proper would be called after loguru has formatted the exception, and under a lock that a signal
    handler's record would find taken.
    """

    def __init__(self, monitor: Monitor, level: int) -> None:
        self._monitor = monitor
        self._level = level
        self._putting_back = threading.Lock()
        self._core: Any = getattr(logger, "_core", None)
        self._add()

    def put_back(self, core: Any) -> None:
        """After `logger.remove()` or `logger.configure(handlers=...)`; not into a copy of loguru's inside."""
        # a signal handler may log in the middle of a remove(), which holds the lock: the next call does it
        if core is not self._core or core.lock.locked() or not self._putting_back.acquire(blocking=False):
            return
        try:
            if self.number not in core.handlers:
                self._add()
        finally:
            self._putting_back.release()

    def take_late(self, entry: Any) -> None:
        """A record that a sink before this one has kept from it."""
        if entry["level"].no >= self._level:
            self._take(entry)

    def remove(self) -> None:
        """Take it off."""
        try:
            logger.remove(self.number)
        except ValueError:
            return  # the program has, and nothing was logged since

    def _add(self) -> None:
        self.number = logger.add(
            _nothing, filter=self._take, level=self._level, format="", colorize=False, catch=True
        )

    def _take(self, entry: Any) -> bool:
        monitor = self._monitor
        try:
            text = entry["message"]
            if twins.is_of_stdlib(text):
                return False
            if entry["exception"] is not None and entry["exception"].value is not None:
                text = f"{text}\n{exception_text(entry['exception'].value)}"
            stem = entry["file"].name.removesuffix(".py")
            grade = entry["level"]
            line = (grade.no, grade.name, stem, entry["line"], text, entry["time"].timestamp())
            extra = entry["extra"]
            if not extra:
                monitor._log(*line)
            elif extra.get("console_only"):
                monitor._show(*line)
            else:
                monitor._log(*line, extras.bound(extra))
        except Exception as error:  # noqa: BLE001  a log call never raises
            monitor._refuse("loguru", error)
        return False


def _nothing(_message: Any) -> None:
    """A sink that nothing reaches."""
