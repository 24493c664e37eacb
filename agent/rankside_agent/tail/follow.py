"""Follow one log as it grows: over rotations, each line once and in order; over anything else, and say so.

Polls instead of inotify: that knows nothing of what other hosts write to a shared disk, and its limits are
the node's, where other users have used them up ("no space left on device").
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from rankside_agent.tail.assembly import Assembler
from rankside_agent.tail.cut import Cut, Verdict
from rankside_agent.tail.line import Head
from rankside_agent.tail.lines import CHUNK, Cutter
from rankside_agent.tail.log import Log
from rankside_agent.tail.names import LIVE, Order
from rankside_agent.tail.piece import Piece, Plain
from rankside_agent.tail.prints import Prints
from rankside_agent.tail.record import Record

IDLE = 0.05  # seconds without a further line after which a record is held to be complete
OPEN = 0.15  # seconds after which it is shown even so, and later lines as further ones
_STEPS = 64  # files that one poll goes through at most
_GONE = 1.0  # seconds a live file is away before it is worth a word; a rotation takes microseconds


class Follower:
    """Where we are in one log."""

    def __init__(
        self,
        log: Log,
        *,
        live: Plain | None = None,
        offset: int = 0,
        seen: Iterable[Order] = (),
        before: Head | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin in the live file at `offset`, knowing its older siblings; without it, at the very start.

        `before` is the head of the record that ends there: further lines of it may be still to come.
        """
        self.log = log
        self._clock = clock
        self._piece: Piece | None = live
        self._live = live  # the same, while it is the live file that we read
        self._prints = Prints()
        if live:
            self._prints.take(live.read, offset)
        self._seen = set(seen)
        self._queue: deque[Order] = deque()
        self._coming: Plain | None = None  # the live file that stands last in the queue, held open
        self._stale = False  # our handle died; the file itself may live on under some name
        self._cut: Cut | None = None
        self._gone_since: float | None = None
        self._cutter = Cutter()
        self._assembler = Assembler(log.kind, before)
        self._begun = self._fed = clock()
        self._done: list[Record] = []

    def __repr__(self) -> str:
        state = "live" if self._live else "older" if self._piece else "waiting"
        return f"Follower({self.log}, {state} at {self._prints.offset}, {len(self._queue)} files to come)"

    def poll(self) -> tuple[list[Record], bool]:
        """The records that are complete since the last call, and whether there may be more at once.

        It reads about CHUNK bytes at most. Raises OSError for what cannot be read; the next call goes on.
        """
        left = CHUNK
        for _ in range(_STEPS):
            if data := self._read(left):
                left -= len(data)
                self._take(data)
            elif not self._advance():
                break
            if left <= 0:
                break
        self._show_ripe(read=left < CHUNK)
        done, self._done = self._done, []
        return done, left <= 0

    @property
    def waits(self) -> bool:
        """Whether a record is held that will soon be shown, complete or not."""
        return self._assembler.waits

    def close(self) -> None:
        """Give the handles back."""
        for piece in (self._piece, self._coming):
            if piece:
                piece.close()
        self._piece = self._live = self._coming = None

    # -- bytes to records ----------------------------------------------------------------------------

    def _read(self, count: int) -> bytes:
        if self._piece is None or self._cut:
            return b""
        try:
            data = self._piece.read(self._prints.offset, count)
            rewritten = data and self._live and not self._prints.reaches(self._piece.read)
        except OSError:
            self._lose()
            raise
        if rewritten:
            self._start_again("was written anew")
            return b""
        self._prints.add(data)
        return data

    def _take(self, data: bytes) -> None:
        self._fed = self._clock()
        for line in self._cutter.feed(data):
            self._feed(line)

    def _feed(self, line: bytes) -> None:
        if not self._assembler.waits:
            self._begun = self._fed
        record = self._assembler.feed(line)
        if record is not None:
            self._begun = self._fed
            self._done.append(record)

    def _show_ripe(self, *, read: bool) -> None:
        now = self._clock()
        idle = not read and now - self._fed >= IDLE
        if self._assembler.waits and (idle or now - self._begun >= OPEN):
            record = self._assembler.flush()
            if record is not None:
                self._done.append(record)

    # -- at the end of what there is -----------------------------------------------------------------

    def _advance(self) -> bool:
        """Whether there is more to read after all: more bytes, or another file."""
        if self._cut:
            return self._judge(self._cut)
        if self._live is None:
            return self._next_file()
        size = self._live.size()
        if size < self._prints.offset:
            self._cut = Cut(self._prints, size, self._clock)
            return self._judge(self._cut)
        if self.log.is_live(self._live):
            self._gone_since = None
            return size > self._prints.offset
        # it was renamed, or deleted; what was written before that is ours still, and has been read only now
        return self._live.size() > self._prints.offset or self._next_file()

    def _next_file(self) -> bool:
        if not self._queue and not self._look_ahead():
            return False
        order = self._queue.popleft()
        resume, self._stale = self._stale, False
        if not resume:
            self._finish()
            self._prints = Prints()
        self._enter(order)
        return True

    def _look_ahead(self) -> bool:
        """Queue the files that came after ours."""
        live, older = self.log.snapshot()
        if live is None and (self._live or self._stale):
            self._note_absence()
            return False
        if live and self._live and live.identity == self._live.identity:
            live.close()  # it was away and is back
            return False
        new = self._after_ours([order for order in older if order not in self._seen], live)
        self._seen.update(older)
        self._queue.extend(new)
        if live is not None:
            self._queue.append(LIVE)
            self._coming = live
        return bool(self._queue)

    def _after_ours(self, new: list[Order], live: Plain | None) -> list[Order]:
        """Of the new files those that follow ours, which is mostly the first of them under its new name."""
        if self._live is None and not self._stale:
            return new
        if self._stale and live is not None and self._is_ours(live):
            return []
        for index, order in enumerate(new):
            if self.log.is_same(order, self._live, self._prints.head):
                return new[index:] if self._stale else new[index + 1 :]
        if self._stale:
            self.log.say(f"{self.log} vanished while it was read; lines may be missing")
        self._stale = False
        return new

    def _enter(self, order: Order) -> None:
        if order == LIVE:
            self._piece = self._live = self._coming
            self._coming = None
            return
        try:
            self._piece = self.log.open(order)
        except OSError as error:
            self.log.say(f"{self.log}: a rotated file cannot be read: {error}")
        else:
            if self._piece is None:
                self.log.say(f"{self.log}: a rotated file was deleted before it could be read")

    def _finish(self) -> None:
        self._end_line()
        if self._piece is not None:
            self._piece.close()
        self._piece = self._live = self._cut = self._gone_since = None

    def _end_line(self) -> None:
        if self._cutter.waits:
            self._feed(self._cutter.rest())

    # -- faults --------------------------------------------------------------------------------------

    def _lose(self) -> None:
        """The handle is no good any more, as when another host deleted the file."""
        self._stale = self._live is not None
        if self._piece is not None:
            self._piece.close()
        self._piece = self._live = self._cut = None

    def _is_ours(self, live: Plain) -> bool:
        return self._prints.begins(live.read) and self._prints.reaches(live.read)

    def _judge(self, cut: Cut) -> bool:
        """Whether there is more to read in a file that became shorter."""
        if self._piece is None:
            self._cut = None
            return True
        verdict = cut.judge(self._piece.read, self._piece.size())
        if verdict is Verdict.WAIT and self._live:
            return not self.log.is_live(self._live) and self._expect_elsewhere(self._live.size())
        self._cut = None
        if verdict is Verdict.RESTARTED:
            self._start_again("was truncated")
        elif verdict is Verdict.SAME:
            self._prints.take(self._piece.read, self._prints.offset)
        else:
            self._end_line()
            self._prints.take(self._piece.read, cut.least)
            self.log.say(
                f"{self.log} lost its end and went on otherwise after {cut.least} bytes; following on"
            )
        return True

    def _expect_elsewhere(self, size: int) -> bool:
        """The writer rotated the file at `size`: what it writes again begins the next one."""
        expected = self._prints.after(size)
        if not self._next_file():
            return False
        self._prints, self._cut = expected, Cut(expected, 0, self._clock)
        return True

    def _start_again(self, what: str) -> None:
        self._end_line()
        self._prints = Prints()
        self.log.say(f"{self.log} {what}; starting again from its beginning")

    def _note_absence(self) -> None:
        now = self._clock()
        if self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since >= _GONE:
            self.log.say(f"{self.log} is gone; waiting for it to come back")
