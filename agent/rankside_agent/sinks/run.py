"""The process of one sink: `python -m rankside_agent.sinks.run NAME RUN_DIR`, started by the supervisor.

Separate from the agent so that foreign code can hang, leak or crash without harm. Its life is its stdin: the
agent holds the other end, and once that is closed (the run is over, or the agent is gone) it delivers what
the journal holds and exits. It ignores signals, for a cluster's scancel sends them to every process at once,
and then the last points are still on their way.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import sys
import time
from pathlib import Path

from rankside_agent.sinks import SINKS
from rankside_agent.sinks.forwarder import Forwarder

DONE = 0
WRONG_USE = 2
UNDELIVERED = 69  # the tracker takes nothing; the cursor says where to go on
BUSY = 75  # another process of the same sink and run is still at work

LOCK_SECONDS = 30.0  # longer than a predecessor takes to notice the end of its stdin and drain
DRAIN_SECONDS = 10.0  # without success after the end of stdin; an orphan must not stay for ever

log = logging.getLogger("rankside_agent.sinks")


def main(arguments: list[str]) -> int:
    """Run until the end of stdin; returns the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="[%(asctime)s][%(levelname)s] %(message)s", level=logging.INFO)
    if len(arguments) != 2 or arguments[0] not in SINKS:
        log.error("usage: python -m rankside_agent.sinks.run {%s} RUN_DIR", ",".join(SINKS))
        return WRONG_USE
    name, run_dir = arguments[0], Path(arguments[1])
    try:
        if hold(run_dir, name, LOCK_SECONDS) is None:
            log.warning("another process of %s has had this run for %.0f s", name, LOCK_SECONDS)
            return BUSY
        return serve(Forwarder(run_dir, name), Stdin())
    except (OSError, ValueError) as error:
        log.error("%s: %s", run_dir, error)  # noqa: TRY400  the place says it; a traceback adds nothing
        return WRONG_USE


class Stdin:
    """The pipe from the agent: at its end there is no more to wait for."""

    def __init__(self) -> None:
        self._parent = os.getppid()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended; waits for that as long."""
        try:
            ended = bool(select.select([0], [], [], seconds)[0]) and not os.read(0, 4096)
        except (OSError, ValueError):
            return True
        return ended or os.getppid() != self._parent  # another child of the agent may hold the pipe open


def serve(forwarder: Forwarder, stdin: Stdin, patience: float = DRAIN_SECONDS) -> int:
    """Forward until the end of stdin and then all that is left; returns the exit status."""
    while not stdin.wait(forwarder.round()):
        pass
    ended = time.monotonic()
    forwarder.hurry()
    while time.monotonic() - max(ended, forwarder.succeeded_at) < patience:
        wait = forwarder.round()
        if forwarder.drained and not forwarder.provisional:
            forwarder.close("done")
            return DONE
        time.sleep(wait)
    forwarder.close("offline" if forwarder.provisional else "waiting")
    return UNDELIVERED


def hold(run_dir: Path, name: str, seconds: float) -> int | None:
    """Be the only process of this sink and run, from now on; None where another one is. Raises OSError."""
    lock = _lock(run_dir / "sinks" / f"{name}.lock", seconds)
    if lock is not None:
        for torn in (run_dir / "sinks").glob(f".{name}.json.*.new"):  # of a process killed in mid-write
            torn.unlink(missing_ok=True)
    return lock


def _lock(path: Path, seconds: float) -> int | None:
    """A lock that ends with the process; None where another holds it for longer than `seconds`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= deadline:
                os.close(fd)
                return None
            time.sleep(0.1)
        except OSError as error:  # a file system without locks: better one process without than none
            log.warning("%s: cannot be locked: %s", path, error)
            return fd
        else:
            return fd


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
