"""All that reaches the descriptors 1 and 2, recorded: of C++ code, child processes, an interpreter that dies.

Separate from the capture of print because it hears bytes and not calls. The descriptors lead to files in
memory, which never block; a helper process (output_tail.py) passes them on to where they led before, and
records them. What handlers of logging print there is recorded as their records: it is marked on its way.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rankside import client, endpoint, prints
from rankside.output_folder import ENDING, OutputFolder
from rankside.output_marks import Marks
from rankside.output_streams import OutputStreams

if TYPE_CHECKING:
    from rankside.client import Monitor

_LOOK = 1.0  # seconds between two looks after the helper
_LONGEST = 60.0  # seconds between attempts to start one that does not stay
_GIVE_UP = 64 << 20  # bytes that wait for a helper which cannot be started
_BEGIN = (
    "import sys; sys.path.append(sys.argv.pop(1)); "  # last: it may hold names of the standard library
    "from rankside import output_tail; output_tail.main(*sys.argv[1:])"
)


def capture(monitor: Monitor) -> Callable[[], None]:
    """Record what the descriptors are given from here on; returns what ends it.

    Where that cannot be, what is printed is captured instead, and one warning says why.
    """
    try:
        if _active is not None and _active.pid == os.getpid():
            raise RuntimeError("another monitor of this process has the descriptors")
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY:  # the file grows with all that is ever printed
            raise RuntimeError(
                f"files may have {limit} bytes here (ulimit -f), and this one has all that is ever printed"
            )
        return _Capture(monitor).end
    except Exception as error:  # noqa: BLE001  no room, no descriptors, no interpreter to start
        monitor._refuse("capture_logging(fds=True), print is captured instead", error)
        return prints.capture(monitor)


def settle(seconds: float) -> None:
    """Wait until the whole lines that this process has written so far are recorded."""
    if _active is not None and _active.pid == os.getpid():
        _active.settle(seconds)


def output_tail_command() -> list[str]:
    """What starts a helper; a folder and the descriptor of its lock follow. It finds this very rankside."""
    return [sys.executable, "-c", _BEGIN, str(Path(client.__file__).parents[1])]


class _Capture:
    """One at a time in a process."""

    def __init__(self, monitor: Monitor) -> None:
        """Raises OSError or RuntimeError; nothing is then changed."""
        global _active  # noqa: PLW0603  there is one pair of descriptors
        self.pid = os.getpid()
        self._monitor = monitor
        word = os.urandom(16).hex()
        self._streams = OutputStreams(Marks(word), self._refuse, self._give_up)
        if not self._streams.texts:
            raise RuntimeError("neither descriptor 1 nor 2 is open")
        self._original: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._rank = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = self._made(word)
        try:
            self._rank = self._folder.live()
            self._original = {stream: os.dup(stream + 1) for stream in self._streams.texts}
            self._start_helper()
        except BaseException:
            self._drop()
            self._folder.remove()
            raise
        self._over = threading.Event()
        files, self._files = self._files, {}
        self._streams.lead_to(files)  # from here on nothing may fail
        monitor._on_module = self._module
        _active = self
        threading.Thread(target=self._watch, name="rankside-outputs", daemon=True).start()

    def end(self) -> None:
        """Give the descriptors back, and wait until all is recorded. At exit, they stay: more may come."""
        global _active  # noqa: PLW0603
        if os.getpid() != self.pid or self._over.is_set():
            return
        self._over.set()
        self._monitor._on_module = None
        self._streams.end()
        if client.leaving:
            self._start_helper()  # where none reads
            self._await(self._sizes(), recorded=False)  # what a shell prints next comes later
            return
        sizes = self._give_back()
        _active = None
        self._await(sizes, recorded=True)
        self._drop()

    def settle(self, seconds: float) -> None:
        """Wait until the whole lines written so far are recorded."""
        lines = {stream: self._folder.last_line(stream, size) for stream, size in self._sizes().items()}
        self._await(lines, recorded=True, seconds=seconds)

    # -- setting up ----------------------------------------------------------------------------------

    def _made(self, word: str) -> OutputFolder:
        monitor, problems = self._monitor, []
        group = endpoint.spool_group(monitor._options.endpoint)
        told = {
            "hello": replace(monitor._hello, launch={}, environ={}).packed(),
            "endpoint": monitor._options.endpoint,
            "spool_bytes": monitor._options.spool_limit,
            "flush": monitor._options.flush_seconds,
            "word": word,
        }
        for root in endpoint.spool_roots():
            folder = OutputFolder(root / group / f"{monitor._hello.channel}{ENDING}")
            try:
                endpoint.own_default(root)
                folder.make(told)
                for stream in self._streams.texts:
                    self._files[stream] = folder.open_to_write(stream)
            except OSError as error:
                problems.append(f"{root}: {error.strerror or error}")
                self._drop()
                folder.remove()
            else:
                return folder
        raise OSError("; ".join(problems))

    def _start_helper(self) -> None:
        """Not waited for: it is told by the lock that it inherits, from now until it ends."""
        alone = self._folder.read_alone()
        if alone is None:
            return
        try:
            self._process = self._helper(alone)
        finally:
            os.close(alone)

    def _helper(self, alone: int) -> subprocess.Popen[bytes]:
        out, err = (self._original.get(stream, subprocess.DEVNULL) for stream in (0, 1))
        folder = self._folder.path
        return subprocess.Popen(
            [*output_tail_command(), str(folder), str(alone)],
            pass_fds=(alone,),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,  # a training's folder may hold a queue.py that would be imported
            env={name: value for name, value in os.environ.items() if name != "RANKSIDE_DISABLE"},
            start_new_session=True,  # what is sent to the training's group does not mean it
        )

    def _module(self, body: bytes) -> None:
        if os.getpid() == self.pid:
            self._streams.module(body)

    def _refuse(self, error: Exception) -> None:
        self._monitor._refuse("capture_logging(fds=True)", error)

    # -- afterwards ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        """See to it that a helper lives, while this process does."""
        pause, process = _LOOK, self._process
        while process is not None:
            try:
                process.wait()  # the helper itself is not ours; this has only started it
                if self._over.wait(pause):
                    return
                if self._folder.is_read():
                    pause = _LOOK
                    continue
                if self._waiting() > _GIVE_UP:
                    self._give_up("the helper for captured output cannot be kept alive")
                    return
                pause = min(pause * 2, _LONGEST)
                self._start_helper()
                process = self._process or process
            except Exception as error:  # noqa: BLE001  a dead thread would leave no helper
                self._refuse(error)
                pause = min(pause * 2, _LONGEST)

    def _give_up(self, why: str) -> None:
        """There is no helper that keeps up, or no room."""
        self._over.set()
        self._give_back()
        self._streams.end()
        self._monitor._tell(f"{why}: output goes where it went before, and is no longer captured")

    def _waiting(self) -> int:
        return sum(os.fstat(stream + 1).st_blocks * 512 for stream in self._original)

    def _give_back(self) -> dict[int, int]:
        """The descriptors as they were; returns how much was written to each file."""
        sizes = self._sizes()
        for stream in sizes:
            os.dup2(self._original[stream], stream + 1)
        return sizes

    def _sizes(self) -> dict[int, int]:
        """Of the files whose descriptors nobody has turned elsewhere, with all that is written so far."""
        self._streams.flush()
        return {s: os.fstat(s + 1).st_size for s in self._original if self._streams.leads_there(s)}

    def _await(self, sizes: dict[int, int], recorded: bool, seconds: float | None = None) -> None:
        """Until so much is passed on, and `recorded`; no longer than a monitor's close may take."""
        seconds = self._monitor._options.flush_seconds if seconds is None else seconds
        deadline, page = time.monotonic() + seconds, self._folder.page()
        while time.monotonic() < deadline:
            done = page.recorded(lambda _spool, _seq: True) if recorded else (1 << 62, 1 << 62)
            if all(min(done[stream], page.passed(stream)) >= size for stream, size in sizes.items()):
                break
            time.sleep(0.005)
        page.close()

    def _drop(self) -> None:
        """Close what is ours alone."""
        for fd in (
            *self._files.values(),
            *self._original.values(),
            *([self._rank] if self._rank >= 0 else []),
        ):
            os.close(fd)
        self._files, self._original, self._rank = {}, {}, -1


_active: _Capture | None = None
