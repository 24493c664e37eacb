"""The event files of one run in one folder: each event once, whatever died in between.

Separate from what the events mean. After a restart the same events come again from the journal, byte for
byte, from the last checkpoint on. Those that the files already hold are recognised and left out, so that
nothing is ever cut from, or doubled for, a reader that follows the files. What is new goes to a new file:
TensorBoard never goes back to a file it has left, and half a record at the end of one does no harm there.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Generator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from rankside.identity import host, safe_name
from rankside_agent.sinks import event_protos
from rankside_agent.sinks.event_file import EventFile, records

log = logging.getLogger(__name__)

_STAMP = re.compile(r"events\.out\.tfevents\.(\d{10})\.")


class _Left(NamedTuple):
    """An event that a file already holds; `end` is the file's size with it."""

    name: str
    end: int
    data: bytes


class EventFolder:
    """Puts events into `folder`. `state` is what `state()` gave at the checkpoint, or empty."""

    def __init__(self, folder: Path, run_id: str, state: Mapping[str, Any]) -> None:
        self.folder = folder
        self.queue = 1000  # events that may wait for one write
        self.name_parts = ""  # of the files begun from now on: who writes
        token = sha256(f"{host()}\0{run_id}".encode(errors="replace")).hexdigest()[:10]
        self._ending = f".rankside-{token}"  # another node's agent may write beside us
        self._file: EventFile | None = None
        self._begun = 0
        self._at = (str(state.get("file", "")), int(state.get("size", 0)))
        self._left = self._leftover(*self._at)
        self._next = next(self._left, None)

    def begin_file(self) -> None:
        """The next event that is not there yet goes to a new file."""
        if self._file is not None:
            self._file.flush()
            self._at = (self._file.path.name, self._file.size)
            self._file.close()
            self._file = None

    def put(self, event: bytes) -> None:
        """Append an event, unless it is the next of those that are there. Raises OSError."""
        if self._next is not None:
            if self._next.data == event:
                self._at = (self._next.name, self._next.end)
                self._next = next(self._left, None)
                return
            # Another version wrote them, or another agent's run, or the journal lost its end with the power.
            log.info("%s: keeping events that are not the journal's", self._next.name)
            self._next = None
        if self._file is None:
            self._file = self._new_file()
        self._file.add(event, self.queue)

    def flush(self) -> None:
        """Bring all to the disk. Raises OSError."""
        if self._file is not None:
            self._file.flush()
            self._at = (self._file.path.name, self._file.size)

    def state(self) -> dict[str, Any]:
        """Where the files end, as of the last flush."""
        return {"file": self._at[0], "size": self._at[1]}

    def close(self) -> None:
        """Let go of the files."""
        self._left.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _leftover(self, name: str, size: int) -> Generator[_Left, None, None]:
        """The events behind the checkpoint: the rest of its file, then the files begun after it."""
        mine = sorted(each for each in self._names() if each.endswith(self._ending) and each >= name)
        for each in mine:
            path = self.folder / each
            start = size if each == name else 0
            end, skip = start, 0 if each == name else event_protos.HEADER_RECORDS
            for end, data in records(path, start):
                if skip:
                    skip -= 1
                else:
                    yield _Left(each, end, data)
            if path.stat().st_size > end:
                os.truncate(path, end)  # half a record, for readers that are stricter than TensorBoard

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self.folder) if "tfevents" in name]
        except FileNotFoundError:
            return []

    def _new_file(self) -> EventFile:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Readers go through files by name and never back, so a name must sort behind all that are there,
        # also after the clock was set back or when two begin within a second.
        stamps = [int(found[1]) for found in map(_STAMP.match, self._names()) if found]
        stamp = max(int(time.time()), max(stamps, default=0) + 1)
        self._begun += 1
        who = f"{safe_name(host())[:64]}.{os.getpid()}.{self._begun}{self.name_parts}"
        path = self.folder / f"events.out.tfevents.{stamp:010d}.{who}{self._ending}"
        return EventFile(path, event_protos.header(time.time()))
