"""The bytes of one log in the order of writing, for ever: over rotations each once, over faults with a word.

Polls instead of inotify: that knows nothing of what other hosts write to a shared disk, and its limits are
the node's, where other users have used them up ("no space left on device").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from rankside_agent.tail.cut import Cut, Verdict
from rankside_agent.tail.log import Log
from rankside_agent.tail.names import LIVE, Order
from rankside_agent.tail.piece import Piece, Plain
from rankside_agent.tail.prints import Prints

_STEPS = 64  # files that one read goes through at most
_GONE = 1.0  # seconds a live file is away before it is worth a word; a rotation takes microseconds


class Trail:
    """Where we are in the files of a log."""

    def __init__(
        self,
        log: Log,
        live: Plain | None,
        prints: Prints,
        seen: Iterable[Order],
        *,
        broken: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`broken` is called where what is read next does not continue the line read last."""
        self._log = log
        self._broken = broken
        self._clock = clock
        self._piece: Piece | None = live
        self._live = live  # the same, while what we read is the live file, or was when we opened it
        self._prints = prints
        self._seen = set(seen)
        self._queue: deque[Order] = deque()
        self._coming: Plain | None = None  # the live file that stands last in the queue, held open
        self._stale = False  # our handle died; the file itself may live on under some name
        self._cut: Cut | None = None
        self._gone_since: float | None = None

    def __repr__(self) -> str:
        state = "live" if self._live else "older" if self._piece else "waiting"
        return f"{state} at {self._prints.offset}, {len(self._queue)} files to come"

    def read(self, count: int) -> bytes:
        """The next bytes, none where there are no more yet. Raises OSError; the next call goes on."""
        for _ in range(_STEPS):
            if data := self._read(count):
                return data
            if not self._advance():
                break
        return b""

    def close(self) -> None:
        """Give the handles back."""
        for piece in (self._piece, self._coming):
            if piece:
                piece.close()
        self._piece = self._live = self._coming = None

    def _read(self, count: int) -> bytes:
        if self._piece is None or self._cut:
            return b""
        try:
            data = self._piece.read(self._prints.offset, count)
            rewritten = data and self._live and not self._prints.reaches(self._piece.read)
        except OSError:
            self._lose(self._piece)
            raise
        if rewritten:
            self._start_again("was written anew")
            return b""
        self._prints.add(data)
        return data

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
        if self._log.is_live(self._live):
            self._gone_since = None
            return size > self._prints.offset
        # it was renamed, or deleted; what was written before that is ours still, and may have come since
        return self._live.size() > self._prints.offset or self._next_file()

    # -- the next file -------------------------------------------------------------------------------

    def _next_file(self) -> bool:
        if not self._queue and not self._look_ahead():
            return False
        order = self._queue.popleft()
        resume, self._stale = self._stale, False
        if not resume:
            self._leave()
        self._enter(order)
        return True

    def _look_ahead(self) -> bool:
        """Queue the files that came after ours."""
        live, older = self._log.snapshot()
        try:
            if live is None and (self._live or self._stale):
                self._note_absence()
                return False
            if live and self._live and live.identity == self._live.identity:
                live.close()  # it was away and is back
                return False
            new = self._after_ours([order for order in older if order not in self._seen], live)
        except OSError:
            if live:
                live.close()
            raise
        self._seen.update(older)
        self._queue.extend(new)
        if live:
            self._queue.append(LIVE)
            self._coming = live
        return bool(self._queue)

    def _after_ours(self, new: list[Order], live: Plain | None) -> list[Order]:
        """Of the new files those that follow ours, which is mostly the first of them under its new name."""
        if self._stale:
            return self._from_ours(new, live)
        if self._live:
            for index, order in enumerate(new):
                if self._log.is_same(order, self._live, self._prints.head):
                    return new[index + 1 :]
        return new

    def _from_ours(self, new: list[Order], live: Plain | None) -> list[Order]:
        """Of the new files ours, wherever it is now, and those that follow it."""
        if live and self._prints.begins(live.read) and self._prints.reaches(live.read):
            return []
        for index, order in enumerate(new):
            if self._log.is_same(order, None, self._prints.head):
                return new[index:]
        self._log.say(f"{self._log} vanished while it was read; lines may be missing")
        self._stale = False
        return new

    def _leave(self) -> None:
        self._broken()
        if self._piece is not None:
            self._piece.close()
        self._piece = self._live = self._cut = self._gone_since = None
        self._prints = Prints()

    def _enter(self, order: Order) -> None:
        if order == LIVE:
            self._piece = self._live = self._coming
            self._coming = None
            return
        try:
            self._piece = self._log.open(order)
        except OSError as error:
            self._log.say(f"{self._log}: a rotated file cannot be read: {error.strerror or error}")
        else:
            if self._piece is None:
                self._log.say(f"{self._log}: a rotated file was deleted before it could be read")

    # -- a file that became shorter ------------------------------------------------------------------

    def _judge(self, cut: Cut) -> bool:
        if self._piece is None:
            self._cut = None
            return True
        verdict = cut.judge(self._piece.read, self._piece.size())
        if verdict is Verdict.WAIT and self._live:
            return not self._log.is_live(self._live) and self._expect_elsewhere(self._live.size())
        self._cut = None
        if verdict is Verdict.RESTARTED:
            self._start_again("was truncated")
        elif verdict is Verdict.SAME:
            self._prints.take(self._piece.read, self._prints.offset)
        else:
            self._broken()
            self._prints.take(self._piece.read, cut.least)
            told = f"lost its end and went on otherwise after {cut.least} bytes; following on"
            self._log.say(f"{self._log} {told}")
        return True

    def _expect_elsewhere(self, size: int) -> bool:
        """The writer rotated the file at `size`: what it writes again begins the next one."""
        expected = self._prints.after(size)
        if not self._next_file():
            return False
        self._prints, self._cut = expected, Cut(expected, 0, self._clock)
        return True

    def _start_again(self, what: str) -> None:
        self._broken()
        self._prints = Prints()
        self._log.say(f"{self._log} {what}; starting again from its beginning")

    # -- a file that is not there --------------------------------------------------------------------

    def _lose(self, piece: Piece) -> None:
        """The handle is no good any more, as when another host deleted the file."""
        self._stale = self._live is not None
        if not self._stale:
            self._log.say(f"{self._log}: a rotated file could not be read to its end")
        piece.close()
        self._piece = self._live = self._cut = None

    def _note_absence(self) -> None:
        now = self._clock()
        if self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since >= _GONE:
            self._log.say(f"{self._log} is gone; waiting for it to come back")
