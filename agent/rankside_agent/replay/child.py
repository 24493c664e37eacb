"""One tracker's process: start it, see how far it is, end it.

Separate from the agent's supervisor, which starts its processes again for as long as the run lives; here a
user sits before it, who sees what happened and says whether to go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from rankside.launch import is_of_tracker
from rankside_agent import files
from rankside_agent.replay.subject import Subject
from rankside_agent.sinks import cursor_path, tracker_environ
from rankside_agent.sinks.supervisor import SILENCE, environment

_PATIENCE = 5.0  # seconds to end when asked: a call of the tracker's may be under way
_LAST_WORDS = 1  # lines of its log; the last one of a traceback tells most


class Child:
    """Forwards one run to one tracker. `silence` is a seam for tests."""

    def __init__(
        self, subject: Subject, name: str, *, again: bool, patience: float, silence: float = SILENCE
    ) -> None:
        """Start it. Raises OSError."""
        self.subject, self.name = subject, name
        self._began = time.monotonic()
        self._ended: float | None = None
        found = {} if again else self._read()
        self.before = found.get("anchor") or found  # what only a stand-in has is still to be delivered
        self.hung = False
        self._silence = silence
        self._heard: tuple[Any, float] = (None, self._began)
        self._log = subject.folder / "sinks" / f"{name}.log"
        options = [f"--patience={patience}", *(["--again"] if again else [])]
        self._process = self._start([*options, *(["--unseen"] if subject.unseen else [])])
        self._told: dict[str, Any] = found

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def told(self) -> dict[str, Any]:
        """What its cursor file says; what it said before, until the process itself has a word."""
        found = self._read()
        if found.get("pid") == self.pid:
            self._told = found
        return self._told

    @property
    def spoke(self) -> bool:
        """Whether the process itself has said where it is."""
        return bool(self.told.get("pid") == self.pid)

    def ended(self) -> int | None:
        """The exit status, or None while it runs; one that hangs is ended."""
        now = time.monotonic()
        said = self.told.get("updated")
        if said != self._heard[0]:
            self._heard = (said, now)
        if now - self._heard[1] > self._silence:
            self.hung = True
            self._kill()
        status = self._process.poll()
        if status is not None and self._ended is None:
            self._ended = now
        return status

    def seconds(self) -> float:
        """For how long it has run."""
        return (self._ended or time.monotonic()) - self._began

    def last_words(self) -> str:
        """The end of its log, for a message."""
        try:
            lines = self._log.read_text(errors="replace")[-4000:].strip().split("\n")
        except OSError:
            return ""
        return "; ".join(line.strip() for line in lines[-_LAST_WORDS:])

    def _read(self) -> dict[str, Any]:
        found = files.read_json(cursor_path(self.subject.folder, self.name))
        return found if isinstance(found, dict) else {}

    def _start(self, options: list[str]) -> subprocess.Popen[bytes]:
        folder = self.subject.folder
        module = "rankside_agent.sinks.replay"
        self._log.parent.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, self.name, str(folder), *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,  # as under the agent: the user's own may hold a `wandb` that is no package
                env=_environment(tracker_environ.load(folder), os.environ),
                start_new_session=True,  # Ctrl-C is for us; we end it in order
            )

    def ask_to_end(self) -> None:
        """It lets go of the tracker, and leaves its place in the journal behind."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def make_end(self, seconds: float) -> None:
        """Wait for that, then end it: what it delivered stays delivered, and its place is kept."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, seconds))
        if self._process.poll() is None:
            self._kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # and what the tracker's library started


def _environment(told: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    names = sorted(name for name in ours if is_of_tracker(name))
    return {**environment({**told, **ours}), tracker_environ.CALLERS: ",".join(names)}


def end(children: Iterable[Child]) -> None:
    """All of them, at once."""
    waiting = list(children)
    deadline = time.monotonic() + _PATIENCE
    for child in waiting:
        child.ask_to_end()
    for child in waiting:
        child.make_end(deadline - time.monotonic())
