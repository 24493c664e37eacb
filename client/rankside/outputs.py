"""All that reaches the descriptors 1 and 2, recorded: of C++ code, child processes, an interpreter that dies.

Separate from the capture of print because it hears bytes and not calls. The descriptors lead to files in
memory, which never block; a helper process (output_tail.py) passes them on to where they led before, and
records them. What handlers of logging print there is recorded as their records: it is marked on its way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from _thread import get_ident
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, TextIO

from rankside import c_stdio, client, endpoint, prints, stream_write, taken
from rankside.output_folder import ENDING, STREAMS, OutputFolder
from rankside.output_marks import MODULE, ORDER, TAKEN, Marks
from rankside.transport import warn

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
        return _Capture(monitor).end
    except Exception as error:  # noqa: BLE001  no room, no descriptors, no interpreter to start
        monitor._refuse("capture_logging(fds=True), print is captured instead", error)
        return prints.capture(monitor)


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
        self._marks = Marks(word)
        self._streams = _open_streams()
        if not self._streams:
            raise RuntimeError("neither descriptor 1 nor 2 is open")
        self._original: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._inodes: dict[int, tuple[int, int]] = {}
        self._rank = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = self._made(word)
        try:
            self._rank = self._folder.live()
            self._original = {stream: os.dup(stream + 1) for stream in self._streams}
            self._start_helper()
        except BaseException:
            self._drop()
            self._folder.remove()
            raise
        self._undo: list[Callable[[], None]] = []
        self._last = -1  # the stream written last by Python code here
        # of each stream: thread and place in the program of the line under way
        self._whose: list[tuple[int, CodeType, int] | None] = [None, None]
        self._over = threading.Event()
        self._lead_there()
        self._write_by_lines()
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
        for undo in self._undo:
            undo()
        if client.leaving:
            self._start_helper()  # where none reads
            self._await(self._sizes(), recorded=False)  # what a shell prints next comes later
            return
        sizes = self._give_back()
        _active = None
        self._await(sizes, recorded=True)
        self._drop()

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
                for stream in self._streams:
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

    def _lead_there(self) -> None:
        """From here on nothing may fail."""
        for text in self._streams.values():
            _quietly(text.flush)
        _quietly(c_stdio.flush)
        for stream, fd in self._files.items():
            found = os.fstat(fd)
            self._inodes[stream] = found.st_dev, found.st_ino
            os.dup2(fd, stream + 1)
            os.close(fd)  # descriptors 1 and 2 are the only ones, and hold the lock
        self._files = {}
        _quietly(c_stdio.by_lines)

    def _write_by_lines(self) -> None:
        for stream, text in self._streams.items():
            _quietly(partial(self._take_over, stream, text))

    def _take_over(self, stream: int, text: TextIO) -> None:
        self._undo.append(_by_lines(text))
        self._undo.append(stream_write.replaced(text, self._write(stream, text)))

    def _write(self, stream: int, text: TextIO) -> Callable[[stream_write.Write], stream_write.Write]:
        def made(original: stream_write.Write) -> stream_write.Write:
            def write(said: str) -> Any:
                if self._over.is_set():  # another's write stands over ours and keeps it
                    return original(said)
                try:
                    frame = sys._getframe(1)
                    who = (get_ident(), frame.f_code, frame.f_lasti)
                    if who != self._whose[stream]:  # else it goes on with the line that it has begun
                        if taken.is_taken(frame) and self._leads_there(stream):
                            self._whose[stream] = None
                            return self._write_taken(stream, text, said)
                        if self._last != stream and self._leads_there(stream):
                            self._put(stream, ORDER, b"")
                    self._whose[stream] = None if said.endswith("\n") else who
                except Exception as error:  # noqa: BLE001  a print never raises for our sake
                    self._monitor._refuse("capture_logging(fds=True)", error)
                return original(said)

            return write

        return made

    def _write_taken(self, stream: int, text: TextIO, said: str) -> int:
        data = said.encode(text.encoding, text.errors or "strict")
        text.flush()
        self._put(stream, TAKEN, data)
        return len(said)

    def _put(self, stream: int, kind: bytes, payload: bytes) -> None:
        """A mark: one write, so that nothing comes in between."""
        self._last = stream
        other = os.fstat(2 - stream).st_size if 1 - stream in self._streams else 0
        data = self._marks.made(kind, payload, other)
        while data:
            data = data[os.write(stream + 1, data) :]

    def _leads_there(self, stream: int) -> bool:
        """Whether the descriptor still leads to our file: a child that becomes a daemon turns it away."""
        found = os.fstat(stream + 1)
        return (found.st_dev, found.st_ino) == self._inodes[stream]

    def _module(self, body: bytes) -> None:
        first = min(self._streams)
        if os.getpid() == self.pid and self._leads_there(first):
            for text in self._streams.values():
                text.flush()
            self._put(first, MODULE, body)

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
                    warn("the helper for captured output cannot be kept alive: output is no longer captured")
                    self._over.set()
                    self._give_back()
                    return
                pause = min(pause * 2, _LONGEST)
                self._start_helper()
                process = self._process or process
            except Exception as error:  # noqa: BLE001  a dead thread would leave no helper
                self._monitor._refuse("capture_logging(fds=True)", error)
                pause = min(pause * 2, _LONGEST)

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
        for text in self._streams.values():
            _quietly(text.flush)
        _quietly(c_stdio.flush)
        return {s: os.fstat(s + 1).st_size for s in self._original if self._leads_there(s)}

    def _await(self, sizes: dict[int, int], recorded: bool) -> None:
        """Until so much is passed on, and `recorded`; no longer than a monitor's close may take."""
        deadline, page = time.monotonic() + self._monitor._options.flush_seconds, self._folder.page()
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


def _open_streams() -> dict[int, TextIO]:
    """The interpreter's own streams of the descriptors that are open. Where it found one closed at its start,
    that number may be another file's by now."""
    found = {}
    for stream, name in enumerate(STREAMS):
        text = getattr(sys, f"__{name}__", None)
        try:
            os.fstat(stream + 1)
        except OSError:
            continue
        if text is not None and not text.closed and text.fileno() == stream + 1:
            found[stream] = text
    return found


def _by_lines(text: Any) -> Callable[[], None]:
    before = text.line_buffering
    text.reconfigure(line_buffering=True)
    return lambda: text.reconfigure(line_buffering=before)


def _quietly(call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001  a stream that is closed, an object of fixed attributes
        warn(f"capture of output: {type(error).__name__}: {error}")
