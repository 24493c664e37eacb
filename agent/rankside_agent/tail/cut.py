"""Judge a file that became shorter under us: a restart of its writer, or somebody's truncation."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from rankside_agent.tail.lines import Read
from rankside_agent.tail.prints import Prints

_REPLAY = 3.0  # seconds a writer may take to write again what it cut; it needs a fraction of one


class Verdict(Enum):
    """What to do about it."""

    WAIT = "nothing shows yet which it is"
    SAME = "the same bytes were written again: go on as if nothing had been"
    RESTARTED = "another beginning: start again from it"
    DIFFERENT = "the same beginning, then other bytes: go on from the cut"


class Cut:
    """A shorter file.

    An agent that comes back after a crash cuts its files to its last checkpoint and writes the rest again,
    byte for byte; who has read that rest already must not show it twice. copytruncate of an outside logrotate
    looks the same at first.
    """

    def __init__(self, prints: Prints, size: int, clock: Callable[[], float]) -> None:
        self._prints = prints
        self._clock = clock
        self._grew_at: float | None = None
        self.least = size

    def judge(self, read: Read, size: int) -> Verdict:
        """The verdict while the file has `size` bytes."""
        if not self._prints.begins(read):
            same_until_the_cut = self.least > 0 and self._prints.begins(read, self.least)
            return Verdict.DIFFERENT if same_until_the_cut else Verdict.RESTARTED
        if size >= self._prints.offset:
            return Verdict.SAME if self._prints.reaches(read) else Verdict.DIFFERENT
        if size <= self.least:
            self.least, self._grew_at = size, None
        elif self._grew_at is None:
            self._grew_at = self._clock()
        elif self._clock() - self._grew_at > _REPLAY:
            return Verdict.DIFFERENT
        return Verdict.WAIT
