"""The lines of one record, kept up to a limit from its beginning, whichever end they are added at."""

from __future__ import annotations

from collections import deque

from rankside_agent.tail.lines import LIMIT, mark


class Pile:
    """Lines that grow to one text of bounded size."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lines: deque[str] = deque()
        self._kept = 0
        self._size = 0
        self.count = 0

    def after(self, line: str) -> None:
        """Add the next line, as one reads forwards."""
        self._count(line)
        if self._kept == self._size - len(line) - 1 and self._kept < self._limit:
            self._lines.append(line)
            self._kept += len(line) + 1

    def before(self, line: str) -> None:
        """Add the line that stands before all others, as one reads backwards."""
        self._count(line)
        self._lines.appendleft(line)
        self._kept += len(line) + 1
        while self._kept - len(self._lines[-1]) - 1 >= self._limit:
            self._kept -= len(self._lines.pop()) + 1

    def take(self) -> str:
        """The text, with a mark where the end is missing; the pile is empty after it."""
        text = "\n".join(self._lines)
        if self._kept < self._size:
            text += mark(self._size - 1, "characters")
        self._lines.clear()
        self._kept = self._size = self.count = 0
        return text

    def _count(self, line: str) -> None:
        self._size += len(line) + 1
        self.count += 1
