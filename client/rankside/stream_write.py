"""A text stream's own `write`, replaced while a capture lasts.

Separate because both captures of printed text do it. The stream stays the object it was, for everybody who
holds it and in everything but this one attribute: handlers, Tees and bars that took it earlier are heard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

Write = Callable[[str], Any]
_NONE = object()


def replaced(stream: TextIO, make: Callable[[Write], Write]) -> Callable[[], None]:
    """Put `make(its write)` in place; returns what puts it back. Raises AttributeError where it cannot be."""
    own = vars(stream).get("write", _NONE) if hasattr(stream, "__dict__") else _NONE
    ours = make(stream.write)
    stream.write = ours  # type: ignore[method-assign]

    def undo() -> None:
        if vars(stream).get("write") is not ours:
            return  # somebody has put a write of his own over it, which calls ours
        if own is _NONE:
            del stream.write
        else:
            stream.write = own  # type: ignore[method-assign,assignment]

    return undo


def standard(names: tuple[str, ...]) -> Iterator[tuple[str, TextIO]]:
    """The standard streams of these names that are there, each object once."""
    seen: list[TextIO] = []
    for name in names:
        stream = getattr(sys, name, None)
        if stream is not None and not any(stream is other for other in seen):
            seen.append(stream)
            yield name, stream
