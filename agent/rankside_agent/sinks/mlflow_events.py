"""Events as MLflow users look for them: the newest of each name as a tag, all of them as an artifact.

Separate because MLflow has nothing for events: what it cannot add to, a file of lines, grows here beside the
journal and is uploaded whole. The file is cut back to the length that the state names, so that lines that
come again after a crash are in it once.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.mlflow_batches import Batches
from rankside_agent.sinks.points import Notice

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20  # of an attempt's lines
MOST_NAMES = 100  # with a tag of their own
UPLOAD_SECONDS = 60.0
_UPLOAD_BYTES = 8 << 20  # a longer file is uploaded at the end only


class Events:
    """The events of one run. `state` is what `state()` gave, or empty; `folder` keeps the lines."""

    def __init__(
        self,
        folder: Path,
        state: Mapping[str, Any],
        batches: Batches,
        counts: Counts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._batches = batches
        self._counts = counts
        self._clock = clock
        self._names: dict[str, None] = dict.fromkeys(state.get("names", ()))
        self._sizes = {int(attempt): int(size) for attempt, size in state.get("sizes", {}).items()}
        self._fresh: set[int] = set(state.get("fresh", ()))  # attempts with lines that are not uploaded
        self._due = clock() + UPLOAD_SECONDS
        self._lines: dict[int, list[bytes]] = {}
        for attempt, size in self._sizes.items():
            _cut(self._path(attempt), size)

    def take(self, notice: Notice) -> None:
        """One event."""
        attempt = notice.source.attempt
        fields = {"time": notice.time, "event": notice.name, **notice.fields}
        line = json.dumps(fields, default=str).encode() + b"\n"
        size = self._sizes.get(attempt, 0)
        if size + len(line) > MOST_BYTES:
            self._counts.refused += 1
            return
        if attempt not in self._sizes:
            _cut(self._path(attempt), 0)
        self._sizes[attempt] = size + len(line)
        self._lines.setdefault(attempt, []).append(line)
        self._fresh.add(attempt)
        self._counts.points += 1
        if notice.name in self._names or len(self._names) < MOST_NAMES:
            self._names[notice.name] = None
            text = json.dumps(notice.fields, ensure_ascii=False, default=str)
            self._batches.tag(self._batches.names.behind("rankside.event.", notice.name), text)

    def flush(self, all_of_it: bool = False) -> Iterator[tuple[str, Path]]:
        """Write the lines; gives the artifacts that are due."""
        lines, self._lines = self._lines, {}
        for attempt, found in lines.items():
            self._append(self._path(attempt), b"".join(found))
        if not all_of_it and self._clock() < self._due:
            return
        self._due = self._clock() + UPLOAD_SECONDS
        for attempt in sorted(self._fresh):
            if all_of_it or self._sizes[attempt] <= _UPLOAD_BYTES:
                self._fresh.discard(attempt)
                yield f"events/attempt-{attempt}.jsonl", self._path(attempt)

    def state(self) -> dict[str, Any]:
        """As of the last flush."""
        sizes = {str(attempt): size for attempt, size in self._sizes.items()}
        return {"names": list(self._names), "sizes": sizes, "fresh": sorted(self._fresh)}

    def _path(self, attempt: int) -> Path:
        return self._folder / f"events-attempt-{attempt}.jsonl"

    def _append(self, path: Path, data: bytes) -> None:
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError as error:  # a full disk must not keep the metrics back
            log.error("%s: events are missing in it: %s", path, error)  # noqa: TRY400  no fault of ours


def _cut(path: Path, size: int) -> None:
    if path.exists() and path.stat().st_size > size:
        os.truncate(path, size)
