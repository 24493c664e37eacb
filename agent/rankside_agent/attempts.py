"""Which attempt of a run a rank belongs to, agreed between nodes through the run's own folder.

`snapshot/attempt-{n}/` is made by renaming a prepared folder, which only one node can win; a rank takes its
place in it by creating `ranks/{label}.json`. Separate, and run in a thread of its own, because the run's
folder may lie on a mount that hangs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from rankside.identity import Hello, safe_name
from rankside_agent import files

_LATE = 10.0  # seconds in which ranks of a start that has no certain name may still join it
_TRIES = 20
_LOOK_BACK = 20  # attempts in which a rank that comes late may still find its own start


@dataclass(frozen=True)
class Claim:
    """The outcome: number of the attempt, whether another agent writes this run's files now, what failed.

    `key` is the experiment's, the same for all its attempts on every node.
    """

    attempt: int
    contended: bool = False
    problem: str = ""
    refused: str = ""
    key: str = field(default="", compare=False)


class Here(NamedTuple):
    """What this node knows of a run: whether it has living ranks, its highest attempt, that of this start.

    The last is in no folder where the folder could not be used when the start's first rank came.
    """

    alive: bool
    known: int
    same: int = 0


class Claims:
    """The thread of one run that asks its folder; answers go to `done` in this thread."""

    def __init__(self, exp_root: Path, allowed: tuple[str, ...], name: str) -> None:
        self._root = exp_root
        self._allowed = allowed
        self._lock_fd = -1
        self._busy = False
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"rankside-claims-{name}", daemon=True)
        self._thread.start()

    def ask(self, hello: Hello, here: Here, done: Callable[[Claim], None]) -> None:
        """Claim a place for `hello`."""
        self._asked.put(lambda: done(self._claim(hello, here)))

    def stop(self) -> None:
        """End the thread, and with it the hold on the folder. One that hangs there is not waited for."""
        self._asked.put(None)
        if not self._busy:
            self._thread.join(0.5)  # else the run, taken up again at once, finds its folder held

    def _run(self) -> None:
        while True:
            work = self._asked.get()
            if work is None:
                break
            self._busy = True
            work()
            self._busy = False
        if self._lock_fd >= 0:
            os.close(self._lock_fd)

    def _claim(self, hello: Hello, here: Here) -> Claim:
        try:
            for folder in (self._root, self._root / "logs", self._root / "snapshot"):
                outside = files.outside(folder, self._allowed)
                if outside:
                    return Claim(0, refused=f"exp_root: {outside}")
            number = claim(self._root, hello, here)
            return Claim(number, self._is_contended(hello.host), key=self._key())
        except OSError as error:
            return Claim(0, problem=f"{error.filename or self._root}: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001  a dead thread would leave every later claim to its deadline
            return Claim(0, problem=f"{self._root}: {type(error).__name__}: {error}")

    def _key(self) -> str:
        """The attempt is claimed by now: without a key the node finds one of its own."""
        try:
            return key_of(self._root)
        except OSError:
            return ""

    def _is_contended(self, host: str) -> bool:
        """The attempt is claimed by now: no room for the hold must not cost this start its number."""
        try:
            return self._lock_fd < 0 and self._held_by_another(host)
        except OSError:
            return False

    def _held_by_another(self, host: str) -> bool:
        """Whether another agent of this node holds the run's log folder; else we do, from here on."""
        folder = self._root / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / f".writer-{safe_name(host)}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:  # flock, and not lockf: a second run of this process, by way of a link, must find it held too
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            return True
        except OSError:  # a file system without locks
            pass
        self._lock_fd = fd
        return False


