"""The agent's life: start, loop, stop.

    client -> record -> spool -> transport => receiver -> journal -> logfiles | state | sinks/<name>

The loop touches only the socket, the journals and this node's own folders. Whatever may hang (a run's
folder, a tracker) belongs to a thread or process of its own.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from loguru import logger

from rankside import endpoint
from rankside.version import __version__
from rankside_agent import files, limits, status
from rankside_agent.config import Settings
from rankside_agent.gauges import Gauges
from rankside_agent.gpu.poller import Poller
from rankside_agent.left_outputs import LeftOutputs
from rankside_agent.memory import keep_freed_memory
from rankside_agent.ownership import Endpoint, Lock, Taken
from rankside_agent.receiver import Receiver
from rankside_agent.recovery import Recovery
from rankside_agent.registry import Registry

_TICK = 0.5  # seconds between looks at ranks, readers and sinks
_FIRST_RUN = 60.0  # seconds that an agent started by a rank waits for it to speak
_SAY_AGAIN = 60.0  # seconds before the same trouble is told again
# A scancel or a launcher sends these to every process of a job; only the first two mean us.
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_IGNORED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Agent:
    """One agent. `auto`: a rank started it, and it leaves when its runs are done and delivered."""

    def __init__(self, settings: Settings, auto: bool = False) -> None:
        """Take the endpoint and the state folder. Raises Taken, ValueError, OSError."""
        self.settings = settings
        self.auto = auto
        self.target = settings.resolved_endpoint()
        self.state_dir = settings.resolved_state_dir()
        self.started = time.time()
        self.stopping_since: float | None = None
        self._asked_to_stop = self._heeded = 0  # signals that came, and those acted on
        self._now_at_once = False
        self._dispossessed = False  # another agent has our state folder
        self._idle_since = time.monotonic()
        self._served = False
        self._said: dict[str, float] = {}
        self._wakefd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._hear_signals()  # whoever sees our socket may send one
        limits.lift(self.report)
        self._state_lock = self._lock_state()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.endpoint = Endpoint(self._context, self.target)
        self.agent_id = _agent_id(self.state_dir / "agent-id")
        poller = Poller(settings.gpu_sources, say=logger.info)
        self.gauges = Gauges(self._wake, settings.system_seconds, poller)
        self.registry = Registry(self.state_dir, settings, self.report, self._wake, self.gauges.poll)
        self.receiver = Receiver(
            self.endpoint.socket, self.registry, self.agent_id, self._answer, self.report
        )
        self._recovery = Recovery(
            self.registry,
            self._spool_folders(),
            self.state_dir / "spool-roots.json",
            self.agent_id,
            settings.lost_after_seconds,
            self.report,
            LeftOutputs(self.target, self.report),
        )
        self.receiver.adopted = self._recovery.watch
        self.registry.before_opening = self._recovery.sweep

    def run(self) -> None:
        """Serve until stopped, then leave in order."""
        logger.info(
            f"rankside {__version__} agent, pid {os.getpid()}, listens on {self.target}; "
            f"state in {self.state_dir}; {len(self.registry.runs)} unfinished runs"
        )
        keep_freed_memory()
        try:
            self._serve()
        finally:
            self._leave()

    def report(self, text: str) -> None:
        """Tell of trouble; the same text at most once a minute."""
        now = time.monotonic()
        if now - self._said.get(text, -_SAY_AGAIN) >= _SAY_AGAIN:
            if len(self._said) > 1000:
                self._said.clear()
            self._said[text] = now
            logger.warning(text)

    # -- the loop ------------------------------------------------------------------------------------

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self.endpoint.socket, zmq.POLLIN)
        poller.register(self._wakefd, zmq.POLLIN)
        self._carefully(lambda: self._tick(time.monotonic()))  # what the dead left comes first
        ticked = time.monotonic()
        self._heed_signals()
        while not self._may_leave():
            ready = dict(poller.poll(int(_TICK * 1000)))
            if self.endpoint.socket in ready:
                self.receiver.receive()
            if self._wakefd in ready:
                os.eventfd_read(self._wakefd)
                self._carefully(self.registry.settle)
                self._carefully(self.gauges.settle)
            now = time.monotonic()
            if now - ticked >= _TICK:
                ticked = now
                self._carefully(lambda: self._tick(time.monotonic()))
            self._heed_signals()

    def _lock_state(self) -> Lock:
        return Lock(self.state_dir / "lock", f"the state folder {self.state_dir}")

    def _tick(self, now: float) -> None:
        if not self._state_lock.intact() and not self._remake_state():
            return
        self._recovery.tick(now)
        busy = self.registry.busy()  # a short run may come and go between two looks
        self.registry.tick(now)
        self.gauges.tick(now, self.registry.runs.values())
        if busy or self.registry.busy():
            self._idle_since, self._served = now, True
        if not self.endpoint.intact():
            self.report(f"{self.target} was removed or replaced: new ranks cannot find this agent; stopping")
            self.stop()

    def _remake_state(self) -> bool:
        """Somebody removed it while we live: runs make their own folders again, see `Run.tick`.

        False where it is another agent's by now: we leave, and touch nothing of it.
        """
        logger.error(
            f"state folder {self.state_dir}: was removed while this agent lives, and what finished runs had "
            "there is gone; it is made anew"
        )
        try:
            lost, self._state_lock = self._state_lock, self._lock_state()
        except Taken as error:
            self.report(f"{error}; stopping")
            self._now_at_once = self._dispossessed = True
            return False
        lost.release()
        (self.state_dir / "runs").mkdir(exist_ok=True)
        files.replace(self.state_dir / "agent-id", self.agent_id.encode())
        return True

    def _carefully(self, work: Callable[[], None]) -> None:
        """Trouble in one look must not end the agent; the next look tries again."""
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self.report(f"{type(error).__name__}: {error}")
            logger.opt(exception=error).debug("in the agent's loop")

    def stop(self) -> None:
        """Leave once no rank lives, at the latest after the grace; a second call means at once."""
        if self.stopping_since is not None:
            self._now_at_once = True
        else:
            self.stopping_since = time.monotonic()
            living = len(self.registry.living())
            grace = (
                f"; serving {living} living ranks for {self.settings.stop_grace_seconds:g} s"
                if living
                else ""
            )
            logger.info(f"stopping{grace}")

    def _may_leave(self) -> bool:
        now = time.monotonic()
        if self._now_at_once:
            return True
        if self.stopping_since is not None:
            over = now - self.stopping_since > self.settings.stop_grace_seconds
            return over or not (self._is_needed() or self._finds_more())
        patience = self.settings.idle_exit_seconds if self._served else _FIRST_RUN
        return self.auto and now - self._idle_since > patience and not self._finds_more()

    def _is_needed(self) -> bool:
        """Whether a rank speaks to us, or is about to."""
        return bool(self.registry.living() or self.registry.opening())

    def _finds_more(self) -> bool:
        """Whether ranks have left something since the last search: nobody else may come for it."""
        self._carefully(self._recovery.last_look)
        return self._is_needed()

    def _leave(self) -> None:
        if self._dispossessed:
            self._carefully(self.registry.abandon)
        else:
            self._carefully(self.receiver.receive)
            self._carefully(lambda: self.registry.close(self.settings.stop_flush_seconds))
        self.gauges.close()
        self.endpoint.close()
        self._context.destroy(linger=200)
        self._state_lock.release()
        logger.info("stopped")

    # -- small things --------------------------------------------------------------------------------

    def _hear_signals(self) -> None:
        for number in _STOPPING:
            signal.signal(number, self._on_signal)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._asked_to_stop += 1
        self._wake()

    def _heed_signals(self) -> None:
        while self._heeded < self._asked_to_stop:
            self._heeded += 1
            self.stop()

    def _wake(self) -> None:
        os.eventfd_write(self._wakefd, 1)

    def _answer(self, command: dict[str, Any]) -> dict[str, Any]:
        handler = _COMMANDS.get(str(command.get("command")))
        if handler is None:
            return {"error": f"command: {command.get('command')!r} is unknown; known: {', '.join(_COMMANDS)}"}
        return handler(self)

    def _spool_folders(self) -> list[Path]:
        group = endpoint.spool_group(self.target)
        return [root / group for root in [*endpoint.spool_roots(), *map(Path, self.settings.spool_dirs)]]


_COMMANDS: dict[str, Callable[[Agent], dict[str, Any]]] = {"status": status.report}


def set_up_log(level: str = "INFO") -> None:
    """The agent's own log on stderr, one readable line each."""
    logger.remove()
    logger.add(
        sys.stderr, level=level, format="{time:YYYY-MM-DD HH:mm:ss.SSS} {level: <7} {message}", diagnose=False
    )


def _agent_id(path: Path) -> str:
    """This state folder's name for itself, kept: spools remember whose journal holds their beginning."""
    known = path.read_text().strip() if path.exists() else ""
    if not known:
        known = secrets.token_hex(16)
        files.replace(path, known.encode())
    return known
