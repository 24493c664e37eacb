"""Ask for the node's GPUs without ever waiting for them: one thread, and one process that may hang.

Separate from the agent's loop, which only calls `ask`; the answer comes from the thread when it comes.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rankside_agent.gpu import SOURCES
from rankside_agent.gpu.blame import Blame
from rankside_agent.gpu.card import Card, Reading
from rankside_agent.gpu.child import OUTGROWN
from rankside_agent.gpu.process import Broken, Process
from rankside_agent.sinks.supervisor import FIRST_DELAY, LONGEST_DELAY, RAN_WELL, environment

DEADLINE = 3.0
STARTING = 30.0  # seconds that the start of the process, or of a source in it, may take: a cold disk, 8 GPUs
SLOW = {"rocm-smi": 10.0}  # seconds in place of a shorter deadline; it alone takes 1 to 3 a poll
IDLE = 600.0  # seconds without a question after which the process ends
LONGEST_QUEUE = 1024
UNKILLABLE = 3  # processes stuck in the kernel, after which no more are started
_CLOSE = 0.7  # seconds for the thread to end
_SAY_AGAIN, _LINES = 3600.0, 32  # seconds, and lines in that time
_HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")

log = logging.getLogger(__name__)

Then = Callable[[Reading | None, dict[str, float]], object]


class _Question(NamedTuple):
    gpus: bool
    host: bool
    then: Then


class Poller:
    """Keeps the process `rankside_agent.gpu.child` and asks it. `say` hears what changes, for people.

    `command` is a seam for tests: what is run, in place of the child with the names of its sources.
    """

    def __init__(
        self,
        sources: Sequence[str] = tuple(SOURCES),
        *,
        deadline: float = DEADLINE,
        starting: float = STARTING,
        idle: float = IDLE,
        command: Sequence[str] | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        say: Callable[[str], None] = log.info,
    ) -> None:
        self._deadline, self._starting, self._idle = deadline, starting, idle
        self._command = command
        self._environ = environ
        self._clock, self._jitter, self._say = clock, jitter, say
        self._changed = threading.Condition()
        self._queue: deque[_Question] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None
        # Of the thread from here on; others only look
        self._blame = Blame(sources, clock)
        self._process: Process | None = None
        self._stuck: list[Process] = []
        self._number = 0
        self._delay, self._next_start = FIRST_DELAY, 0.0
        self._names: list[str] = []
        self._said: dict[str, float] = {}
        self._reading = Reading()
        self._trouble = ""
        self._counts = {"polls": 0, "timeouts": 0, "starts": 0, "refused": 0}
        self._last_ms: float | None = None

    def __repr__(self) -> str:
        return f"<Poller {self.status()}>"

    def ask(self, gpus: bool, host: bool, then: Then) -> bool:
        """Have `then` called from the thread, once; with None where no answer came in time.

        Never waits and never raises. False where it will not be called: closed, or no room for one more.
        """
        with self._changed:
            taken = not self._closing and len(self._queue) < LONGEST_QUEUE and self._running()
            if taken:
                self._queue.append(_Question(gpus, host, then))
                self._changed.notify_all()
            else:
                self._counts["refused"] += 1
            return taken

    def status(self) -> dict[str, Any]:
        """Plain values, for people and for the status command."""
        process, reading = self._process, self._reading
        return {
            "source": reading.source,
            "cards": len(reading.cards),
            "problem": self._trouble or reading.problem,
            "polls": self._counts["polls"],
            "timeouts": self._counts["timeouts"],
            "restarts": max(0, self._counts["starts"] - 1),
            "refused": self._counts["refused"],
            "left_out": self._blame.left_out(),
            "last_ms": self._last_ms,
            "pid": process.pid if process else None,
        }

    def close(self) -> None:
        """End thread and process within a second, whatever they do. May be repeated."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE)
        process = self._process
        if process is not None:
            process.kill()

    def _running(self) -> bool:
        """Whether there is a thread, now. It starts with the first question: most nodes' runs ask none."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="rankside-gpu", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads; the next question tries again
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while not self._closing:
            asked = self._take()
            if asked:
                reading, host = self._polled(asked)
                _tell(asked, reading, host)
            elif self._process is not None:
                self._end(self._process, 0.0 if self._closing else _CLOSE)
        if self._process is not None:
            self._end(self._process)
        _tell(self._drained(), None, {})

    def _take(self) -> list[_Question]:
        """All that were asked up to now; none when the process has been idle for long, or at the end."""
        with self._changed:
            wait = self._idle if self._process is not None else None
            self._changed.wait_for(lambda: self._queue or self._closing, wait)
            return [] if self._closing else self._drained()

    def _drained(self) -> list[_Question]:
        with self._changed:
            asked = list(self._queue)
            self._queue.clear()
            return asked

    def _polled(self, asked: list[_Question]) -> tuple[Reading | None, dict[str, float]]:
        """One poll for all of them; the loop's one catch."""
        gpus, host = any(each.gpus for each in asked), any(each.host for each in asked)
        self._counts["polls"] += 1
        began = time.monotonic()
        try:
            reading, values = self._poll(gpus, host)
        except Exception as error:
            log.exception("the GPU poller stumbled")
            self._trouble = f"{type(error).__name__}: {error}"
            return None, {}
        self._last_ms = round((time.monotonic() - began) * 1000, 3)
        return reading, values

    def _poll(self, gpus: bool, host: bool) -> tuple[Reading | None, dict[str, float]]:
        process = self._usable() or self._start()
        if process is None:
            return None, {}
        self._number += 1
        try:
            process.send({"id": self._number, "gpus": gpus, "host": host})
            seconds = max(self._deadline, SLOW.get(process.source, 0.0))
            reply = process.receive(self._number, seconds, lambda: self._closing)
            if reply is not None:
                return self._understood(reply, gpus)
        except Broken as broken:
            self._lost(process, str(broken), gpus)
        else:
            self._late(process, seconds, gpus)
        return None, {}

    def _usable(self) -> Process | None:
        """The process there is, unless it has ended by itself, or has no source while there is one again."""
        process = self._process
        if process is not None and process.ended:
            self._lost(process, "ended between two polls", gpus=False)
        elif process is not None and not self._reading.source and self._names != self._blame.trusted():
            self._end(process)
        return self._process

    def _understood(self, reply: dict[str, Any], gpus: bool) -> tuple[Reading, dict[str, float]]:
        try:
            cards = tuple(Card.of(plain) for plain in reply["cards"])
            problem = str(reply["problem"])
            reading = Reading(str(reply["source"]), float(reply["time"]), cards, problem)
            host = {str(name): float(value) for name, value in reply["host"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Broken(f"sent a reply of another form: {type(error).__name__}: {error}") from error
        self._trouble = ""
        if gpus:
            self._reading = reading
            self._tell_people(problem or f"GPUs are read through {reading.source}: {len(cards)}")
        return reading, host

    def _late(self, process: Process, seconds: float, gpus: bool) -> None:
        """No answer in time: it may still be starting, or else it hangs."""
        if self._closing:
            return
        self._counts["timeouts"] += 1
        if process.opening is not None:
            seconds = time.monotonic() - process.opening
            if seconds < self._starting:
                self._trouble = "the process that asks the drivers is starting"
                return
        self._lost(process, f"no answer for {seconds:.0f} s", gpus)

    def _lost(self, process: Process, why: str, gpus: bool) -> None:
        """Kill what is left of it, and wait before the next one."""
        source, lived = process.source, time.monotonic() - process.born
        self._end(process)
        if process.status == OUTGROWN and process.opening is None:  # it did its work until then
            return
        if lived >= RAN_WELL:
            self._delay = FIRST_DELAY
        if gpus and source:
            self._blame.on(source)
        self._trouble = f"{source or 'the process that asks the drivers'}: {why}"
        self._tell_people(self._trouble)
        self._put_off()

    def _put_off(self) -> None:
        self._next_start = self._clock() + self._delay * (0.75 + 0.5 * self._jitter())
        self._delay = min(self._delay * 2, LONGEST_DELAY)

    def _end(self, process: Process, grace: float = 0.0) -> None:
        self._process = None
        if not process.end(grace):
            self._stuck.append(process)

    def _start(self) -> Process | None:
        """A new process, if it is time for one."""
        if self._clock() < self._next_start:
            return None
        self._stuck = [process for process in self._stuck if not process.end()]
        if len(self._stuck) >= UNKILLABLE:
            self._trouble = f"{len(self._stuck)} processes hang in a driver and cannot be killed"
            self._tell_people(self._trouble)
            self._put_off()
            return None
        self._names = self._blame.trusted()
        child = [sys.executable, "-m", "rankside_agent.gpu.child", ",".join(self._names)]
        try:
            self._process = Process(self._command or child, child_environ(self._environ))
        except OSError as error:  # no processes, memory or files left
            self._trouble = f"{type(error).__name__}: {error}"
            self._put_off()
            return None
        self._counts["starts"] += 1
        return self._process

    def _tell_people(self, line: str) -> None:
        """Each line once an hour: one that comes and goes must not fill a log."""
        now = self._clock()
        self._said = {text: at for text, at in self._said.items() if now - at < _SAY_AGAIN}
        if line not in self._said and len(self._said) < _LINES:
            self._said[line] = now
            with suppress(Exception):
                self._say(line)


def child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """As for a sink: no rank. And no mask, for all GPUs of the node are to be seen."""
    return {name: value for name, value in environment(environ).items() if name not in _HIDING}


def _tell(asked: list[_Question], reading: Reading | None, host: dict[str, float]) -> None:
    for question in asked:
        try:
            question.then(reading, host)
        except Exception:
            log.exception("what follows a poll of the GPUs failed")
