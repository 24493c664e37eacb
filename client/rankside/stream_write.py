"""A text stream's own `write`, replaced while a capture lasts.

Separate because all who hear or hold back printed text do it. The stream stays the object it was, for
everybody who holds it and in everything but this one attribute: handlers, Tees and bars that took it earlier
are heard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, TextIO

Write = Callable[[str], Any]
_NONE = object()


def replaced(stream: TextIO, make: Callable[[Write], Write]) -> Callable[[], None]:
    """Put `make(its write)` in place; returns what puts it back. Raises AttributeError where it cannot be.

    Where several are in place they may end in any order: one that others stand upon goes with the last.
    """
    ours: Any = make(stream.write)
    own = vars(stream).get("write", _NONE) if hasattr(stream, "__dict__") else _NONE
    stream.write = ours  # type: ignore[method-assign]
    ours.rankside_before, ours.rankside_ended = own, False
    _OURS.add(ours.__code__)

    def undo() -> None:
        ours.rankside_ended = True
        # else somebody has put a write of his own over it, which calls ours
        while getattr(top := vars(stream).get("write"), "rankside_ended", False):
            before = top.rankside_before  # type: ignore[union-attr]
            if before is _NONE:
                del stream.write
            else:
                stream.write = before  # type: ignore[method-assign]

    return undo


def caller() -> FrameType | None:
    """Who calls the write that asks: past those of ours that stand upon it."""
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code in _OURS:
        frame = frame.f_back
    return frame


def standard(names: tuple[str, ...]) -> Iterator[tuple[str, TextIO]]:
    """The standard streams of these names that are there, each object once."""
    seen: list[TextIO] = []
    for name in names:
        stream = getattr(sys, name, None)
        if stream is not None and not any(stream is other for other in seen):
            seen.append(stream)
            yield name, stream


_OURS: set[CodeType] = set()
