"""From the journal to one tracker, round by round: the loop of a sink's process without the process.

Separate from `run.py` so that it can be driven in a test, and because the one place that catches what foreign
code raises is here.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rankside_agent import files
from rankside_agent.journal import Reader
from rankside_agent.sinks import cursor_path, load
from rankside_agent.sinks.base import Counts, Run, Sink
from rankside_agent.sinks.cursor import Cursor, Mark
from rankside_agent.sinks.points import Points

log = logging.getLogger(__name__)

READ_BYTES = 256 << 10  # of the journal, a round: bounds memory and how late the end of stdin is seen
FLUSH_SECONDS = 1.0
FLUSH_BYTES = 4 << 20  # of the journal; a backlog is not one long transaction
SHORTEST_IDLE, LONGEST_IDLE = 0.02, 0.5
BEAT_SECONDS = 30.0  # the supervisor takes a longer silence than its limit for a hang
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0


class Forwarder:
    """Moves a run's points to one sink. Nothing but `__init__` raises.

    `make` and `jitter` are seams for tests: how the sink's class is found, and a number from 0 to 1.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        make: Callable[[str], type[Sink]] = load,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Raises ValueError where run.json does not say what the run is."""
        self.run = _run(run_dir)
        self.name = name
        self.cursor = Cursor.load(cursor_path(run_dir, name))
        self.drained = False  # whether the last round found nothing more to read or to flush
        self.succeeded_at = float("-inf")  # monotonic
        self._journal = run_dir / "journal" / "points"
        self._make = make
        self._jitter = jitter
        self._sink: Sink | None = None
        self._reader: Reader | None = None
        self._counts = Counts()
        self._points: Points | None = None
        self._unflushed = 0  # bytes of entries since the last flush
        self._lost = 0  # records that this reader has missed
        self._flushed = self._next_try = float("-inf")
        self._idle = SHORTEST_IDLE
        self._delay = FIRST_DELAY
        self._in_row = 0  # failures since the last success
        self._trouble: tuple[type[Exception], int | None] | None = None  # what was told of last
        self._saved_at = float("-inf")
        self._unsaved = False
        self._hurried = False

    def round(self) -> float:
        """Forward what there is. Returns the seconds until the next round is due."""
        if (wait := self._next_try - time.monotonic()) > 0:
            return wait
        self.drained = False
        try:
            moved = self._forward()
        except Exception as error:  # noqa: BLE001  trackers are foreign code
            return self._failed(error)
        return self._pause(moved)

    def hurry(self) -> None:
        """There is little time left: flush in every round, and try again soon."""
        self._hurried = True
        self._next_try = float("-inf")

    def close(self, state: str) -> None:
        """Let go of everything, and leave `state` behind."""
        self._let_go()
        self.cursor.state, self.cursor.next_try = state, None
        self._save()

    def _forward(self) -> bool:
        """One round; whether it moved anything. Raises whatever the tracker raises."""
        sink, reader, points = self._opened()
        entries = reader.read(READ_BYTES)
        for entry in entries:
            for point in points.of(entry):
                sink.write(point)
            self._unflushed += len(entry.payload)
        if self._unflushed and (self._unflushed >= FLUSH_BYTES or self._until_flush() <= 0):
            self._checkpoint(sink, reader)
        self.drained = not entries and not self._unflushed
        return bool(entries)

    def _opened(self) -> tuple[Sink, Reader, Points]:
        if self._sink is None or self._reader is None or self._points is None:
            mark = self.cursor.mark
            self._reader = Reader(self._journal, mark.position)
            self._counts = replace(mark.counts)
            sink_class = self._make(self.name)
            self._points = Points(self._counts, sink_class.wanted)
            self._sink = sink_class(self.run, mark.private, self._counts)
            self._unflushed = self._lost = 0
            self.cursor.state, self.cursor.next_try = "running", None
            self._save()
        return self._sink, self._reader, self._points

    def _checkpoint(self, sink: Sink, reader: Reader) -> None:
        sink.flush()
        self._unflushed = 0
        self._flushed = self.succeeded_at = time.monotonic()
        self._note_losses(reader)
        if sink.settled:
            counts, read = replace(self._counts), reader.state.records
            self.cursor.mark = Mark(reader.position, read, counts, sink.state())
        if self._in_row:
            log.info("delivering again, after %d failures; nothing was lost", self._in_row)
        self._in_row, self._delay, self._trouble = 0, FIRST_DELAY, None
        self.cursor.last_time = time.time()
        self._save()

    def _note_losses(self, reader: Reader) -> None:
        if reader.lost > self._lost:
            log.error("%d records are lost: the journal is damaged or cut", reader.lost - self._lost)
            self._counts.failed += reader.lost - self._lost
            self._lost = reader.lost

    def _failed(self, error: Exception) -> float:
        text = f"{type(error).__name__}: {error}"[:1000]
        kind = (type(error), getattr(error, "errno", None))  # the text may name another file each time
        if kind != self._trouble:
            known = isinstance(error, OSError)
            log.warning("%s takes nothing now, trying again: %s", self.name, text, exc_info=not known)
        self._trouble = kind
        self._let_go()
        longest = FIRST_DELAY if self._hurried else LONGEST_DELAY
        delay = min(self._delay, longest) * (0.75 + 0.5 * self._jitter())  # many nodes must not come in step
        self._delay = min(self._delay * 2, LONGEST_DELAY)
        self._next_try = time.monotonic() + delay
        self._in_row += 1
        self.cursor.failures += 1
        self.cursor.state, self.cursor.last_error = "waiting", text
        self.cursor.next_try = time.time() + delay
        self._save()
        return delay

    def _pause(self, moved: bool) -> float:
        if moved:
            self._idle = SHORTEST_IDLE
            return 0.0
        if time.monotonic() - self._saved_at > BEAT_SECONDS:
            self._save()
        pause, self._idle = self._idle, min(self._idle * 2, LONGEST_IDLE)
        return min(pause, max(self._until_flush(), 0.0)) if self._unflushed else pause

    def _until_flush(self) -> float:
        return 0.0 if self._hurried else self._flushed + FLUSH_SECONDS - time.monotonic()

    def _let_go(self) -> None:
        if self._sink is not None:
            try:
                self._sink.close()
            except Exception as error:  # noqa: BLE001  as in `round`
                log.warning("%s: closing failed: %s", self.name, error)
        if self._reader is not None:
            self._reader.close()
        self._sink = self._reader = None

    def _save(self) -> None:
        """A mark that cannot be stored costs a longer way back, no points: so it goes on."""
        self._saved_at = time.monotonic()
        try:
            self.cursor.save()
        except OSError as error:
            if not self._unsaved:
                log.warning("%s cannot be written: %s", self.cursor.path, error)
            self._unsaved = True
            with suppress(OSError):
                os.utime(self.cursor.path)  # for the supervisor: no hang
        else:
            self._unsaved = False


def _run(run_dir: Path) -> Run:
    found = files.read_json(run_dir / "run.json")
    try:
        return Run(run_id=str(found["run_id"]), exp_root=str(found["exp_root"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run_dir / 'run.json'} does not name a run: {error!r}") from None
