"""Follow one log as it grows, record by record; apart from the trail of bytes, for here time decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rankside_agent.tail.assembly import Assembler
from rankside_agent.tail.line import Head
from rankside_agent.tail.lines import CHUNK, Cutter
from rankside_agent.tail.log import Log
from rankside_agent.tail.names import Order
from rankside_agent.tail.piece import Plain
from rankside_agent.tail.prints import Prints
from rankside_agent.tail.record import Record
from rankside_agent.tail.trail import Trail

IDLE = 0.05  # seconds without a further line after which a record is held to be complete
OPEN = 0.15  # seconds after which it is shown even so, and later lines as further ones


class Follower:
    """Gives the records of one log as they come."""

    def __init__(
        self,
        log: Log,
        *,
        live: Plain | None = None,
        prints: Prints | None = None,
        seen: Iterable[Order] = (),
        before: Head | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin in the live file where `prints` end, knowing its older siblings; else at the very start.

        `before` is the head of the record that ends there: further lines of it may be still to come.
        """
        self.log = log
        self._clock = clock
        self._trail = Trail(log, live, prints or Prints(), seen, broken=self._end_line, clock=clock)
        self._cutter = Cutter()
        self._assembler = Assembler(log.kind, before)
        self._begun = self._fed = clock()  # when the record in work began, and when bytes last came
        self._done: list[Record] = []

    def __repr__(self) -> str:
        return f"Follower({self.log}, {self._trail})"

    def poll(self) -> tuple[list[Record], bool]:
        """The records that are complete since the last call, and whether there may be more at once.

        It reads about CHUNK bytes at most. Raises OSError for what cannot be read; the next call goes on.
        """
        left = CHUNK
        while left > 0 and (data := self._trail.read(left)):
            left -= len(data)
            self._fed = self._clock()
            for line in self._cutter.feed(data):
                self._feed(line)
        self._show_ripe(read=left < CHUNK)
        done, self._done = self._done, []
        return done, left <= 0

    @property
    def waits(self) -> bool:
        """Whether a record is held that will soon be shown, complete or not."""
        return self._assembler.waits

    def close(self) -> None:
        """Give the handles back."""
        self._trail.close()

    def _feed(self, line: bytes) -> None:
        if not self._assembler.waits:
            self._begun = self._fed
        record = self._assembler.feed(line)
        if record is not None:
            self._begun = self._fed
            self._done.append(record)

    def _end_line(self) -> None:
        if self._cutter.waits:
            self._feed(self._cutter.rest())

    def _show_ripe(self, *, read: bool) -> None:
        now = self._clock()
        idle = not read and now - self._fed >= IDLE
        if self._assembler.waits and (idle or now - self._begun >= OPEN):
            record = self._assembler.flush()
            if record is not None:
                self._done.append(record)
