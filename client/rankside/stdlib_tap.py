"""Every record of stdlib logging, heard where its logger lets it pass to the handlers.

Separate from what is made of a record because it knows logging's inside. A handler on the root logger would
hear nothing of loggers that do not propagate, go with `basicConfig(force=True)`, `dictConfig` or a new list
of handlers, and keep `basicConfig()` from doing anything. So two methods of Logger are wrapped while somebody
listens; levels and handlers stay the program's own and show what they would without us. Not `callHandlers`:
handlers that pass records on count the frames above them. Of a class that has a `filter` or `handle` of its
own it is heard where `callHandlers` is looked up, which adds no frame.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from rankside.twins import NOW

HERE = "MainProcess"
# Set on records of other processes of multiprocessing, which may be handed on
RECORDED = "_rankside_recorded"
Take = Callable[[logging.LogRecord], str]  # never raises; returns the message, as far as it was made
_CLOSED = 1 << 62  # no record has a level like this
# Of a logger that propagates nothing: what goes to these alone is nobody's business but theirs
_PRIVATE = (logging.FileHandler, logging.NullHandler)


class _Tap:
    """One pair of wrappers. One that somebody has wrapped in turn stays, and lets all through."""

    def __init__(self) -> None:
        self.listeners: tuple[tuple[Take, int], ...] = ()
        self._opened = _CLOSED
        owner: Any = logging.Logger
        self._ours = {
            "filter": self._filter(owner.filter),
            "getEffectiveLevel": self._effective_level(owner.getEffectiveLevel),
        }
        self._before = {name: vars(owner).get(name) for name in self._ours}
        for name, ours in self._ours.items():
            setattr(owner, name, ours)
        self._hear = self._filter(lambda _logger, _record: True)
        self._adopted: list[tuple[Any, str, Any]] = []
        self._hook = classmethod(lambda kind, **_: self._adopt(kind))
        owner.__init_subclass__ = self._hook  # of classes that are yet to be
        self._adopt_all(owner)

    def set(self, listeners: tuple[tuple[Take, int], ...]) -> None:
        """Who listens; the root logger is open as far as one of them wants it."""
        self.listeners = listeners
        self._opened = min((level for _, level in listeners), default=_CLOSED)
        root = logging.getLogger()
        root.setLevel(root.level)  # what loggers remember of their levels is forgotten

    def remove(self) -> None:
        """Take off the wrappers that nobody has wrapped."""
        owner: Any = logging.Logger
        for name, before in self._before.items():
            if vars(owner).get(name) is not self._ours[name]:
                continue
            if before is None:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        if vars(owner).get("__init_subclass__") is self._hook:
            del owner.__init_subclass__
        for kind, name, before in self._adopted:
            if before is None:
                delattr(kind, name)
            else:
                setattr(kind, name, before)

    def _adopt_all(self, owner: Any) -> None:
        for kind in owner.__subclasses__():
            self._adopt(kind)
            self._adopt_all(kind)

    def _adopt(self, kind: Any) -> None:
        """A class whose records may go past the wrapper of `filter`."""
        own = [name for name in ("filter", "handle") if callable(vars(kind).get(name))]
        for name in [*own, "callHandlers"] if own else []:
            before = vars(kind).get(name)
            function = getattr(kind, name)
            setattr(kind, name, _LookedUp(function, self._at_handlers if name == "callHandlers" else _anew))
            self._adopted.append((kind, name, before))

    def _at_handlers(self, logger: logging.Logger, frame: FrameType) -> bool:
        """Handlers are about to get a record: hear it, if that has not been. False where they are not to."""
        there = frame.f_locals.values()
        record = next((each for each in there if isinstance(each, logging.LogRecord)), None)
        if record is None or (NOW.handed is not None and NOW.handed[0] == id(record)):
            return True
        return bool(self._hear(logger, record))

    def _filter(self, original: Any) -> Any:
        root = logging.root

        def passes(logger: logging.Logger, record: logging.LogRecord) -> Any:
            result = original(logger, record) if logger.filters else True
            listeners = self.listeners
            if not result or not listeners:
                return result
            given = record if result is True else _replaced(record, result)
            text, private, each = None, False, logger
            while (above := each.parent) is not None:
                private = private or not each.propagate
                each = above
            if not private or not _is_private(logger, given):
                for take, _ in listeners:
                    text = take(given)
                if given.processName != HERE:
                    vars(given)[RECORDED] = True
            if given.levelno < root.level and _is_roots(logger):
                return False  # it came only because the root logger was opened
            NOW.handed = None if text is None else (id(given), text)
            return result

        return passes

    def _effective_level(self, original: Any) -> Any:
        def level(logger: logging.Logger) -> int:
            found: int = original(logger)
            return self._opened if found > self._opened and _is_roots(logger) else found

        return level


class _LookedUp:
    """A method of a class, and what is to be done when it is about to be called; it adds no frame."""

    def __init__(self, function: Any, tell: Callable[[logging.Logger, FrameType], bool]) -> None:
        self._function, self._tell = function, tell

    def __get__(self, logger: Any, owner: Any = None) -> Any:
        if logger is not None and not self._tell(logger, sys._getframe(1)):
            return _to_nobody
        return self._function.__get__(logger, owner)


def _anew(_logger: logging.Logger, _frame: FrameType) -> bool:
    NOW.handed = None  # an id may be that of a record before
    return True


def _to_nobody(_record: logging.LogRecord) -> None:
    """In place of handlers that would not have got it."""


_tap: _Tap | None = None


def listen(take: Take, level: int) -> Callable[[], None]:
    """Give `take` every record; of loggers without a level of their own, from `level` on.

    Returns what ends it.
    """
    global _tap  # noqa: PLW0603  there is one Logger, too
    tap = _tap = _tap or _Tap()
    listener = (take, level)
    tap.set((*tap.listeners, listener))

    def end() -> None:
        global _tap  # noqa: PLW0603
        tap.set(tuple(each for each in tap.listeners if each is not listener))
        if not tap.listeners and _tap is tap:
            tap.remove()
            _tap = None

    return end


def _replaced(record: logging.LogRecord, result: object) -> logging.LogRecord:
    """From Python 3.12 on a filter may give another record."""
    return result if isinstance(result, logging.LogRecord) else record


def _is_roots(logger: logging.Logger) -> bool:
    """Whether the root logger's level is this one's."""
    while logger.parent is not None:
        if logger.level:
            return False
        logger = logger.parent
    return logger is logging.root


def _is_private(logger: logging.Logger, record: logging.LogRecord) -> bool:
    """Whether a logger that does not propagate shows its records nowhere."""
    each = logger
    while each.propagate and each.parent is not None:
        each = each.parent
    handlers = list(each.handlers)
    while logger is not each and logger.parent is not None:
        handlers += logger.handlers
        logger = logger.parent
    if not handlers:  # logging's last resort shows it, or nobody does
        return record.levelno < logging.WARNING
    return all(isinstance(one, _PRIVATE) or type(one).__module__.startswith("rankside.") for one in handlers)
