"""Files on their way to the tracker's artifacts: one at a time, beside the metrics, never before them.

Separate because a file can take minutes, and neither the metrics nor the sign of life may wait for it: a
thread puts it, and is looked after at each flush. What waits and what is done is part of the sink's state, by
size and time of change; a file that is put twice is the same file.

A file is left out only for its own fault: it is not there, is not to be read, is larger than the limits here,
or too large for something on the way (413). After anything else it is tried again, behind those that were not
tried yet, for as long as it takes; the run is told to have ended meanwhile, but is not done.
"""

from __future__ import annotations

import errno
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rankside_agent.sinks.artifact_places import Places, hashed
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.mlflow_client import may_read
from rankside_agent.sinks.mlflow_errors import Away, Misplaced, Refused, Unfit
from rankside_agent.sinks.mlflow_run import TrackerRun
from rankside_agent.sinks.mlflow_walk import MOST_COUNTED, Walk

log = logging.getLogger(__name__)

MOST_BYTES = 5 << 30  # of a file
MOST_WAITING = 20_000  # the state holds them all, and is written every few seconds
_MOST_DONE = 20_000  # remembered; beyond it a file may be put again after a crash
_MOST_TOLD = 100
_ENOUGH_WAITING = 200  # before a folder is looked through further
_AT_ONCE = 100  # that need nothing done, between two that do
_IN_A_ROW = 3  # failures, after which at the end the store counts as away
_FIRST_DELAY, _LONGEST_DELAY = 2.0, 60.0
_YIELD_SECONDS = 0.5
_LONGEST_PART = 200  # bytes, of a part of a path; file systems take 255
_ILLEGAL = re.compile(r"[^\w./ +,=@~!()\[\]{}-]")  # in the server's opinion or a URL's
_NO_NAMES = ("", ".", "..")
_VERDICTS = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}


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
        self._failed: dict[str, str] = dict(
            state.get("failed", {})
        )  # the same, to be tried again after those
        self._done: dict[str, list[int]] = dict(state.get("done", {}))  # destination: size, time of change
        self._places = Places(state.get("places", {}))
        self._left_out = int(state.get("left_out", 0))
        self._why = str(state.get("why", ""))  # the last of them
        self._trouble = str(state.get("trouble", ""))  # of the store
        self._folders: dict[str, str] = {}
        self._walk: Walk | None = None  # through the first of them
        self._job: _Job | None = None
        self._next, self._delay = float("-inf"), _FIRST_DELAY
        self._in_a_row = self._told = 0

    @property
    def remark(self) -> str:
        """What an operator should see: files that are left out, or wait for the store."""
        texts = []
        if self._left_out:
            texts.append(f"{self._left_out} artifacts left out: {self._why}")
        if self._failed and self._trouble:
            waiting = len(self._waiting) + len(self._failed)
            texts.append(f"{waiting} artifacts wait for their store: {self._trouble}")
        return "; ".join(texts)

    def offer(self, destination: str, path: Path) -> None:
        """Put a file there, later. Nothing happens where it has been put as it is."""
        destination = _legal(destination)
        if destination in self._failed:
            self._failed[destination] = str(path)
        elif destination not in self._waiting and len(self._waiting) >= MOST_WAITING:
            self._give_up(destination, f"{MOST_WAITING} files wait already")
        else:
            self._waiting[destination] = str(path)

    def artifact(self, path: Path, folder: str = "") -> None:
        """A file or a folder of the user's, under its own name; two paths never become one."""
        self.offer(self._places.name(path, f"{folder}{path.name or 'artifact'}"), path)

    def pump(self) -> None:
        """Look after the file that is on its way, and send the next one off. Does not wait."""
        if self._job is not None:
            if not self._job.over:
                return
            self._finished(self._job)
        self._look_through()
        if self._clock() < self._next:
            return
        if not self._waiting:
            self._waiting, self._failed = self._failed, {}
        self._start()

    def drain(self, everything: bool = False) -> Iterator[None]:
        """Until nothing waits. Yields now and then: the state may be long.

        `everything` is also what has failed before. Raises Away where not all of it could be put.
        """
        yielded, self._in_a_row = self._clock(), 0
        if everything:
            self._waiting.update(self._failed)
            self._failed = {}
        while self._waiting or self._folders or self._job is not None:
            self._step()
            if self._in_a_row >= _IN_A_ROW:
                break
            if self._clock() - yielded >= _YIELD_SECONDS:
                yielded = self._clock()
                yield
        if self._in_a_row >= _IN_A_ROW or (everything and self._failed):
            waiting = len(self._waiting) + len(self._failed) + len(self._folders)
            raise Away(f"{waiting} artifacts wait for their store: {self._trouble}")
        yield

    def state(self) -> dict[str, Any]:
        """What a new one must know to go on from here."""
        return {
            "waiting": {**self._folders, **self._waiting},
            "failed": self._failed,
            "done": self._done,
            "places": self._places.plain(),
            "left_out": self._left_out,
            "why": self._why,
            "trouble": self._trouble,
        }

    def _step(self) -> None:
        """As `pump`, without a pause after a failure."""
        if self._job is None:
            self._look_through()
            self._start()
        if self._job is not None:
            self._job.wait(_YIELD_SECONDS)
            if self._job.over:
                self._finished(self._job)

    def _start(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._waiting or self._job is not None:
                return
            destination, path = next(iter(self._waiting.items()))
            try:
                mark = _mark(Path(path), self._run.tracker.exp_root)
            except Unfit as unfit:
                self._give_up(destination, str(unfit))
            except OSError as error:
                self._fail(destination, str(error))
            else:
                self._send_off(destination, path, mark)

    def _send_off(self, destination: str, path: str, mark: list[int] | None) -> None:
        if mark is None:
            self._folders[destination] = self._waiting.pop(destination)
        elif self._done.get(destination) == mark:
            del self._waiting[destination]
        else:
            _ = self._run.id
            self._job = _Job(self._run, Path(path), destination, mark)

    def _look_through(self) -> None:
        """Some more of a folder, while not much waits."""
        if not self._folders or len(self._waiting) >= _ENOUGH_WAITING:
            return
        destination, folder = next(iter(self._folders.items()))
        walk = self._walk = self._walk or Walk(Path(folder))
        for path in walk.slice():
            self.offer(f"{destination}/{path.relative_to(folder)}", path)
        if walk.over:
            self._walk = None
            del self._folders[destination]
            if walk.beyond:
                number = f"{'at least ' if walk.beyond >= MOST_COUNTED else ''}{walk.beyond}"
                self._note(destination, f"{number} files of {folder} are beyond its limits", walk.beyond)

    def _finished(self, job: _Job) -> None:
        self._job = None
        error = job.error
        if error is None:
            self._waiting.pop(job.destination, None)
            self._remember(job)
            self._next, self._delay, self._in_a_row, self._trouble = float("-inf"), _FIRST_DELAY, 0, ""
        elif isinstance(error, Unfit) or (isinstance(error, Refused) and not isinstance(error, Misplaced)):
            self._remember(job)  # the same is not tried again
            self._give_up(job.destination, str(error))
        else:
            self._fail(job.destination, str(error))

    def _remember(self, job: _Job) -> None:
        self._done[job.destination] = job.mark
        while len(self._done) > _MOST_DONE:
            self._done.pop(next(iter(self._done)))

    def _fail(self, destination: str, why: str) -> None:
        """To be tried again, after all others."""
        if not self._trouble:
            log.warning("artifact %r waits, and will be tried again: %s", destination, why)
        self._trouble = f"{destination}: {why}"
        if (path := self._waiting.pop(destination, None)) is not None:
            self._failed[destination] = path
        self._in_a_row += 1
        self._next = self._clock() + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)

    def _give_up(self, destination: str, why: str) -> None:
        self._waiting.pop(destination, None)
        self._note(destination, why, 1)

    def _note(self, destination: str, why: str, number: int) -> None:
        self._counts.refused += number
        self._left_out += number
        self._why = f"{destination}: {why}"
        self._told += 1
        if self._told <= _MOST_TOLD:
            log.error("artifact %r is left out: %s", destination, why)


