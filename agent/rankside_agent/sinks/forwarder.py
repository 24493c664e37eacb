"""From the journal to one tracker, round by round: the loop of a sink's process without the process.

Separate from `run.py` so that it can be driven in a test, and because the one place that catches what foreign
code raises is here.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from rankside import wire
from rankside_agent import files
from rankside_agent.journal import Entry, EntryType, Reader
from rankside_agent.sinks import cursor_path, load
from rankside_agent.sinks.base import Counts, GoBack, Outcome, Run, Sink
from rankside_agent.sinks.cursor import Cursor, Mark
from rankside_agent.sinks.last_rank import is_elsewhere
from rankside_agent.sinks.points import Source
from rankside_agent.sinks.translator import Translator

log = logging.getLogger(__name__)

READ_BYTES = 256 << 10  # of the journal, a round: bounds memory and how late the end of stdin is seen
FLUSH_BYTES = 4 << 20  # of the journal; a backlog is not one long transaction
SHORTEST_IDLE, LONGEST_IDLE = 0.02, 0.5
BEAT_SECONDS = 30.0  # the supervisor takes a longer silence than its limit for a hang
UNSAVED_SECONDS = 1.0  # after which a cursor that could not be stored is tried again
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0


class Forwarder:
    """Moves a run's points to one sink. Nothing but `__init__` raises.

    `everything`: also of attempts whose parameters do not ask for this tracker. `unseen`: nobody watches the
    run any more, so that ranks without an end were killed. `make` and `jitter` are seams for tests: how the
    sink's class is found, and a number from 0 to 1.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        make: Callable[[str], type[Sink]] = load,
        jitter: Callable[[], float] = random.random,
        everything: bool = False,
        unseen: bool = False,
    ) -> None:
        """Raises ValueError where run.json does not say what the run is."""
        self.run = _run(run_dir)
        self.name = name
        self.cursor = Cursor.load(cursor_path(run_dir, name))
        self.drained = False  # whether the last round found nothing more to read or to flush
        self.succeeded_at = float("-inf")  # monotonic
        self._journal = run_dir / "journal" / "points"
        self._run_json = run_dir / "run.json"
        self._make = make
        self._everything = everything
        self._unseen = unseen
        self._jitter = jitter
        self._sink: Sink | None = None
        self._reader: Reader | None = None
        self._counts = Counts()
        self._points: Translator | None = None
        self._unflushed = 0  # bytes of entries since the last flush
        self._lost = 0  # records that this reader has missed
        self._flushed = self._next_try = float("-inf")
        self._idle = SHORTEST_IDLE
        self._delay = FIRST_DELAY
        self._in_row = 0  # failures since the last success
        self._whole = 0  # values left out up to the stored mark
        self._trouble: tuple[type[Exception], int | None] | None = None  # what was told of last
        self._saved_at = float("-inf")
        self._unsaved = False
        self._hurried = self._complete = False
        self._all_ended = False  # whether ranks whose end nobody saw were taken for ended

    @property
    def provisional(self) -> bool:
        """Whether a stand-in has taken points that the tracker itself is still to get."""
        return self.cursor.anchor is not None

    def round(self) -> float:
        """Forward what there is. Returns the seconds until the next round is due."""
        if (wait := self._next_try - time.monotonic()) > 0:
            return wait
        self.drained = False
        try:
            moved = self._forward()
        except GoBack:
            return self._go_back()
        except Exception as error:  # noqa: BLE001  trackers are foreign code
            return self._failed(error)
        return self._pause(moved)

    def complete(self) -> None:
        """No more points will come: the end is told as soon as all before it is delivered."""
        self._complete = True

    def hurry(self) -> None:
        """No more points will come, and little time is left: flush once all is read, and try again soon."""
        self._hurried = self._complete = True
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
        if not entries and self._unseen and not (points.settled or self._all_ended):
            self._end_all(sink, reader, points)
        if self._unflushed:
            if self._due(bool(entries)):
                self._checkpoint(sink, reader)
        elif sink.provisional and self._until_flush() <= 0:
            self._flushed = time.monotonic()
            sink.flush()  # nothing is to be written, but a stand-in looks whether its tracker is back
        if not entries and not self._unflushed:
            if self._complete and not sink.provisional:
                self._finish(sink)
            self.drained = True
        return bool(entries)

    def _end_all(self, sink: Sink, reader: Reader, points: Translator) -> None:
        """What waits for the next word of ranks that are gone would wait for ever."""
        self._all_ended = True
        payload = wire.pack({"status": "killed"})
        for channel, known in sorted(reader.state.channels.items()):
            if known.ended is None:
                for point in points.of(Entry(EntryType.END, channel, payload, reader.position, known.info)):
                    sink.write(point)
        self._unflushed += len(payload)

    def _opened(self) -> tuple[Sink, Reader, Translator]:
        if self._sink is None or self._reader is None or self._points is None:
            mark = self.cursor.mark
            self._reader = Reader(self._journal, mark.position)
            self._counts = replace(mark.counts)
            self._whole = mark.counts.refused + mark.counts.failed
            sink_class = self._make(self.name)
            wanted = (lambda _config: True) if self._everything else sink_class.wanted
            self._points = Translator(self._counts, wanted, mark.speaker, self._elsewhere)
            self._sink = sink_class(self.run, mark.private, self._counts)
            self._unflushed = self._lost = 0
            self._all_ended = False
            self.cursor.state, self.cursor.next_try = self._running(), None
            self._save()
        return self._sink, self._reader, self._points

    def _elsewhere(self, source: Source) -> bool:
        root = Path(self.run.exp_root)
        return bool(source.host) and is_elsewhere(root, source.attempt, source.world_size, (source.host,))

    def _checkpoint(self, sink: Sink, reader: Reader) -> None:
        sink.flush()
        self._unflushed = 0
        self._flushed = self.succeeded_at = time.monotonic()
        self._note_losses(reader)
        self._mark(sink, reader)
        if self._in_row:
            self._tell_recovery()
        self._in_row, self._delay, self._trouble = 0, FIRST_DELAY, None
        self.cursor.last_time = time.time()
        self.cursor.state = self._running()
        self._save()

    def _tell_recovery(self) -> None:
        """What the time of trouble cost, by what was left out since the last mark before it."""
        gone = self._counts.refused + self._counts.failed - self._whole
        said = f"{gone} values were refused or lost meanwhile" if gone else "nothing was lost"
        log.info("delivering again, after %d failures; %s", self._in_row, said)

    def _mark(self, sink: Sink, reader: Reader) -> None:
        """What was flushed is delivered; a stand-in's part of it is remembered as still to be."""
        points = self._points
        if points is None or not (sink.settled and points.settled):
            return
        if not sink.provisional:
            self.cursor.anchor = None
        elif self.cursor.anchor is None:
            self.cursor.anchor = self.cursor.mark
        counts, read = replace(self._counts), reader.state.records
        self.cursor.mark = Mark(reader.position, read, counts, sink.state(), points.state())

    def _running(self) -> str:
        return "offline" if self._sink is not None and self._sink.provisional else "running"

    def _note_remark(self) -> None:
        if self._sink is not None:
            self.cursor.remark = self._sink.remark

    def _finish(self, sink: Sink) -> None:
        """Tell the tracker how it ended, once, if it has: an agent that died does not end a run."""
        outcome = _outcome(self._run_json, self._unseen)
        told = f"{outcome.attempt} {outcome.status} {self.cursor.mark.read}" if outcome else ""
        if outcome is None or self.cursor.finished == told:
            return
        for _ in sink.finish(outcome):
            self._store_finishing(sink)
        self.cursor.finished = told
        self._store_finishing(sink)

    def _store_finishing(self, sink: Sink) -> None:
        """What the sink has done so far, unless points are held back: the mark is then an earlier place."""
        if sink.settled and self._points is not None and self._points.settled:
            self.cursor.mark = replace(self.cursor.mark, private=sink.state(), counts=replace(self._counts))
        self.succeeded_at = time.monotonic()
        self._save()

    def _go_back(self) -> float:
        """The tracker is back: what a stand-in took goes to it now."""
        log.info("%s answers again; what was kept aside meanwhile is forwarded now", self.name)
        self._let_go()
        if self.cursor.anchor is not None:
            self.cursor.mark, self.cursor.anchor = self.cursor.anchor, None
            self._save()
            return 0.0
        self._next_try = time.monotonic() + FIRST_DELAY
        return FIRST_DELAY

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
        if time.monotonic() - self._saved_at > (UNSAVED_SECONDS if self._unsaved else BEAT_SECONDS):
            self._save()
        pause, self._idle = self._idle, min(self._idle * 2, LONGEST_IDLE)
        return min(pause, max(self._until_flush(), 0.0)) if self._unflushed else pause

    def _due(self, moved: bool) -> bool:
        """Whether to flush now; in a hurry as soon as all is read."""
        halt = self._hurried and not moved
        return halt or self._unflushed >= FLUSH_BYTES or self._until_flush() <= 0

    def _until_flush(self) -> float:
        seconds = self._sink.flush_seconds if self._sink is not None else Sink.flush_seconds
        return self._flushed + seconds - time.monotonic()

    def _let_go(self) -> None:
        self._note_remark()
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
        self._note_remark()
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
        run_id, key = str(found["run_id"]), found.get("key")
        exp_root = str(found["exp_root"])
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{run_dir / 'run.json'} does not name a run: {error!r}") from None
    return Run(
        run_id, exp_root, run_dir, str(key or sha256(run_id.encode(errors="replace")).hexdigest()[:12])
    )


