"""What the points of a rank say on their way past: its step, its counts, and values that are no numbers.

Separate from the journal because it looks into records, which the hot path otherwise never does.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rankside import record
from rankside.identity import Hello, is_last
from rankside.wire import Kind, unpack

_WARNED = 1000  # names remembered as warned about, for one rank


@dataclass
class Progress:
    """How far one channel is, for `status`. Times are monotonic."""

    step: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    announced_drops: int = 0
    dropped: int = 0
    used: int = 0
    seen: float = field(default_factory=time.monotonic)
    metrics_at: float = 0.0  # when the latest came
    beat_at: float = 0.0
    sent: int = 0  # the newest record the rank has, as its last sign of life said
    _warned: set[str] = field(default_factory=set)

    def beat(self, values: Any) -> None:
        """A sign of life: {"dropped", "used", "last"}. Raises ValueError on anything else."""
        if not isinstance(values, dict):
            raise ValueError("heartbeat: not a mapping")
        self.dropped = int(values.get("dropped", 0))
        self.used = int(values.get("used", 0))
        self.sent, self.beat_at = int(values.get("last", 0)), time.monotonic()

    def has_sent_all(self, now: float, last: int, fresh: float) -> bool:
        """Whether the rank said within `fresh` seconds that it has nothing behind `last`."""
        return now - self.beat_at < fresh and self.sent <= last

    def take(self, kind: int, body: bytes) -> tuple[Any, str]:
        """Count one record; returns its content, if it was looked at, and a warning for the rank's log."""
        self.counts[_NAMES[kind]] += 1
        look = _LOOKS.get(kind)
        if look is None:
            return None, ""
        try:
            fields = unpack(body)
            return fields, look(self, fields)
        except Exception as error:  # noqa: BLE001  a stranger's record: it may hold anything
            return None, f"a {_NAMES[kind]} record cannot be read: {error}"

    def _metrics(self, fields: Any) -> str:
        self._at(fields[1])
        self.metrics_at = time.monotonic()
        _, refused = record.numbers(fields[2])
        new = {name: why for name, why in refused.items() if name not in self._warned}
        if not new or len(self._warned) > _WARNED:
            return ""
        self._warned.update(new)
        told = ", ".join(f"{name!r} ({why})" for name, why in list(new.items())[:20])
        return f"metrics refused, the others of the step are kept: {told}; not said again"

    def _throughput(self, fields: Any) -> str:
        self._at(fields[1])
        return ""

    def _params(self, _fields: Any) -> str:
        return ""

    def _dropped(self, fields: Any) -> str:
        self.announced_drops += sum(int(count) for count in fields[1].values())
        return ""

    def _at(self, step: Any) -> None:
        if isinstance(step, int):
            self.step = step


_NAMES = {int(kind): kind.name.lower() for kind in Kind}
_LOOKS = {
    int(Kind.METRICS): Progress._metrics,
    int(Kind.THROUGHPUT): Progress._throughput,
    int(Kind.PARAMS): Progress._params,
    int(Kind.DROPPED): Progress._dropped,
}


@dataclass
class Channel:
    """One process's stream, as its agent knows it while the run lives."""

    index: int
    hello: Hello
    attempt: int
    last: int
    progress: Progress = field(default_factory=Progress)
    identity: bytes = b""  # of its present connection
    ended: bool = False
    ended_at: float = 0.0  # monotonic
    how: str = ""  # it ended: clean, vanished or lost
    status: str = ""  # what its CLOSE said
    watched: bool = False  # whether its spool, and so its lock, is seen from here

    @property
    def speaks(self) -> bool:
        """Whether trackers hear the run from this process, and it has the training line."""
        hello = self.hello
        return is_last(hello.rank, hello.world_size) and hello.role == "worker" and not hello.parent