def _mark(path: Path, exp_root: str) -> list[int] | None:
    """Size and time of change; None for a folder, whose files count instead. Raises Unfit, OSError."""
    try:
        found = path.stat()
        if path.is_dir():
            return None
        readable = may_read(found, exp_root)
    except ValueError as error:  # a NUL in the path
        raise Unfit(str(error)) from None
    except OSError as error:
        if error.errno in _VERDICTS:
            raise Unfit(str(error)) from None
        raise
    if not path.is_file():
        raise Unfit(f"{path} is no file")
    if not readable:
        raise Unfit(f"{path} is not the training's")
    if found.st_size > MOST_BYTES:
        raise Unfit(f"{path} has {found.st_size} bytes, more than {MOST_BYTES}")
    return [found.st_size, found.st_mtime_ns]


def _legal(destination: str) -> str:
    """A path that the server takes; one that had to be changed gets a short hash."""
    parts = destination.split("/")
    odd = any(
        part in _NO_NAMES or len(part.encode("utf-8", "surrogatepass")) > _LONGEST_PART for part in parts
    )
    if not odd and not _ILLEGAL.search(destination):
        return destination
    plain = "/".join(_short(_ILLEGAL.sub("_", part)) for part in parts)
    return hashed(PurePosixPath(plain), destination)


def _short(part: str) -> str:
    return (
        "_"
        if part in _NO_NAMES
        else part.encode("utf-8", "replace")[:_LONGEST_PART].decode("utf-8", "ignore")
    )


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
