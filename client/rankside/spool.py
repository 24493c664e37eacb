"""The mapped file: every record is here before the caller's call returns, and outlives the process.

A channel's spool is a folder of equal segments of preallocated, mapped memory (pages of the kernel's, so
SIGKILL loses nothing), a `channel` file that says whose it is, and a `state` page: the lock that tells
every other process that this one lives, what was dropped, and which agent took the channel on.

Separate from the transport because a record is safe once it is here, whether anyone listens or not.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from rankside import wire
from rankside.segment import TITLE_SIZE, Segment, reserved
from rankside.state_page import StatePage, difference

DEFAULT_LIMIT = 64 << 20
_SEGMENTS = 16  # a full spool; two of them, the last eighth, are kept for what matters most
_RESERVED = 2
_LEAST_SEGMENT = wire.MAX_BODY + 4096  # the longest record fits into an empty segment
_RETRY = 1.0  # seconds between attempts to get room from a full disk

_LATER = 1024  # records of interrupting signal handlers held while one append is under way
_HEAD_SIZE, _MAX_BODY, _seal = wire.HEAD.size, wire.MAX_BODY, wire.seal  # looked up for every record


class Chunk(NamedTuple):
    """Whole frames `first` to `last`, as they lie in the spool."""

    first: int
    last: int
    data: bytes


class Spool:
    """One channel's records, from the first not yet acknowledged to the newest.

    `append` may be called by any thread and by signal handlers; all else belongs to the transport thread.
    """

    def __init__(self, folder: Path, hello: bytes, limit: int = DEFAULT_LIMIT) -> None:
        """Create the folder. Raises OSError where not even the first segment finds room."""
        self.folder = folder
        self._size = max(limit // _SEGMENTS, _LEAST_SEGMENT)
        self._most = max(limit // self._size, 3)
        self._plenty = self._most - max(1, self._most * _RESERVED // _SEGMENTS)
        self._lock = threading.RLock()  # re-entrant: a signal handler may log while its thread is in here
        self._take, self._give = self._lock.acquire, self._lock.release  # `with` takes twice as long
        self._inside = False
        self._later: deque[tuple[int, bytes, bool]] = deque()
        self._serials = count(1)
        self._spare: Segment | None = None
        self._no_room_until = 0.0
        self._dropped = [0] * 16
        self._announced = [0] * 16
        self._told = [0] * 16  # of these, what was announced where it outlives us
        self._told_at = 0  # the announcement that is in memory alone
        self._acked = 0
        self._tight = False  # the last eighth has begun
        self._ended = False  # the goodbye is written
        self._room = self._size  # of the segment, for records that need no second look; else 0
        self.hurry = False  # a segment was filled: the transport should not wait for more
        self.on_roll: Callable[[], None] | None = None  # wakes the transport then
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)  # left by an attempt that had no room
        state = None
        try:
            self._state = state = StatePage(folder / "state", create=True)
            _write_private(folder / "channel.new", hello)
            self._current = self._allocate(1)
            os.rename(folder / "channel.new", folder / "channel")  # a folder without it is not recovered
        except BaseException:
            _remove(folder)
            if state is not None:
                state.close()
            raise
        self._segments = deque([self._current])
        # where the next frame goes, and the last sequence number: one store, never torn
        self._at = (self._current.map, self._current.end, 0)
        self._read_in, self._read_at, self._read_seq = self._current, self._current.end, 0

    # -- the caller's side ---------------------------------------------------------------------------

    def append(self, kind: int, body: bytes, urgent: bool = True) -> bool:
        """Store one record; False where there is no room and it was counted as dropped."""
        try:
            self._take()  # in here, for a Ctrl-C may be raised as soon as it returns
            if self._inside and self._interrupted():
                return self._put_later(kind, body, urgent)
            try:
                self._inside = True
                mapped, end, seq = self._at
                size = len(body)
                stop = end + _HEAD_SIZE + size
                if stop > self._room or size > _MAX_BODY:
                    return self._put(kind, body, urgent)
                seq += 1
                mapped[end:stop] = _seal(seq, kind, body)
                self._at = (mapped, stop, seq)
                return True
            finally:
                self._inside = False
                while self._later:
                    self._put_postponed()
        finally:
            try:  # noqa: SIM105  suppress() costs what leaving `with` out has saved
                self._give()
            except RuntimeError:  # a Ctrl-C came while another thread held it; one's own never waits
                pass

    def finish(self, body: bytes) -> None:
        """The goodbye, the last record. What was dropped is told before it; both find room at any limit."""
        with self._lock:
            self._most += 1
            self._announce()
            self._ended, self._room = True, 0
            self.append(wire.Kind.CLOSE, body)

    def _interrupted(self) -> bool:
        """Whether this call came from inside another one (a signal handler, a finalizer).

        `_inside` alone may be stale: a KeyboardInterrupt can hit between two instructions of `append`.
        """
        frame, code = sys._getframe(1).f_back, Spool.append.__code__
        while frame is not None:
            if frame.f_code is code and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

    def _put_later(self, kind: int, body: bytes, urgent: bool) -> bool:
        if len(self._later) >= _LATER:
            return self._drop(kind)
        self._later.append((kind, body, urgent))
        return True

    def _put_postponed(self) -> None:
        try:
            self._inside = True  # before the look: a handler that came in between would empty the queue
            while self._later:
                kind, body, urgent = self._later[0]
                self._put(kind, body, urgent)
                self._later.popleft()
        finally:
            self._inside = False

    def _put(self, kind: int, body: bytes, urgent: bool) -> bool:
        if self._ended and kind != wire.Kind.CLOSE:
            return False  # the last record stays the last
        frame = _HEAD_SIZE + len(body)
        if len(body) > wire.MAX_BODY or (self._tight and not urgent):
            return self._drop(kind)
        if self._at[1] + frame > self._size and not self._roll(urgent):
            return self._drop(kind)
        mapped, end, seq = self._at
        mapped[end : end + frame] = wire.seal(seq + 1, kind, body)
        self._at = (mapped, end + frame, seq + 1)
        if self._current.path is None:
            self._state.in_memory(seq + 1)
        return True

    def _roll(self, urgent: bool) -> bool:
        """Go on to another segment. An exception between any two lines (Ctrl-C) must leave all consistent."""
        if len(self._segments) >= (self._most if urgent else self._plenty):
            return False
        _, end, seq = self._at
        fresh = self._next_segment(seq + 1)
        if fresh is None:
            return False
        self._current.end, self._current.last = end, seq
        self._segments.append(fresh)
        self._at = (fresh.map, fresh.end, seq)
        self._current = fresh
        self._look_for_room()
        self.hurry = True
        if self.on_roll is not None:
            self.on_roll()
        return True

    def _look_for_room(self) -> None:
        self._tight = len(self._segments) > self._plenty
        slowly = self._tight or self._ended or self._current.path is None
        self._room = 0 if slowly else self._size

    def _drop(self, kind: int, count: int = 1) -> bool:
        self._dropped[kind] += count
        self._state.census(self._dropped, self._told)
        return False

    def lost_before(self, counts: dict[int, int]) -> None:
        """Records that found no spool at all, by kind: they are dropped ones too."""
        with self._lock:
            for kind, count in counts.items():
                self._drop(kind, count)

    # -- room ----------------------------------------------------------------------------------------

    def _next_path(self) -> Path:
        return self.folder / f"{next(self._serials):08d}.seg"

    def _allocate(self, first: int) -> Segment:
        """A new segment. Raises OSError where there is no room."""
        path = self._next_path()
        try:
            return Segment(path, reserved(path, self._size), first)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def _next_segment(self, first: int) -> Segment | None:
        """The spare, a new one, or on a full disk memory of ours: an agent that lives still gets it."""
        try:
            spare, self._spare = self._spare, None
            if spare is not None:
                return self._retitled(spare, first)
            if time.monotonic() >= self._no_room_until:
                return self._allocate(first)
        except OSError:  # or somebody removed the folder
            self._no_room_until = time.monotonic() + _RETRY
        try:
            return Segment(None, mmap.mmap(-1, self._size), first)
        except OSError:
            return None

    def _retitled(self, segment: Segment, first: int) -> Segment:
        """Reuse a segment that was acknowledged: its pages are warm, and the disk need not be asked."""
        path = None if segment.path is None else self._next_path()
        if segment.path is not None and path is not None:
            os.rename(segment.path, path)
        segment.start(path, first)
        return segment

    def prepare(self) -> None:
        """Get a spare segment ready by the time this one is full: the caller need not wait for it then."""
        if (
            self._spare is None
            and self._at[1] > self._size // 2
            and len(self._segments) < self._most
            and time.monotonic() >= self._no_room_until
        ):
            spare: Segment | None
            try:
                spare = self._allocate(0)
            except OSError:
                self._no_room_until = time.monotonic() + _RETRY
            else:
                with self._lock:
                    spare, self._spare = self._spare, spare  # the caller may have freed one meanwhile
                if spare is not None:
                    spare.discard()

    def free(self, acked: int) -> None:
        """Forget everything up to sequence number `acked`: the agent has it on disk."""
        self._acked = acked
        gone: list[Segment] = []
        with self._lock:
            while self._segments[0] is not self._current and self._segments[0].last <= acked:
                gone.append(self._segments.popleft())
            if self._read_in in gone:
                self._read_from(self._segments[0])
            if gone and self._spare is None and gone[-1].path is not None:
                self._spare = gone.pop()
            self._look_for_room()
            if 0 < self._told_at <= acked:
                self._note_told()
        for segment in gone:
            segment.discard()

    # -- the transport's side ------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The newest sequence number."""
        return self._at[2]

    def used(self) -> int:
        """Bytes held."""
        with self._lock:
            return (len(self._segments) - 1) * self._size + self._at[1]

    def rewind(self, acked: int) -> None:
        """Read again from the record after `acked`."""
        with self._lock:
            holding = [segment for segment in self._segments if segment.first <= acked + 1]
            segment = holding[-1] if holding else self._segments[0]
        self._read_from(segment)
        for frame in wire.frames(segment.map, TITLE_SIZE, self._extent(segment)[0]):
            if frame.seq > acked:
                break
            self._read_at, self._read_seq = frame.end, frame.seq

    def _read_from(self, segment: Segment) -> None:
        self._read_in, self._read_at, self._read_seq = segment, TITLE_SIZE, segment.first - 1

    def read(self, most: int = wire.MAX_BATCH) -> Chunk | None:
        """The next frames not read yet, about `most` bytes of them."""
        end, last, following = self._extent(self._read_in)
        while self._read_at >= end:
            if following is None:
                return None
            self._read_from(following)
            end, last, following = self._extent(following)
        segment = self._read_in
        if end - self._read_at > most:
            end, last = self._boundary(segment, most)
        first, start = self._read_seq + 1, self._read_at
        self._read_at, self._read_seq = end, last
        return Chunk(first, last, segment.map[start:end])

    def _extent(self, segment: Segment) -> tuple[int, int, Segment | None]:
        """Where a segment ends, its last sequence number, and, where it is final, the next one."""
        with self._lock:
            if segment is self._current:
                return *self._at[1:], None
            later = (other for other in self._segments if other.first > segment.last and other is not segment)
            return segment.end, segment.last, next(later, None)

    def _boundary(self, segment: Segment, most: int) -> tuple[int, int]:
        at, seq, unpack = self._read_at, self._read_seq, wire.HEAD.unpack_from
        while True:
            following = at + wire.HEAD.size + unpack(segment.map, at)[0]
            if following - self._read_at > most and at > self._read_at:
                return at, seq
            at, seq = following, seq + 1
            if following - self._read_at >= most:
                return at, seq

    def announce(self) -> None:
        """No loss is silent: what was dropped becomes a record, as soon as there is room for every kind."""
        with self._lock:
            if not self._tight:
                self._announce()

    def _announce(self) -> None:
        counts = difference(self._dropped, self._announced)
        if counts and self.append(wire.Kind.DROPPED, wire.pack((time.time(), counts))):
            for kind, count in counts.items():
                self._announced[wire.Kind[kind.upper()]] += count
            self._told_at = self._at[2]
            if self._current.path is not None:
                self._note_told()

    def _note_told(self) -> None:
        self._told_at, self._told = 0, list(self._announced)
        self._state.census(self._dropped, self._told)

    def dropped(self) -> int:
        """Records dropped so far."""
        return sum(self._dropped)

    def own(self, agent: str) -> None:
        """Note which agent holds this channel's earlier records: no other may recover it."""
        self._state.own(agent)

    def close(self, remove: bool) -> None:
        """Let go. With `remove` the folder goes too; without, an agent finds it and reads the rest."""
        if remove:
            _remove(self.folder)
        else:
            self._shrink()
        self._state.close()

    def _shrink(self) -> None:
        """Nobody knows for how long these files wait: they keep what is in them and no more."""
        from rankside import farewell  # as above: once, at the end

        with self._lock:
            held = [farewell.Held(segment, self._extent(segment)[0]) for segment in self._segments]
            if self._spare is not None:
                self._spare.discard()
            lost, unsaid = farewell.leave(held, self._next_path, self._acked)
            self._state.in_memory(0)  # what is lost of it is counted from here on
            for kind, count in unsaid.items():
                self._announced[kind] -= count
            self._note_told()
            for kind, count in lost.items():
                self._drop(kind, count)

    def abandon(self) -> None:
        """In a forked child: unmap the parent's pages. Its lock is the parent's alone, and stays."""
        for segment in [*self._segments, *([self._spare] if self._spare else [])]:
            segment.map.close()
        self._state.close()


def _write_private(path: Path, data: bytes) -> None:
    """For our user's eyes only, whoever owns the folders above: the trackers' secrets are in it."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def _remove(folder: Path) -> None:
    # not by shutil, whose import at the exit would make status 1 of a Ctrl-C (see farewell.Held)
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
