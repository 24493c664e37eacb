"""The contract of a source: what the process around it asks, and what it must keep.

Separate from any driver, so that the process and the next source agree on it.

1.  `open` is called once, and finds out whether the source works here; it raises Unavailable with a sentence
    for people where not. Whatever it takes (a library's start, handles) is kept for all later reads.
2.  `read` gives the present state of every GPU. A value that one GPU does not tell is None in its Card and
    costs no other value. It raises Unavailable when nothing can be read any more; `close` and `open` follow.
3.  Nothing is started, allocated or left open by a read that was not there after the first one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from rankside_agent.gpu.card import Card


class Unavailable(Exception):
    """The source does not work here, or no longer; the text is for people."""


class Source(ABC):
    """One way to ask for the GPUs of this node. Used by one thread of one process."""

    name: ClassVar[str]

    @abstractmethod
    def open(self) -> None:
        """Get ready. Raises Unavailable."""

    @abstractmethod
    def read(self) -> list[Card]:
        """Every GPU (or partition) of the node. Raises Unavailable."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; may be called twice."""
