"""The thread that drives a run's log files; it may hang on a dead mount, and only this run notices.

Separate from the files so that they can be tested step by step, without a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rankside_agent.journal import Position
from rankside_agent.logfiles import LogFiles

_IDLE = 0.5  # seconds between looks without a wake
_TROUBLE = 1.0  # seconds after an error
_LONG = 5.0  # seconds in one step, of 1 MiB at most, after which its disk does not answer


class Writer:
    """One run's writer. The agent's loop only wakes it, asks how far it is, and stops it."""

    def __init__(self, make: Callable[[], LogFiles], report: Callable[[str], None], name: str) -> None:
        self._make = make
        self._report = report
        self._wake = threading.Event()
        self._stop_by: float | None = None
        self._seen_all = False  # since it was told to stop
        self._give_up = 0
        self.files: LogFiles | None = None
        self.failed = ""
        self._stepped = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"rankside-writer-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to write."""
        self._wake.set()

    def durable(self) -> Position:
        """What the journal may forget before."""
        return self.files.durable if self.files is not None else Position(0, 0)

    def caught_up(self, end: Position) -> bool:
        """Whether everything before `end` is in the files and in a checkpoint."""
        return self.files is not None and not self.files.waiting(end) and self.files.durable >= end

    def give_up_before(self, segment: int) -> None:
        """The journal is at its limit; what older segments hold is counted as lost."""
        self._give_up = segment
        self.wake()

    def stop(self, seconds: float) -> None:
        """Finish what there is within `seconds`; not waited for, see `alive`."""
        self._stop_by = time.monotonic() + seconds
        self.wake()

    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def hangs(self) -> float:
        """Seconds that it has been inside one step, where they are too many; else 0."""
        seconds = time.monotonic() - self._stepped
        return seconds if seconds > _LONG and self.alive() else 0.0

    def join(self, seconds: float) -> None:
        """Wait for the thread."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._finished():
            self._stepped = time.monotonic()
            try:
                if self.files is None:
                    self.files = self._make()
                self._work(self.files)
                self.failed = ""
            except Exception as error:  # noqa: BLE001  a dead writer would be a silent loss
                self.failed = f"{type(error).__name__}: {error}"
                self._report(f"log files: {self.failed}; trying again")
                self._wake.wait(_TROUBLE)
                self._wake.clear()
        if self.files is not None:
            try:
                self.files.close()
            except OSError as error:
                self._report(f"log files: the last checkpoint failed: {error}")

    def _work(self, files: LogFiles) -> None:
        if self._give_up:
            segment, self._give_up = self._give_up, 0
            files.give_up_before(segment)
        self._wake.clear()
        stopping = self._stop_by is not None
        moved = files.advance()
        self._seen_all = stopping and files.idle
        if not moved:
            if files.unsaved:
                files.save()
            elif self._stop_by is None:
                self._wake.wait(_IDLE if not files.behind else 0.1)

    def _finished(self) -> bool:
        if self._stop_by is None:
            return False
        return (self._seen_all and not self.failed) or time.monotonic() > self._stop_by
