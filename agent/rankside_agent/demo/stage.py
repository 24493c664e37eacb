"""The demo's processes: each started with a log of its own, and all of them ended whatever happens.

Separate from the command, which tells the story: this file only knows how to start, await and end.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import psutil

# Names that would point our own agent, our ranks or our trackers at somebody else's.
_FOREIGN = (
    *("RANKSIDE_", "PRIMUS_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_"),
    *("WANDB_", "MLFLOW_", "DATABRICKS_"),
)
_LASTING = ("agent", "tail")  # what nothing but we may end
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST_SOCKET = 100  # bytes; the system's limit is 107


class StageError(RuntimeError):
    """A process that did not do what it is there for; says which, and shows the end of its log."""


class Stage:
    """Starts processes and ends them, last first. A context manager."""

    def __init__(self, folder: Path, patience: float = 15.0) -> None:
        """`patience`: seconds a process may take to end when asked; the agent writes what it still holds."""
        self.folder = folder
        self._patience = patience
        self.short = _short_folder()
        self.endpoint = f"ipc://{self.short}/agent.sock"
        self.state = self.short / "state"
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C would leave half of them running; what is done here has its deadlines.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
        while self._running:
            self.end(self._running[-1][0])
        shutil.rmtree(self.short, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)

    def start(self, name: str, *arguments: str, shown: bool = False) -> None:
        """`python -m` with these arguments; what it prints goes to `{name}.log`, or to the terminal."""
        log = None if shown else (self.folder / f"{name}.log").open("wb")
        with _signals_held_back():  # one that came in between would leave it running
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if log else None,
                cwd=self.folder,  # `-m` looks for modules where it starts; nothing of that kind is here
                env=self._environment(os.environ),
                start_new_session=True,  # Ctrl-C is for us alone: we end the others in order
            )
            self._running.append((name, process))
        if log is not None:
            log.close()

    def _environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in ours.items() if not name.startswith(_FOREIGN)}
        return {
            **kept,
            "RANKSIDE_ENDPOINT": self.endpoint,
            "RANKSIDE_STATE_DIR": str(self.state),
            "RANKSIDE_SPOOL_DIR": str(self.short / "spool"),
            "WANDB_MODE": "offline",  # even where the user has logged in
            "TMPDIR": str(self.short),  # torchrun leaves folders behind
            "OMP_NUM_THREADS": "1",  # torchrun would set it, with ten lines of warning
        }

    def ended(self, name: str) -> int | None:
        """The exit status of a process, or None while it runs."""
        return dict(self._running)[name].poll()

    def wait(self, what: str, until: Callable[[], bool], seconds: float) -> None:
        """Until it holds. Raises StageError when no log has grown for `seconds`, or agent or tail ended."""
        grown, deadline = -1, 0.0
        while not until():
            for name, process in self._running:
                if name in _LASTING and process.poll() is not None:
                    raise StageError(f"{name} ended with status {process.poll()}{self.log_end(name)}")
            size = sum(path.stat().st_size for path in self.folder.glob("*.log"))
            if size != grown:
                grown, deadline = size, time.monotonic() + seconds
            if time.monotonic() > deadline:
                raise StageError(f"{what}: nothing has moved for {seconds:.0f} s{self._agent_state()}")
            time.sleep(0.1)

    def must_have_succeeded(self, name: str) -> None:
        """Raises StageError unless the process ended well."""
        if self.ended(name) != 0:
            raise StageError(f"{name} ended with status {self.ended(name)}{self.log_end(name)}")

    def log_end(self, name: str, lines: int = 60) -> str:
        """The last lines of a process's log, for a message: torchrun's own words after a failure are long."""
        path = self.folder / f"{name}.log"
        if not path.exists():
            return ""
        text = path.read_bytes()[-16_000:].decode(errors="replace").rstrip().split("\n")[-lines:]
        return "\n".join([f"; the end of {path}:", *(f"  {line}" for line in text)])

    def _agent_state(self) -> str:
        """What it answers, and the end of its log."""
        command = [sys.executable, "-m", "rankside_agent", "status", f"--endpoint={self.endpoint}"]
        asked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        return f"{self.log_end('agent')}\n{asked.stdout}{asked.stderr}"

    def end(self, name: str) -> None:
        """Ask a process to end, then make it, and whatever it started."""
        process = dict(self._running)[name]
        family = _family(process)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self._patience)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait(self._patience)
        self._running.remove((name, process))


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Those that come meanwhile are heard at its end. No mask: a process that is started would inherit it."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The process and all below it, each known by its start time too, so that none is taken for another."""
    try:
        head = psutil.Process(process.pid)
        return [*head.children(recursive=True), head]
    except psutil.NoSuchProcess:
        return []


def _short_folder() -> Path:
    """A folder for a socket: the system's temporary one, unless its name is too long for that."""
    longest = _LONGEST_SOCKET - len("/rankside-demo-xxxxxxxx/agent.sock")
    base = tempfile.gettempdir()
    return Path(
        tempfile.mkdtemp(prefix="rankside-demo-", dir=base if len(os.fsencode(base)) <= longest else "/tmp")
    )
