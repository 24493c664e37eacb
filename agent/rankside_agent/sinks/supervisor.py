"""Keep one sink's process alive beside the agent: start, watch, start again, stop.

Separate from `run.py` because this half lives in the agent's only loop: it never waits, and it must
survive whatever foreign code does to the other half.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rankside.identity import LAUNCHERS
from rankside_agent.sinks import cursor_path, tracker_environ

FIRST_DELAY = 1.0
LONGEST_DELAY = 60.0
RAN_WELL = 60.0  # seconds; a process that lived this long starts again after FIRST_DELAY
SILENCE = 300.0  # seconds; a living process touches its cursor every half minute, trackers' calls end before
LOG_BYTES = 1 << 20
_LOG_KEPT = 64 << 10  # bytes of an overlong log that are kept beside it, as {name}.log.1
_LOG_CHECK = 60.0  # seconds between looks at a living process's log

# A tracker's library that believes to be a rank opens a second run, or waits for ranks that never come;
# WANDB_SERVICE would attach it to the trainer's own W&B process.
_STRIPPED = {"WANDB_SERVICE", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK"}
_STRIPPED |= {name for each in LAUNCHERS for name in (each.rank, each.world_size, each.local_rank)}
_STRIPPED_PREFIXES = ("TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_")


class Supervisor:
    """One sink's process for one run. Call `tick` about once a second; nothing here blocks or raises.

    `command` and `silence` are seams for tests: what is run, and after what silence it counts as stuck.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        *,
        environ: Mapping[str, str] = os.environ,
        jitter: Callable[[], float] = random.random,
        command: list[str] | None = None,
        silence: float = SILENCE,
    ) -> None:
        self.run_dir = run_dir
        self.name = name
        self.starts = 0
        self.last_exit: int | None = None
        self.last_error = ""
        self._environ = environ
        self._jitter = jitter
        module = "rankside_agent.sinks.run"
        self._command = command or [sys.executable, "-m", module, name, str(run_dir.absolute())]
        self._child: subprocess.Popen[bytes] | None = None
        self._born = 0.0
        self._delay = FIRST_DELAY
        self._next_start = float("inf")  # nothing runs before start()
        self._next_log_check = 0.0
        self._stopping = False
        self._drain = False
        self._drained = False
        self._silence = silence
        self._heard: tuple[int, float] = (0, 0.0)  # the cursor's time of change, and when it was seen

    def __repr__(self) -> str:
        return f"<Supervisor {self.name} pid={self.pid} starts={self.starts} over={self.over()}>"

    @property
    def pid(self) -> int | None:
        """The living process, if there is one."""
        return self._child.pid if self._child is not None else None

    def start(self) -> None:
        """Begin: a process from now on, until `stop`."""
        if not self._stopping:
            self._next_start = 0.0
            self.tick(time.monotonic())

    def tick(self, now: float) -> None:
        """Look after the process: reap it, start it again when it is time, end it when it is stuck."""
        self._reap(now)
        if self._child is None and now >= self._next_start:
            self._spawn(now)
        elif self._child is not None:
            self._watch(now)

    def stop(self, drain: bool = True) -> None:
        """No more points will come: the process writes what the journal holds and exits. May be repeated.

        With `drain`, one that fails or dies before it is through is started again, until it is through or
        `kill` is called: a tracker that is away must not cost the last points. Without, its exit is the end.
        """
        self._drain = drain
        if not self._stopping:
            self._stopping = True
            self._close_stdin()
        if not drain:
            self._next_start = float("inf")

    def renew(self) -> None:
        """Its environment has changed: let the process go, and start another; nothing happens without one."""
        self._close_stdin()

    def done(self) -> bool:
        """Whether all that the journal held at `stop` is delivered."""
        return self._drained

    def over(self) -> bool:
        """Whether there is no process and none will come: done, or given up after `stop` or `kill`."""
        return self._child is None and self._next_start == float("inf")

    def kill(self) -> None:
        """End the process and its children at once, for good; what it did not deliver stays waiting."""
        self._stopping, self._drain = True, False
        self._next_start = float("inf")
        self._close_stdin()
        self._sigkill()

    @property
    def _log(self) -> Path:
        return self.run_dir / "sinks" / f"{self.name}.log"

    def _reap(self, now: float) -> None:
        if self._child is None or self._child.poll() is None:
            return
        self.last_exit = self._child.returncode
        self._close_stdin()
        self._child = None
        if self._stopping and self.last_exit == 0:
            self._drained = True
        wanted = self._drain and not self._drained if self._stopping else True
        self._next_start = self._after_delay(now) if wanted else float("inf")

    def _watch(self, now: float) -> None:
        """Foreign code may hang for ever; the cursor goes on from where it was."""
        try:
            changed = cursor_path(self.run_dir, self.name).stat().st_mtime_ns
        except OSError:
            changed = 0
        if changed != self._heard[0]:
            self._heard = (changed, now)
        if now - self._heard[1] > self._silence:
            self.last_error = f"silent for {self._silence:.0f} s"
            self._sigkill()
        if now >= self._next_log_check:
            self._next_log_check = now + _LOG_CHECK
            _bound(self._log)

    def _sigkill(self) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)  # its own session: pid, group and session are one

    def _after_delay(self, now: float) -> float:
        """When to start again; the delay doubles with each short life."""
        if now - self._born >= RAN_WELL:
            self._delay = FIRST_DELAY
        delay = self._delay * (0.75 + 0.5 * self._jitter())  # so that a node's sinks do not come back in step
        self._delay = min(self._delay * 2, LONGEST_DELAY)
        return now + delay

    def _spawn(self, now: float) -> None:
        self._born = now
        self._heard = (0, now)
        self._next_log_check = now + _LOG_CHECK
        try:
            self._child = self._popen()
        except OSError as error:  # no processes, memory or files left: as if it had died at once
            self.last_error = f"{type(error).__name__}: {error}"
            self._next_start = self._after_delay(now)
            return
        self.starts += 1
        self._next_start = float("inf")
        if self._stopping:
            self._close_stdin()

    def _popen(self) -> subprocess.Popen[bytes]:
        log = self._open_log()
        try:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log or subprocess.DEVNULL,
                stderr=log or subprocess.DEVNULL,
                cwd=self.run_dir,
                env=environment({**self._environ, **tracker_environ.load(self.run_dir)}),
                start_new_session=True,  # a signal to the agent's group is not meant for it
            )
        finally:
            if log:
                log.close()

    def _open_log(self) -> BinaryIO | None:
        """The process's stdout and stderr; none on a full or broken disk, which must not stop the sink."""
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            _bound(self._log)
            return self._log.open("ab")
        except OSError:
            return None

    def _close_stdin(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()  # nothing is ever written, so there is nothing to flush


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a sink's process may know of ours: no rank, and no import from the training's folder."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _STRIPPED and not name.startswith(_STRIPPED_PREFIXES)
    }
    # The training's folder may hold a `wandb` or `tensorboard` of its own. An absolute entry is somebody's
    # wish (environment modules install that way); an empty or relative one is the folder the agent began in.
    entries = [entry for entry in kept.pop("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    if entries:
        kept["PYTHONPATH"] = os.pathsep.join(entries)
    kept["PYTHONUNBUFFERED"] = "1"  # its last words are in the log, however it dies
    return kept


def _bound(log: Path) -> None:
    """Cut an overlong log; works beneath a living writer, whose file is open for appending."""
    with suppress(OSError):
        size = log.stat().st_size
        if size <= LOG_BYTES:
            return
        with log.open("rb") as file:
            file.seek(size - _LOG_KEPT)
            log.with_suffix(".log.1").write_bytes(file.read())
        os.truncate(log, 0)
