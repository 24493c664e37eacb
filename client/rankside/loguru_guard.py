"""Keeps a loguru call from raising: braces in a message with arguments are a KeyError out of `logger.info`.

Separate because it is the one place that reaches into another library: loguru formats before any sink sees
the message, so no sink can catch this. Where loguru's inside looks different, nothing is touched.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Protocol

from rankside.logs import raw_message, shown
from rankside.parameters import LEVELS
from rankside.twins import NOW

_EXPECTED = ["self", "level", "from_decorator", "options", "message", "args", "kwargs"]
_DEPTH, _RECORD, _LAZY, _COLORS = 1, 2, 3, 4  # places in loguru's options


class Kept(Protocol):
    """A sink that is to outlive `logger.remove()`."""

    number: int

    def put_back(self, core: Any) -> None:
        """It is not among the sinks of `core`, loguru's inside."""

    def take_late(self, entry: Any) -> None:
        """A record that a sink before it has kept from it."""


def install(*kept: Kept) -> Callable[[], None]:
    """Wrap loguru's one logging method; returns what takes the wrapper off.

    Of sinks that are `kept` it sees before each call whether they are there.
    """
    from loguru import logger

    owner: Any = type(logger)
    original: Any = getattr(owner, "_log", None)
    if hasattr(original, "users"):  # our wrapper: one does for all
        original.users += 1
        original.sinks.extend(kept)
        return lambda: _release(owner, original, kept)
    if original is None or list(inspect.signature(original).parameters) != _EXPECTED:
        return lambda: None
    sinks = list(kept)

    def guarded(self: Any, level: Any, from_decorator: bool, options: Any, *rest: Any) -> None:
        core = self._core
        for sink in sinks:
            if sink.number not in core.handlers:
                sink.put_back(core)
        NOW.in_loguru = True
        message, args, kwargs = rest
        changed = list(options)
        changed[_DEPTH] += 1  # one frame deeper than loguru expects: this one
        if type(message) is not str:
            message = _Shown(message)
        elif args or kwargs or options[_RECORD]:
            message = Careful(message)
        if options[_COLORS] and not _has_known_tags(message, args, kwargs, options):
            changed[_COLORS] = False
        if isinstance(level, str) and level not in core.levels_lookup:
            level = _number(level)
        try:
            original(self, level, from_decorator, tuple(changed), message, args, kwargs)
        except Exception as error:
            _tell_those_behind(sinks, core, error)
            raise

    wrapper: Any = guarded
    wrapper.users, wrapper.sinks, wrapper.original = 1, sinks, original
    owner._log = wrapper
    return lambda: _release(owner, wrapper, kept)


def _tell_those_behind(sinks: list[Kept], core: Any, error: Exception) -> None:
    """A sink with catch=False has raised: loguru asks none of the others."""
    trace, entry, order = error.__traceback__, None, list(core.handlers)
    while trace is not None and trace.tb_frame.f_code.co_name != "emit":
        entry, trace = trace.tb_frame.f_locals.get("log_record"), trace.tb_next
    number = None if trace is None else getattr(trace.tb_frame.f_locals.get("self"), "_id", None)
    if isinstance(entry, dict) and number in order:
        for sink in sinks:
            if sink.number in order[order.index(number) + 1 :]:
                sink.take_late(entry)


def _release(owner: Any, wrapper: Any, kept: tuple[Kept, ...]) -> None:
    wrapper.users -= 1
    for sink in kept:
        wrapper.sinks.remove(sink)
    if not wrapper.users and owner._log is wrapper:
        owner._log = wrapper.original


class Careful(str):
    """A message that loguru formats when it wants to, and that then falls back to its text and arguments."""

    __slots__ = ()

    def format(self, *args: Any, **kwargs: Any) -> str:
        try:
            return str.format(self, *args, **kwargs)
        except Exception:  # noqa: BLE001  a brace too many, or a __format__ that raises
            kwargs.pop("record", None)  # loguru's own, of opt(record=True)
            return raw_message(str(self), args, kwargs)


class _Shown:
    """A message that is no text, made one only where a sink wants it."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return shown(self._value, str)

    def format(self, *args: Any, **kwargs: Any) -> str:
        return Careful(str(self)).format(*args, **kwargs)


def _has_known_tags(message: Any, args: Any, kwargs: Any, options: Any) -> bool:
    """Whether opt(colors=True) can be had; a stray <tag> in the message is an error in loguru."""
    if options[_LAZY] or options[_RECORD]:
        return True  # only loguru knows what will be formatted
    try:
        from loguru import _colorizer

        colorizer: Any = _colorizer.Colorizer
        if args or kwargs:
            colorizer.prepare_message(message, args, kwargs)
        else:
            colorizer.prepare_simple_message(str(message))
    except Exception:  # noqa: BLE001  an unknown tag, a brace too many
        return False
    return True


def _number(level: str) -> int:
    """A level that loguru was never told of, by the name it has elsewhere."""
    found = LEVELS.get(level.upper(), logging.getLevelName(level.upper()))
    return found if isinstance(found, int) else logging.INFO
