"""Keeps a loguru call from raising: braces in a message with arguments are a KeyError out of `logger.info`.

Separate because it is the one place that reaches into another library: loguru formats before any sink sees
the message, so no sink can catch this. Where loguru's inside looks different, nothing is touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_EXPECTED = ["self", "level", "from_decorator", "options", "message", "args", "kwargs"]


def install() -> Callable[[], None]:
    """Wrap loguru's one logging method; returns what takes the wrapper off."""
    from loguru import logger

    owner: Any = type(logger)
    original = getattr(owner, "_log", None)
    if original is None or list(inspect.signature(original).parameters) != _EXPECTED:
        return lambda: None

    def guarded(
        self: Any, level: Any, from_decorator: bool, options: Any, message: Any, args: Any, kwargs: Any
    ) -> None:
        lazy = options[3]
        if (args or kwargs) and not lazy and not _fits(message, args, kwargs):
            from rankside.logs import raw_message

            message, args, kwargs = raw_message(message, args, kwargs), (), {}
        # one frame deeper than loguru expects: this one
        original(
            self, level, from_decorator, (options[0], options[1] + 1, *options[2:]), message, args, kwargs
        )

    def undo() -> None:
        if owner._log is guarded:
            owner._log = original

    owner._log = guarded
    return undo


def _fits(message: Any, args: Any, kwargs: Any) -> bool:
    try:
        message.format(*args, **kwargs)
    except Exception:  # noqa: BLE001  a brace too many, or a __format__ that raises
        return False
    return True
