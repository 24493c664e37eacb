"""Files on their way to the tracker's artifacts: one at a time, beside the metrics, never before them.

Separate because a file can take minutes, and neither the metrics nor the sign of life may wait for it: a
thread puts it, and is looked after at each flush. What waits and what is done is part of the sink's state, by
size and time of change; a file that is put twice is the same file.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.mlflow_client import Away, Refused, may_read
from rankside_agent.sinks.mlflow_run import TrackerRun

log = logging.getLogger(__name__)

MOST_BYTES = 5 << 30  # of a file
MOST_WAITING = 5000
_MOST_DONE = 20_000  # remembered; beyond it a file may be put again after a crash
_TRIES = 3  # of a file, while the tracker itself answers
_RETRY_SECONDS = 30.0
_YIELD_SECONDS = 0.5
_ILLEGAL = re.compile(r"[^\w./ +,=@~!()\[\]{}-]")  # in the server's opinion or a URL's


class Uploads:
    """Uploads of one run. `state` is what `state()` gave, or empty."""

    def __init__(
        self,
        run: TrackerRun,
        state: Mapping[str, Any],
        counts: Counts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._counts = counts
        self._clock = clock
        self._waiting: dict[str, str] = dict(state.get("waiting", {}))  # destination: path
        self._done: dict[str, list[int]] = dict(state.get("done", {}))  # destination: size, time of change
        self._places: dict[str, str] = dict(state.get("places", {}))  # destination: path it was given to
        self._tries: dict[str, int] = {}
        self._job: _Job | None = None
        self._next = float("-inf")

    def offer(self, destination: str, path: Path) -> None:
        """Put a file there, later. Nothing happens where it has been put as it is."""
        destination = _legal(destination)
        if destination not in self._waiting and len(self._waiting) >= MOST_WAITING:
            self._give_up(destination, f"{MOST_WAITING} files wait already")
        else:
            self._waiting[destination] = str(path)

    def artifact(self, path: Path, folder: str = "") -> None:
        """A file or a folder of the user's, under its own name; two paths never become one."""
        name = f"{folder}{path.name or 'artifact'}"
        if self._places.setdefault(name, str(path)) != str(path):
            digest = sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()[:6]
            plain = PurePosixPath(name)
            name = str(plain.with_name(f"{plain.stem}-{digest}{plain.suffix}"))
        while len(self._places) > MOST_WAITING:
            self._places.pop(next(iter(self._places)))
        self.offer(name, path)

    def pump(self) -> None:
        """Look after the file that is on its way, and send the next one off. Does not wait."""
        if self._job is not None:
            if not self._job.over:
                return
            self._finished(self._job)
        if self._waiting and self._clock() >= self._next:
            self._start()

    def drain(self) -> Iterator[None]:
        """Until nothing waits. Yields now and then: the state may be long. Raises Away."""
        self._next, yielded = float("-inf"), self._clock()
        while self._waiting or self._job is not None:
            self.pump()
            if self._job is not None:
                self._job.wait(_YIELD_SECONDS)
            elif self._clock() < self._next:
                raise Away("the artifact store takes no files now")
            if self._clock() - yielded >= _YIELD_SECONDS:
                yielded = self._clock()
                yield
        yield

    def state(self) -> dict[str, Any]:
        """What a new one must know to go on from here."""
        return {"waiting": self._waiting, "done": self._done, "places": self._places}

    def _start(self) -> None:
        destination, path = next(iter(self._waiting.items()))
        try:
            mark = self._mark(Path(path), destination)
        except OSError as error:
            self._give_up(destination, str(error))
            return
        if mark is None or self._done.get(destination) == mark:
            self._waiting.pop(destination, None)
        else:
            _ = self._run.id
            self._job = _Job(self._run, Path(path), destination, mark)

    def _mark(self, path: Path, destination: str) -> list[int] | None:
        """Size and time of change; None for a folder, whose files are offered instead. Raises OSError."""
        if path.is_dir():
            for each in files_below(path):
                self.offer(f"{destination}/{each.relative_to(path)}", each)
            return None
        found = path.stat()
        if not path.is_file():
            raise OSError(f"{path} is no file")
        if not may_read(found, self._run.tracker.exp_root):
            raise OSError(f"{path} is not the training's")
        if found.st_size > MOST_BYTES:
            raise OSError(f"{path} has {found.st_size} bytes, more than {MOST_BYTES}")
        return [found.st_size, found.st_mtime_ns]

    def _finished(self, job: _Job) -> None:
        self._job = None
        if job.error is None:
            self._waiting.pop(job.destination, None)
            self._done[job.destination] = job.mark
            while len(self._done) > _MOST_DONE:
                self._done.pop(next(iter(self._done)))
        elif isinstance(job.error, Away) and not self._answers():
            self._next = self._clock() + _RETRY_SECONDS
        else:
            tries = self._tries[job.destination] = self._tries.get(job.destination, 0) + 1
            if tries >= _TRIES or not isinstance(job.error, Away):
                self._give_up(job.destination, str(job.error))

    def _answers(self) -> bool:
        """Whether it is this file's own fault."""
        try:
            return not self._run.gone()
        except (Away, Refused):
            return False

    def _give_up(self, destination: str, why: str) -> None:
        self._waiting.pop(destination, None)
        self._counts.refused += 1
        log.error("artifact %r is left out: %s", destination, why)


def _legal(destination: str) -> str:
    """A path that the server takes; one that had to be changed gets a short hash."""
    if not _ILLEGAL.search(destination):
        return destination
    digest = sha256(destination.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    path = PurePosixPath(_ILLEGAL.sub("_", destination))
    return str(path.with_name(f"{path.stem}-{digest}{path.suffix}"))


class _Job:
    """One file on its way, in a thread that dies with the process."""

    def __init__(self, run: TrackerRun, path: Path, destination: str, mark: list[int]) -> None:
        self.path, self.destination, self.mark = path, destination, mark
        self.error: Exception | None = None
        self._run, self._uri = run, run.artifact_uri
        self._thread = threading.Thread(target=self._put, name=f"upload {destination}", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _put(self) -> None:
        try:
            self._run.tracker.upload(self._uri, self.path, self.destination)
        except Exception as error:  # noqa: BLE001  looked at by `pump`
            self.error = error


def files_below(folder: Path, skip: frozenset[str] = frozenset()) -> Iterator[Path]:
    """The plain files below a folder, sorted; no link is followed. `skip` names folders left out."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - skip)
        for name in sorted(names):
            path = Path(root) / name
            if path.is_file() and not path.is_symlink():
                yield path
