"""What is to be replayed: the run's folder, how much its journal holds, and who else has to do with it.

Separate from the command so that each reason against a replay is one line, with what is known instead.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rankside_agent import catalog
from rankside_agent.journal import Position, Reader, segments

_FLOCK = struct.Struct("hhlli")  # struct flock: type, whence, start, length, pid


class CannotReplay(Exception):
    """Why, in one line for the user."""


@dataclass(frozen=True)
class Subject:
    """A run on this disk. `agent` is the pid of the living agent that still has it, or empty."""

    run: catalog.Run
    agent: str = ""

    @property
    def folder(self) -> Path:
        """Of its state, absolute."""
        return self.run.folder

    @property
    def going_on(self) -> bool:
        """Whether a living agent serves it and its newest attempt has not ended."""
        return bool(self.agent) and self._newest_is_open

    @property
    def unseen(self) -> bool:
        """Whether its newest attempt has no end, and nobody is left to see it."""
        return not self.agent and self._newest_is_open

    @cached_property
    def length(self) -> Length:
        """How many records its journal holds."""
        return Length(self.folder / "journal" / "points")

    def check(self) -> None:
        """Raises CannotReplay."""
        journal = self.folder / "journal" / "points"
        if not segments(journal):
            raise CannotReplay(f"{journal} holds no journal: there is nothing to replay")
        if not self.length.records():
            raise CannotReplay(f"{journal} is empty: no rank of {self.run.exp_name} sent metrics or params")
        try:
            (self.folder / "sinks").mkdir(exist_ok=True)
            writable = os.access(self.folder / "sinks", os.W_OK)
        except OSError:
            writable = False
        if not writable:
            raise CannotReplay(
                f"{self.folder / 'sinks'} cannot be written to, and the replay keeps its place there"
            )
        self._check_ranks()

    def _check_ranks(self) -> None:
        """Only one node of a run speaks to its trackers; the others' journals would contradict it."""
        here = {label for attempt in self.run.facts["attempts"] for label in attempt.get("ranks", ())}
        world = self.run.facts.get("world_size")
        if not isinstance(world, int) or not here or not all(label.isdecimal() for label in here):
            return
        if str(world - 1) not in here and len(here) < world - 1:
            raise CannotReplay(
                f"{self.folder} holds {len(here)} of {world} ranks, and not rank {world - 1}, which speaks "
                "for the run: replay the state folder of that rank's node"
            )

    @property
    def _newest_is_open(self) -> bool:
        attempts = self.run.facts["attempts"]
        return bool(attempts) and attempts[-1].get("ended") is None


class Length:
    """The number of records in a journal; reads its newest segment, and on when asked again."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._reader: Reader | None = None

    def records(self) -> int:
        """As of now. Raises OSError."""
        if self._reader is None:
            self._reader = self._newest()
        while self._reader.read():
            pass
        return self._reader.state.records

    def _newest(self) -> Reader:
        """A header counts all before it; the newest one may be torn, where the machine died."""
        for number in reversed(segments(self._journal)):
            reader = Reader(self._journal, Position(number, 0))
            reader.read()
            if reader.state.records:
                return reader
            reader.close()
        return Reader(self._journal)


def find(state_dir: Path, selector: str) -> Subject:
    """By run id, experiment name, exp_root or the path of its state folder. Raises UnknownRun."""
    run = catalog.run_at(Path(selector).absolute()) or catalog.find_run(state_dir, selector)
    return Subject(run, _agent_of(run.folder))


def find_again(subject: Subject) -> Subject:
    """Where the agent has put it meanwhile. Raises UnknownRun."""
    home = subject.folder.parent.parent
    return find(home, subject.folder.name)


def _agent_of(folder: Path) -> str:
    """The pid of the living agent that has the run among its unfinished ones."""
    if folder.parent.name != "runs":
        return ""
    try:
        with open(folder.parent.parent / "lock", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # ours for no longer than this line
            except (BlockingIOError, PermissionError):
                return lock.read(100).strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        pass
    return ""


def holder(folder: Path, name: str) -> str:
    """The pid of the process that forwards the run to this tracker now; empty where nobody does."""
    try:
        with open(folder / "sinks" / f"{name}.lock", "rb") as lock:
            wish = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, wish))
    except OSError:
        return ""
    return "" if kind == fcntl.F_UNLCK else str(pid)