def claim(exp_root: Path, hello: Hello, here: Here) -> int:
    """The attempt of this rank, joined or begun. Raises OSError where the folder cannot be used."""
    snapshot = exp_root / "snapshot"
    snapshot.mkdir(parents=True, exist_ok=True)
    label = safe_name(f"{hello.role}-{hello.label}")
    for _ in range(_TRIES):
        numbers = sorted(_numbers(snapshot), reverse=True)
        mine = _of_this_start(snapshot, numbers, hello)
        if mine and _joined(snapshot / f"attempt-{mine}", hello, label, here.alive):
            return mine
        _begin(snapshot, _next(numbers, hello, here), hello)
    raise OSError(f"no attempt could be claimed in {_TRIES} tries")


def _next(numbers: list[int], hello: Hello, here: Here) -> int:
    """A start that this node has numbered alone keeps its number, unless the folder is ahead of it."""
    highest = max(numbers, default=0)
    if here.same > highest and (hello.shared_job or here.alive):
        return here.same
    return max(highest, here.known) + 1


def key_of(exp_root: Path) -> str:
    """What trackers know the experiment by: made once, and lost with its folder. Raises OSError."""
    path = exp_root / "snapshot" / "key"
    for _ in range(_TRIES):
        with suppress(FileExistsError), open(path, "x", encoding="ascii") as out:
            out.write(os.urandom(6).hex())
        found = path.read_bytes()
        if re.fullmatch(rb"[0-9a-f]{12}", found):
            return found.decode()
        time.sleep(0.01)  # another node is about to write it
    path.unlink(missing_ok=True)  # of one that died in between
    raise OSError(errno.EIO, "holds no key; it will be made anew", str(path))


def _numbers(snapshot: Path) -> list[int]:
    return [int(m[1]) for name in os.listdir(snapshot) if (m := re.fullmatch(r"attempt-(\d{1,9})", name))]


def _of_this_start(snapshot: Path, numbers: list[int], hello: Hello) -> int:
    """The newest attempt, if it is of the same start; 0 for none.

    Where a start's name is certain an older one, too: what a dead rank left may be found after others began.
    """
    for number in numbers[: _LOOK_BACK if hello.shared_job else 1]:
        facts = files.read_json(snapshot / f"attempt-{number}" / "attempt.json")
        if isinstance(facts, dict) and facts.get("job") == hello.job:
            return number
    return 0


def _joined(folder: Path, hello: Hello, label: str, alive: bool) -> bool:
    facts = files.read_json(folder / "attempt.json")
    if not isinstance(facts, dict) or facts.get("job") != hello.job:
        return False
    if hello.parent:
        return True  # a forked child, known before its parent is, which will take the place
    fresh = time.time() - float(facts.get("started", 0)) < _LATE
    if not (hello.shared_job or alive or fresh):
        return False
    place = folder / "ranks" / f"{label}.json"
    try:
        with open(place, "x", encoding="utf-8") as out:
            _write_holder(out, place, hello)
    except FileExistsError:
        holder = files.read_json(place)
        return isinstance(holder, dict) and holder.get("channel") == hello.channel
    return True


def _write_holder(out: TextIO, place: Path, hello: Hello) -> None:
    try:
        json.dump({"channel": hello.channel, "pid": hello.pid, "host": hello.host}, out)
        out.flush()
    except OSError:
        place.unlink(missing_ok=True)  # an empty one would keep this very rank out
        raise


def _begin(snapshot: Path, number: int, hello: Hello) -> None:
    """Make attempt `number`, unless another agent was faster."""
    fresh = snapshot / f".attempt-{number}.{safe_name(hello.channel)}"
    (fresh / "ranks").mkdir(parents=True, exist_ok=True)
    facts = {"job": hello.job, "started": time.time(), "host": hello.host, "world_size": hello.world_size}
    files.replace_json(fresh / "attempt.json", facts)
    try:
        os.rename(fresh, snapshot / f"attempt-{number}")
    except OSError:  # it exists, with content: somebody else's
        shutil.rmtree(fresh, ignore_errors=True)
        if not (snapshot / f"attempt-{number}").exists():
            raise