def _outcome(path: Path, unseen: bool = False) -> Outcome | None:
    """How the run ended, by run.json; None while it goes on. Where its end is `unseen`, it was killed."""
    found = files.read_json(path)
    try:
        attempts = [_gone(each, found) if unseen else each for each in found["attempts"]]
        newest: Mapping[str, Any] = attempts[-1]
        if newest["ended"] is None:
            return None
        statuses = {int(each["n"]): str(each["status"]) for each in attempts}
        roots = tuple(dict.fromkeys(str(each["log_root"]) for each in attempts))
        last = {str(each["log_root"]): each for each in attempts}
        exp_root = Path(str(found["exp_root"]))
        elsewhere = frozenset(root for root, each in last.items() if _is_elsewhere(each, exp_root))
        ended = float(newest["ended"])
        return Outcome(str(newest["status"]), int(newest["n"]), ended, roots, statuses, elsewhere)
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _is_elsewhere(attempt: Mapping[str, Any], exp_root: Path) -> bool:
    """Whether the rank that speaks for an attempt of run.json is another node's."""
    ranks = attempt.get("ranks") or {}
    here = {str(rank.get("host")) for rank in ranks.values()}
    return bool(here) and is_elsewhere(exp_root, int(attempt["n"]), int(attempt.get("world_size") or 1), here)


def _gone(attempt: Mapping[str, Any], facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """An attempt without an end as one that was killed when run.json was written last."""
    return (
        attempt
        if attempt["ended"] is not None
        else {**attempt, "ended": facts["updated"], "status": "killed"}
    )
