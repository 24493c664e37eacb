"""How far a sink has come, and how it fares: one small file a sink and run.

Separate because three parties read it: the sink's next process, the agent (which may delete the journal
before it), and `rankside status`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.journal import Position
from rankside_agent.sinks.base import Counts


@dataclass(frozen=True)
class Mark:
    """What belongs together: a place in the journal, and everything that is true exactly there."""

    position: Position = field(default=Position(0, 0))
    read: int = 0  # records of the journal before it
    counts: Counts = field(default_factory=Counts)
    private: Mapping[str, Any] = field(default_factory=dict)  # the sink's
    speaker: Mapping[str, Any] = field(default_factory=dict)  # who speaks for the run

    def plain(self) -> dict[str, Any]:
        """As it lies in the file."""
        return {
            "read": self.read,
            **asdict(self.counts),
            "position": list(self.position),
            "private": dict(self.private),
            "speaker": dict(self.speaker),
        }


@dataclass
class Cursor:
    """The newest mark, and the process's state: starting, running, offline (a stand-in takes the points),
    waiting (for its next try) or done."""

    path: Path
    mark: Mark = field(default_factory=Mark)
    anchor: Mark | None = None  # where the stand-in began: from there on all is forwarded again
    finished: str = ""  # the outcome that the tracker was told
    state: str = "starting"
    failures: int = 0  # calls of the tracker that failed, in this run; a failure delays points and loses none
    last_error: str = ""
    remark: str = ""  # of the sink's, for the operator
    last_time: float | None = None  # wall time of the last delivery
    next_try: float | None = None  # wall time

    @classmethod
    def load(cls, path: Path) -> Cursor:
        """From `path`; at the journal's beginning where there is none, or none that makes sense."""
        found = files.read_json(path)
        cursor = cls(path)
        try:
            cursor.mark = _mark(found)
            cursor.anchor = _mark(found["anchor"]) if found.get("anchor") else None
            cursor.finished = str(found.get("finished", ""))
            cursor.failures = int(found.get("failures", 0))
            cursor.last_error = str(found.get("last_error", ""))
            cursor.last_time = found.get("last_time")
        except (AttributeError, KeyError, TypeError, ValueError):
            cursor.mark, cursor.anchor = Mark(), None
        return cursor

    def save(self) -> None:
        """Replace the file. Raises OSError."""
        value = {
            "state": self.state,
            "pid": os.getpid(),
            "updated": time.time(),
            "failures": self.failures,
            "last_error": self.last_error,
            "last_time": self.last_time,
            "remark": self.remark,
            "next_try": self.next_try,
            "finished": self.finished,
            "anchor": self.anchor.plain() if self.anchor else None,
            **self.mark.plain(),
        }
        files.replace_json(self.path, value)


def _mark(found: Any) -> Mark:
    segment, offset = found["position"]
    return Mark(
        Position(int(segment), int(offset)),
        int(found["read"]),
        Counts(**{each.name: int(found.get(each.name, 0)) for each in fields(Counts)}),
        dict(found["private"]),
        dict(found.get("speaker") or {}),
    )
