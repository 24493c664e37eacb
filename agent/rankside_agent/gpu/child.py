"""The process that asks drivers: `python -m rankside_agent.gpu.child [NAMES]`, started by the poller.

Separate from the agent because a driver's call may never return, crash, leak or print. It reads one JSON line
a request from stdin, {"id": n, "gpus": bool, "host": bool}, and writes one a reply to a copy of its stdout
that no library knows; fd 1 leads to stderr. `{"trying": name}` comes before a source is touched, so that the
poller knows which one it hung in. NAMES are the sources to choose from, with commas; all without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rankside_agent.gpu import SOURCES
from rankside_agent.gpu.choice import Choice

OUTGROWN = 75  # exit status: a library leaks, and a new process is the cure
MORE_FILES = 64  # above those open after the first reply
MORE_BYTES = 256 << 20  # of memory, likewise
_LINE = 1 << 16  # bytes of a request; ours have forty
_LOOK = 5.0  # seconds between looks whether the parent lives
_NICE, _OOM_SCORE = 10, 500  # training goes first, in time and in memory
_PR_SET_PDEATHSIG = 1

Request = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Answer until the end of stdin; returns the exit status."""
    replies = _own_stdout()
    parent = os.getppid()
    _be_modest()
    _die_with(parent)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    names = [name for name in arguments[0].split(",") if name] if arguments else list(SOURCES)
    answer = Answerer(Choice(names, lambda name: _write(replies, {"trying": name})))
    size: Size | None = None
    for request in requests(lambda: os.getppid() == parent):
        _write(replies, answer(request))
        size = size or Size()
        if size.outgrown():
            return OUTGROWN
    return 0


class Answerer:
    """What is replied to a request. The host's counters are kept from one to the next."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._host: Any = None

    def __call__(self, request: Request) -> dict[str, Any]:
        """Both parts that were asked for, and how long they took."""
        began = time.monotonic()
        reply: dict[str, Any] = {"id": request.get("id"), "cards": [], "problem": "", "host": {}}
        if request.get("gpus"):
            reading = self._choice.read()
            reply.update(cards=[card.plain() for card in reading.cards], problem=reading.problem)
        if request.get("host"):
            reply["host"] = self._read_host()
        took = (time.monotonic() - began) * 1000
        return {**reply, "source": self._choice.name, "time": time.time(), "took_ms": round(took, 3)}

    def _read_host(self) -> dict[str, float]:
        if self._host is None:
            from rankside_agent.host import Host

            self._host = Host()
        values: dict[str, float] = self._host.read()
        return values


class Size:
    """Files and memory of this process, beside what it had after its first reply."""

    def __init__(self) -> None:
        self._files, self._bytes = _size()

    def outgrown(self) -> bool:
        """Whether it has become a burden."""
        files, held = _size()
        return files > self._files + MORE_FILES or held > self._bytes + MORE_BYTES


def requests(alive: Callable[[], bool]) -> Iterator[Request]:
    """Each request, until the end of stdin or of the parent. Those that waited together are one."""
    rest = b""
    while True:
        if not select.select([0], [], [], _LOOK)[0]:
            if not alive():
                return
            continue
        data = os.read(0, _LINE)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[-_LINE:]
        asked = [request for line in lines if (request := _parsed(line))]
        if asked:
            yield {
                "id": asked[-1].get("id"),
                **{part: any(each.get(part) for each in asked) for part in ("gpus", "host")},
            }


def _parsed(line: bytes) -> Request | None:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return None


def _write(fd: int, value: dict[str, Any]) -> None:
    data = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]


def _own_stdout() -> int:
    """Where replies go. Not inherited, so that a helper which a library starts cannot hold it open."""
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def _be_modest() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))


def _die_with(parent: int) -> None:
    """Be killed when the agent's thread ends: stdin is not looked at while a driver's call hangs."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def _size() -> tuple[int, int]:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0, 0


if __name__ == "__main__":
    status = 1
    try:
        status = main(sys.argv[1:])
    except BrokenPipeError:
        status = 0  # the agent is gone
    except BaseException:  # noqa: BLE001  os._exit would swallow it
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)  # a driver's own clean-up at the end of a process may hang or crash
