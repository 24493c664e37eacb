"""What is done to a node in a chaos run, by name. Each deed is done now, and may give its undoing and when.

Separate from the plan, which only names deeds, so that a plan can be made and printed without a node. A deed
whose object is gone (a rank that has ended) does nothing.
"""

from __future__ import annotations

import glob
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from tests.chaos import shifted
from tests.chaos.plan import RANKS
from tests.chaos.stage import Stage

Undo = tuple[float, Callable[[], None]] | None  # in so many seconds


def _agent_kill(stage: Stage, seconds: float) -> Undo:
    if stage.agent is None:
        return None
    stage.expected = True
    stage.agent.kill()
    stage.agent.wait(10)
    stage.agent = None
    return seconds, stage.start_agent


# What appears on a disk when the agent does it
TRACES = {
    "rotated": ("exp", "logs*/**/*.20*.log"),
    "compressing": ("exp", "logs*/**/.*.gz.new"),
    "compressed": ("exp", "logs*/**/*.gz"),
    "written": ("exp", "logs*/**/debug.log"),
    "checkpoint": ("state", "runs/*/cursors/logfiles.json*"),
    "segment": ("state", "runs/*/journal/*/*"),
    "attempt": ("exp", "snapshot/*"),
    "retired": ("state", "done/*"),
}
_AWAIT = 1.5  # seconds; what does not come in that time is not waited for


def _agent_kill_at(stage: Stage, event: str, after: float) -> Undo:
    """Right after, or in the middle of, something that it does on a disk."""
    disk, pattern = TRACES[event]
    root = stage.exp if disk == "exp" else stage.state
    before = _seen(root, pattern)
    deadline = time.monotonic() + _AWAIT
    while time.monotonic() < deadline and _seen(root, pattern) <= before:
        time.sleep(0)
    time.sleep(after)
    return _agent_kill(stage, 0.0)


def _seen(root: Path, pattern: str) -> set[tuple[str, int, int]]:
    """Names, inodes and sizes: what is replaced or grows is new, too."""
    found = set()
    for path in glob.iglob(str(root / pattern), recursive=True):
        with suppress(OSError):
            there = os.stat(path)
            found.add((path, there.st_ino, there.st_size))
    return found


def _agent_term(stage: Stage, seconds: float) -> Undo:
    """It leaves in its own time; the next one comes once it has."""
    if stage.agent is None:
        return None
    stage.expected = True
    stage.agent.send_signal(signal.SIGCONT)
    stage.agent.terminate()
    return None if seconds < 0 else (seconds, lambda: None)


def _agent_stop(stage: Stage, seconds: float) -> Undo:
    agent = stage.agent
    if agent is None:
        return None
    agent.send_signal(signal.SIGSTOP)
    return seconds, lambda: agent.send_signal(signal.SIGCONT)


def _rank_kill(stage: Stage, rank: int) -> Undo:
    process = stage.rank(rank)
    if process is not None and process.poll() is None:
        stage.killed.add(process.pid)
        process.kill()
    return None


def _rank_stop(stage: Stage, rank: int, seconds: float) -> Undo:
    process = stage.rank(rank)
    if process is None or process.poll() is not None:
        return None
    process.send_signal(signal.SIGSTOP)
    return seconds, lambda: process.send_signal(signal.SIGCONT)


def _both_kill(stage: Stage, rank: int, seconds: float) -> Undo:
    _rank_kill(stage, rank)
    return _agent_kill(stage, seconds)


def _job_kill(stage: Stage) -> Undo:
    for number in range(RANKS):
        _rank_kill(stage, number)
    return None


def _a_sink(stage: Stage, which: float) -> psutil.Process | None:
    sinks = stage.sinks()
    return sinks[int(which * len(sinks))] if sinks else None


def _sink_kill(stage: Stage, which: float) -> Undo:
    sink = _a_sink(stage, which)
    if sink is not None:
        with suppress(psutil.Error):
            sink.kill()
    return None


def _sink_stop(stage: Stage, which: float, seconds: float) -> Undo:
    sink = _a_sink(stage, which)
    if sink is None:
        return None
    with suppress(psutil.Error):
        sink.suspend()

    def go_on() -> None:
        with suppress(psutil.Error):
            sink.resume()

    return seconds, go_on


