"""The folders and processes of a benchmark: short paths, a clean environment, all of it gone afterwards.

Separate from what is measured because this has to hold after errors and Ctrl-C too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from rankside.endpoint import listens

# Names that would lead our processes to somebody else's agent, make ranks of them, or slow their start.
_OF_RANKS = ("RANKSIDE_", "PRIMUS_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMI")
_FOREIGN = (*_OF_RANKS, "PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")
HERE = Path(__file__).resolve().parent
_START = 30.0  # seconds for an agent to listen; one on a quiet machine
_PATIENCE = 10.0  # seconds a process may take to end when asked


class Process(subprocess.Popen[str]):
    """A Python process of the benchmark; `log` holds its stderr."""

    log: Path


class Agent:
    """A real agent with an endpoint, a state folder and a spool folder of its own."""

    def __init__(self, place: Workplace, name: str) -> None:
        self.endpoint = f"ipc://{place.disk}/{name}.sock"
        self.state = place.disk / f"{name}-state"
        self.environment = {
            "RANKSIDE_ENDPOINT": self.endpoint,
            "RANKSIDE_STATE_DIR": str(self.state),
            "RANKSIDE_SPOOL_DIR": str(place.memory / f"{name}-spool"),  # memory, as the ranks' default is
        }
        self.process = place.start("-m", "rankside_agent", "agent", environment=self.environment)
        deadline = time.monotonic() + _START
        while not listens(self.endpoint):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"agent {name} does not listen: {self.process.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)


class Workplace:
    """A folder on disk, one in memory, and every process started; a context manager that leaves nothing."""

    def __init__(self) -> None:
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.disk = Path(tempfile.mkdtemp(prefix="rs-bench-", dir="/tmp"))  # sockets' names must be short
        self.memory = Path(tempfile.mkdtemp(prefix="rs-bench-", dir=shared))
        self._running: list[Process] = []
        self._started = 0

    def __enter__(self) -> Workplace:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave half of it
        try:
            self.end(*reversed(self._running))
        finally:
            for folder in (self.disk, self.memory):
                shutil.rmtree(folder, ignore_errors=True)
            signal.signal(signal.SIGINT, before)

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> Process:
        """`python` with these arguments; stdin and stdout are pipes, stderr goes to a file."""
        self._started += 1
        log = self.disk / f"{self._started}.log"
        with log.open("wb") as stderr:
            process = Process(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=self.disk,  # nothing lies here that `import` could take for a module
                env=self.environment(environment),
                start_new_session=True,  # Ctrl-C is for the benchmark, which ends the others in order
            )
        process.log = log
        self._running.append(process)
        return process

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """This process's own, without what belongs to a rank or names an agent."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        compiled = {"PYTHONPYCACHEPREFIX": str(self.disk / "pycache")}  # as installed, not compiled each time
        return {**kept, **compiled, "OMP_NUM_THREADS": "1", **(more or {})}

    def agent(self, name: str) -> Agent:
        """Start one and wait until it listens."""
        return Agent(self, name)

    def end(self, *processes: Process) -> None:
        """End these, each by its own id: stdin closed, then SIGTERM, then SIGKILL."""
        for process in processes:
            process.send_signal(signal.SIGCONT)
            with contextlib.suppress(OSError):
                _of(process.stdin).close()
            if not process.args[1].endswith(".py"):  # an agent does not look at its stdin
                process.terminate()
        for process in processes:
            for again in (process.terminate, process.kill):
                try:
                    process.wait(_PATIENCE)
                    break
                except subprocess.TimeoutExpired:
                    again()
            process.wait()
            _of(process.stdout).close()
            self._running.remove(process)


def say(process: Process, text: str) -> None:
    """A line to a process."""
    stream = _of(process.stdin)
    stream.write(f"{text}\n")
    stream.flush()


def hear(process: Process) -> str:
    """The next line from a process. Raises RuntimeError with the end of its log where it has ended."""
    line = _of(process.stdout).readline()
    if not line:
        raise RuntimeError(f"{process.args[1:3]} ended: {process.log.read_text()[-2000:]}")
    return line.strip()


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
