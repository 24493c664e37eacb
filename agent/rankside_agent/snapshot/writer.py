"""Writes the snapshots of one run's attempts, on this node: the last rank's in full, of others the hardware.

Separate, and with a thread of its own, because the run's folder may lie on a mount that hangs. Nobody waits
for it: what an agent that left had not written, the next one does.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankside.identity import Hello, safe_name
from rankside_agent import files, origin
from rankside_agent.gauges import Seen
from rankside_agent.gpu.card import Reading
from rankside_agent.journal import ChannelState
from rankside_agent.progress import Channel
from rankside_agent.snapshot import hardware, parts

_AGAIN = 10.0  # seconds until what could not be written is tried again
_LOOK = 0.25  # seconds between looks for what `git` has told
_MOST_STARTS = 1000  # waiting ones; each new attempt is one, and strangers start attempts
Ask = Callable[[Callable[[Seen | None], None]], None]


@dataclass(eq=False)
class _Start:
    """One attempt on this node, until all of it is written. Times are monotonic."""

    attempt: int
    hello: Hello
    launch: Mapping[str, Any] | None  # None on the nodes that are not the last rank's
    git_until: float
    next_look: float = 0.0
    told: bool = False  # all but git is written


class Snapshots:
    """Those of one run. `begin`, `saw` and `close` are the agent's loop's; they neither wait nor raise."""

    def __init__(
        self,
        exp_root: Path,
        allowed: tuple[str, ...],
        folder: Path,
        report: Callable[[str], None],
        look: Callable[[str, Reading | None], dict[str, Any]] = hardware.read,
    ) -> None:
        """`folder`: the run's state; what `git` tells lies there."""
        self._root = exp_root / "snapshot"
        self._allowed = allowed
        self._folder = folder
        self._report = report
        self._look = look
        self._changed = threading.Condition()
        self._asked: list[_Start] = []
        self._known: set[tuple[int, bool]] = set()
        self._reading: Reading | None = None
        self._fresh = False  # there is a reading that no file has
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._starts: list[_Start] = []  # the thread's own, as the next two
        self._latest: _Start | None = None
        self._complained = False

    def begin(self, channel: Channel, journal: ChannelState | None) -> None:
        """Of a rank; the last one's `launch`, of what it told of its start, lies in the points' journal."""
        key = (channel.attempt, channel.speaks)
        if channel.hello.parent or key in self._known or len(self._asked) >= _MOST_STARTS:
            return
        self._known.add(key)
        told = journal.info.get("launch") if journal is not None and channel.speaks else None
        launch = (told if isinstance(told, dict) else {}) if channel.speaks else None
        until = time.monotonic() + origin.TIMEOUT + 5
        with self._changed:
            self._asked.append(_Start(channel.attempt, channel.hello, launch, until))
        self._go()

    def overhear(self, ask: Ask) -> Ask:
        """`ask`, whose answers are listened to: nobody is asked for a snapshot's sake."""

        def asked(then: Callable[[Seen | None], None]) -> None:
            def answered(seen: Seen | None) -> None:
                self.saw(seen)
                then(seen)

            ask(answered)

        return asked

    def saw(self, seen: Seen | None) -> None:
        """The node's GPUs, by the gauges."""
        if seen is not None and seen.reading.cards and self._reading is None:
            with self._changed:
                self._reading, self._fresh = seen.reading, True
            self._go()

    def close(self) -> None:
        """Write what there is and end the thread; it is not waited for."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _go(self) -> None:
        with self._changed:
            if self._thread is None and not self._stopping:
                name = f"rankside-snapshot-{self._folder.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no more threads; the next rank tries again
                    self._thread = None
            self._changed.notify_all()

    # -- in the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        stopping = False
        while not stopping:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._asked or self._fresh, self._pause())
                new, self._asked = self._asked, []
                fresh, self._fresh, stopping = self._fresh, False, self._stopping
            self._starts += new
            self._latest = self._starts[-1] if self._starts else self._latest
            if fresh and self._latest is not None and self._latest not in self._starts:
                self._starts.append(self._latest)
            now = time.monotonic()
            due = [start for start in self._starts if stopping or fresh or start.next_look <= now]
            done = [start for start in due if self._finished(start, now)]
            self._starts = [start for start in self._starts if start not in done]

    def _pause(self) -> float | None:
        looks = [start.next_look for start in self._starts]
        return max(0.0, min(looks) - time.monotonic()) if looks else None

    def _finished(self, start: _Start, now: float) -> bool:
        try:
            return self._write(start, now)
        except OSError as error:
            self._complain(f"the snapshot of attempt {start.attempt} waits: {error}")
        except Exception as error:  # noqa: BLE001  what a stranger told, and what a node's files hold
            self._complain(
                f"the snapshot of attempt {start.attempt} is left out: {type(error).__name__}: {error}"
            )
            return True
        start.next_look = now + _AGAIN
        return False

    def _complain(self, text: str) -> None:
        """Once: a full disk stays full for a while, and the log files tell of it too."""
        if not self._complained:
            self._complained = True
            self._report(text)

    def _write(self, start: _Start, now: float) -> bool:
        place = self._root / f"attempt-{start.attempt}"
        if not place.is_dir() or files.outside(place, self._allowed):  # the claim has told of it
            start.next_look = now + _AGAIN
            return False
        self._write_hardware(place, start)
        if start.launch is None:
            return True
        if not start.told:
            for name, data in parts.contents(start.hello, start.launch, start.attempt).items():
                _keep(place / name, data)
            start.told = True
        return self._write_git(place, start, now)

    def _write_hardware(self, place: Path, start: _Start) -> None:
        path = place / parts.HARDWARE.format(host=safe_name(start.hello.host))
        known = files.read_json(path)
        if isinstance(known, dict) and (known.get("source") or self._reading is None):
            return
        found = self._look(start.hello.host, self._reading)
        files.replace_json(path, {**found, "source": self._reading.source if self._reading else ""})

    def _write_git(self, place: Path, start: _Start, now: float) -> bool:
        """Where the run's state is put away meanwhile, it lies there."""
        name = f"attempt-{start.attempt}.json"
        for run in (self._folder, self._folder.parents[1] / "done" / self._folder.name):
            found = files.read_json(run / "origin" / name)
            if isinstance(found, dict):
                if found:
                    _keep(place / parts.GIT, json.dumps(found, indent=1).encode())
                return True
        start.next_look = now + _LOOK
        return now > start.git_until


def _keep(path: Path, data: bytes) -> None:
    if not path.exists():  # written by the agent that was here before
        files.replace(path, data)