def _disk_full(stage: Stage, disk: str, left: int, seconds: float) -> Undo:
    found = stage.disks[disk]
    return (seconds, found.free) if found.fill(left) else None


def _size_limit(stage: Stage, more: int, seconds: float) -> Undo:
    """No file of agent and sinks grows beyond a size: writes stop in the middle, as on a full disk."""
    files = sorted(path for path in stage.exp.glob("logs*/**/*.log") if path.is_file())
    if stage.agent is None or not files:
        return None
    stage.limit_files(random.Random(more).choice(files).stat().st_size + more)
    return seconds, lambda: stage.limit_files(resource.RLIM_INFINITY)


# -- files -------------------------------------------------------------------------------------------


def _found(stage: Stage, rank: int, name: str) -> Path | None:
    """The level file of a rank, or the node's log, that was written last."""
    pattern = "node-*.log" if name == "node" else f"rank-{rank}/{name}.log"
    paths = [path for path in stage.exp.glob(f"logs/**/{pattern}") if path.is_file()]
    return max(paths, key=lambda path: path.stat().st_mtime, default=None)


def _place(stage: Stage, path: Path) -> Path:
    """Where it is kept for the checker: numbered in time, and its own name behind."""
    number = len(os.listdir(stage.kept))
    return stage.kept / f"{number:03d}--{str(path.relative_to(stage.exp)).replace('/', '%')}"


def _copied(stage: Stage, path: Path) -> bool:
    """Whether there was room for the copy; without one nothing is done to the file."""
    place = _place(stage, path)
    try:
        shutil.copyfile(path, place)
    except OSError:
        place.unlink(missing_ok=True)
        return False
    return True


def _file_rename(stage: Stage, rank: int, name: str) -> Undo:
    path = _found(stage, rank, name)
    if path is not None:
        path.rename(_place(stage, path))
    return None


def _file_replace(stage: Stage, rank: int, name: str) -> Undo:
    path = _found(stage, rank, name)
    if path is not None:
        path.rename(_place(stage, path))
        strange = path.with_name("strange")
        with suppress(OSError):  # on a full disk, or the agent was faster
            strange.write_text("a line of somebody else's\n")
            os.link(strange, path)
        strange.unlink(missing_ok=True)
    return None


def _file_delete(stage: Stage, rank: int, name: str) -> Undo:
    """In earnest: its inode is free, and the next file may get it."""

    def work() -> None:
        path = _found(stage, rank, name)
        if path is not None and _copied(stage, path):
            path.unlink()

    stage.frozen(work)
    return None


def _file_truncate(stage: Stage, rank: int, name: str) -> Undo:
    """logrotate's copytruncate."""

    def work() -> None:
        path = _found(stage, rank, name)
        if path is not None and _copied(stage, path):
            os.truncate(path, 0)

    stage.frozen(work)
    return None


# -- the clock, and trackers -------------------------------------------------------------------------


def _clock_jump(stage: Stage, seconds: float) -> Undo:
    shifted.jump(stage.clock, seconds)
    return None


def _tracker_down(stage: Stage, seconds: float) -> Undo:
    if stage.proxy._http is None:
        return None
    stage.proxy.stop()
    return seconds, lambda: None if stage.proxy._http else stage.proxy.start()


def _tracker_trouble(stage: Stage, how: int | str, seconds: float) -> Undo:
    stage.proxy.trouble = how

    def over() -> None:
        stage.proxy.trouble = 0

    return seconds, over


DEEDS: dict[str, Callable[..., Undo]] = {
    "agent_kill": _agent_kill,
    "agent_kill_at": _agent_kill_at,
    "agent_term": _agent_term,
    "agent_stop": _agent_stop,
    "rank_kill": _rank_kill,
    "rank_stop": _rank_stop,
    "both_kill": _both_kill,
    "job_kill": _job_kill,
    "sink_kill": _sink_kill,
    "sink_stop": _sink_stop,
    "disk_full": _disk_full,
    "size_limit": _size_limit,
    "file_rename": _file_rename,
    "file_replace": _file_replace,
    "file_delete": _file_delete,
    "file_truncate": _file_truncate,
    "clock_jump": _clock_jump,
    "tracker_down": _tracker_down,
    "tracker_trouble": _tracker_trouble,
}


def do(stage: Stage, what: str, how: dict[str, Any]) -> Undo:
    """One deed."""
    return DEEDS[what](stage, **how)
