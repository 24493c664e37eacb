"""The agent's end of the pipes to the process that asks drivers: start, send, receive in time, kill.

Separate from the poller, which decides when: whatever the other end does - nothing, garbage, a flood, its own
death - comes out here as a reply, as None, or as Broken.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

LONGEST_REPLY = 1 << 20  # bytes; 64 partitions take some 30,000
_LAST_WORDS = 2000  # bytes of its stderr that are kept
_CHUNK = 1 << 16
_SLICE = 0.2  # seconds between looks whether it lives, and whether the agent ends
_REAP = 0.2  # seconds that a killed process gets; one that sits in the kernel takes none and stays


class Broken(Exception):
    """The process is dead or may as well be; the text is for people."""


class Process:
    """One started process. Used by one thread; only `kill` may come from others. Raises OSError."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.born = time.monotonic()
        self.source = ""  # the one that it said to touch last
        self.opening: float | None = self.born  # since when it starts, or starts a source
        self._lock = threading.Lock()
        self._rest = b""
        self._words = b""
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",  # `python -m` imports from where it is started, and a mount must not be held
            env=dict(environ),
            start_new_session=True,  # its helpers are killed with it, and a signal to our group is not for it
        )
        self._poll = select.poll()  # not select(): an agent of a thousand files has larger numbers
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        for stream in (self._stdout, self._stderr):
            self._poll.register(stream, select.POLLIN)

    def __repr__(self) -> str:
        return f"<Process {self.pid} source={self.source!r} status={self._popen.returncode}>"

    @property
    def pid(self) -> int:
        """Of the process, its group and its session."""
        return self._popen.pid

    @property
    def status(self) -> int | None:
        """Its exit status, once it is known."""
        return self._popen.returncode

    @property
    def ended(self) -> bool:
        """Whether it has gone by itself."""
        return self._status() is not None

    def send(self, request: dict[str, Any]) -> None:
        """One line, at once. Raises Broken where the process takes none."""
        line = json.dumps(request).encode() + b"\n"
        try:
            if os.write(self._stdin.fileno(), line) == len(line):
                return
        except BlockingIOError:
            raise Broken("takes no more requests") from None
        except OSError:
            pass
        raise Broken(self._obituary())

    def receive(self, number: int, seconds: float, stopped: Callable[[], bool]) -> dict[str, Any] | None:
        """The reply of that number; None where it does not come in time, or `stopped`. Raises Broken."""
        deadline = time.monotonic() + seconds
        while True:
            found = self._reply(number)
            left = deadline - time.monotonic()
            if found is not None or left <= 0 or stopped():
                return found
            self._read(min(left, _SLICE))

    def kill(self) -> None:
        """At once, with every process that it started."""
        with self._lock:
            if self._popen.returncode is None:
                with contextlib.suppress(OSError):
                    os.killpg(self.pid, signal.SIGKILL)

    def end(self, grace: float = 0.0) -> bool:
        """Whether it is gone, after the end of its stdin and `grace`, or else killed. May be repeated."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._waited(grace)
        self.kill()  # its helpers too, where it has gone by itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_REAP)
        for stream in (self._stdout, self._stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.close()
        return self._popen.returncode is not None

    @property
    def _stdin(self) -> BinaryIO:
        return _of(self._popen.stdin)

    @property
    def _stdout(self) -> BinaryIO:
        return _of(self._popen.stdout)

    @property
    def _stderr(self) -> BinaryIO:
        return _of(self._popen.stderr)

    def _reply(self, number: int) -> dict[str, Any] | None:
        """Out of what was read; replies that came too late are passed over."""
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            told = _parsed(line)
            if "trying" in told:
                self.source, self.opening = str(told["trying"]), time.monotonic()
                continue
            self.opening = None
            if told.get("id") == number:
                return told
        if len(self._rest) > LONGEST_REPLY:
            raise Broken(f"sent more than {LONGEST_REPLY} bytes in one line")
        return None

    def _read(self, seconds: float) -> None:
        ready = dict(self._poll.poll(seconds * 1000))
        if self._stderr.fileno() in ready:
            self._read_words()
        if self._stdout.fileno() in ready:
            data = self._stdout.read(_CHUNK)
            if data == b"":
                raise Broken(self._obituary())
            self._rest += data or b""
        elif not ready and self.ended:  # a helper of it may hold the pipe open
            raise Broken(self._obituary())

    def _read_words(self) -> None:
        data = self._stderr.read(_CHUNK)
        if data == b"":
            self._poll.unregister(self._stderr)
        self._words = (self._words + (data or b""))[-_LAST_WORDS:]

    def _waited(self, seconds: float) -> int | None:
        """Its exit status, if it ends in that time."""
        deadline = time.monotonic() + seconds
        while (status := self._status()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return status

    def _status(self) -> int | None:
        """As Popen tells it, but the process is left to `end`: until then its id cannot be another's."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else took it, or SIGCHLD is ignored
            return 0
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _obituary(self) -> str:
        """How it ended, with the last line that it said."""
        status = self._waited(_REAP)
        how = "closed its pipe"
        if status is not None:
            how = f"ended with status {status}" if status >= 0 else f"died of {_signal(-status)}"
        with contextlib.suppress(OSError, ValueError):
            self._words = (self._words + (self._stderr.read(_CHUNK) or b""))[-_LAST_WORDS:]
        lines = self._words.decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how}: {said}" if said else how


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise Broken(f"sent what is no reply: {line[:60]!r}")
    return told


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _of(stream: Any) -> BinaryIO:
    found: BinaryIO = stream
    return found
