"""The one thread that carries a channel's spool to the agent: batches out, cumulative acks back.

Separate from the spool because nothing here may ever delay or fail a caller. It sends what the spool holds,
goes back to the last acknowledged record whenever an agent says so, and starts again from the endpoint when
nobody answers. Only this thread touches the socket.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
import weakref
from typing import Any

import zmq

from rankside import endpoint, wire
from rankside.spool import Spool
from rankside.wire import Message

COALESCE = 0.05  # seconds that records may wait for company
BEAT = 1.0  # seconds between signs of life
WINDOW = 16  # batches on their way: 2 MiB, and what a frozen agent holds of ours
HELLO_AGAIN = 2.0  # seconds without an answer
DESERTED = 2.5  # seconds of silence after which it is asked whether anybody listens there
LOST = 10.0  # seconds of silence after which the endpoint is looked for anew
STALLED = 3.0  # seconds that an agent which answers may leave a batch unacknowledged: its disk is full, say
_GAP = 0.1  # seconds to let pass what else was sent behind a batch that got lost
_LEAVING = 0.25  # the same, for a process that is about to end
_TROUBLE = 1.0  # seconds between attempts after an error
_LONGEST = 60.0  # seconds between attempts to start an agent that will not start


class Transport:
    """Owns the thread; `flush` and `stop` are for the thread that closes the channel."""

    def __init__(self, spool: Spool, hello: dict[str, Any], given: str | None) -> None:
        self._spool = spool
        self._hello = hello
        self._given = given
        self._wakefd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # only when nobody is left who could write to it: its number may by then be another file's
        weakref.finalize(self, os.close, self._wakefd).atexit = False
        self.awake = False  # set by the first caller since the last sending; the others need no system call
        self._stopping = False
        self._progress = threading.Condition()
        self._flush_to = 0
        self._acked = 0
        self._batches: list[int] = []  # last sequence numbers of the batches on their way
        self._window = WINDOW
        self._hold_until = 0.0
        self._welcomed = self._met = False
        self._target = ""
        self._heard = self._asked = self._beaten = self._progressed = self._probed = 0.0
        self._failures = 0
        self._said: set[str] = set()
        spool.on_roll = self.wake
        self._thread = threading.Thread(target=self._run, name="rankside-transport", daemon=True)

    def start(self) -> None:
        """Begin. Raises RuntimeError at interpreter shutdown; the spool is then the agent's to find."""
        self._thread.start()

    def wake(self) -> None:
        """There is something to send."""
        self.awake = True
        os.eventfd_write(self._wakefd, 1)

    @property
    def nobody(self) -> str:
        """Where no agent has ever answered; empty where one has."""
        return "" if self._met else self._target or str(self._given or "")

    def flush(self, seconds: float) -> bool:
        """Wait until all that is in the spool now is acknowledged, `seconds` at most."""
        deadline = time.monotonic() + seconds
        self._flush_to = self._spool.last
        self.wake()
        with self._progress:
            while self._acked < self._flush_to and self._thread.is_alive():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._progress.wait(min(left, 0.1))
        return self._acked >= self._flush_to

    def stop(self, seconds: float) -> bool:
        """End the thread; False where it did not end in time and still holds the spool."""
        self._stopping = True
        self.wake()
        if self._thread.ident is not None:  # it could be started
            self._thread.join(seconds)
        return not self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._connect_and_serve()
            except Exception as error:  # noqa: BLE001  a dead transport would be a silent loss
                self._say(f"transport: {type(error).__name__}: {error}; trying again")
                self._pause(_TROUBLE)

    def _connect_and_serve(self) -> None:
        target, may_start = endpoint.choose(self._given)
        if may_start and not endpoint.listens(target):
            problem = endpoint.start_agent(target, give_up=lambda: self._stopping)
            if problem:
                self._say(problem)
                self._await_agent(target)
                return
        self._failures = 0
        self._target = target
        context = zmq.Context()
        try:
            with _connected(context, target) as socket:
                self._serve(socket, target if may_start else None)
        finally:
            context.destroy(linger=0)

    def _serve(self, socket: zmq.Socket[bytes], ours: str | None) -> None:
        """Until told to stop, or nobody answers. `ours` is an endpoint where we may start an agent."""
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._wakefd, zmq.POLLIN)
        self._welcomed = False
        self._heard = time.monotonic()
        self._ask(socket)
        send_at: float | None = None
        while not self._stopping:
            now = time.monotonic()
            idle = now + (_LEAVING if self._flush_to > self._acked else BEAT)
            due = min(self._beaten + BEAT, idle, send_at or idle, self._hold_until or idle)
            ready = dict(poller.poll(max(0, int((due - now) * 1000) + 1)))
            now = time.monotonic()
            if self._wakefd in ready:
                os.eventfd_read(self._wakefd)
                send_at = send_at or now + (0 if self._hurried() else COALESCE)
            if socket in ready:
                self._receive(socket)
            if send_at and (now >= send_at or self._hurried()):
                send_at = None
                self.awake = False
            if send_at is None:
                self._send(socket)
            if now >= self._beaten + BEAT:
                self._beat(socket, now)
            if now - self._heard > LOST or (ours and self._deserted(ours, now)):
                return

    def _deserted(self, target: str, now: float) -> bool:
        """Whether an agent that we may start again is gone: one that leaves has no time to wait for LOST."""
        patience = _LEAVING if self._flush_to > self._acked else DESERTED
        if now - max(self._heard, self._probed) < patience:
            return False
        self._probed = now
        return not endpoint.listens(target)

    def _hurried(self) -> bool:
        return self._flush_to > self._acked or self._spool.hurry

    def _send(self, socket: zmq.Socket[bytes]) -> None:
        self._spool.hurry = False
        self._spool.prepare()
        now = time.monotonic()
        if now < self._hold_until:
            return
        self._hold_until = 0.0
        while self._welcomed and len(self._batches) < self._window:
            chunk = self._spool.read()
            if chunk is None:
                return
            try:
                socket.send_multipart([Message.BATCH, chunk.data], zmq.NOBLOCK)
            except zmq.Again:
                self._spool.rewind(chunk.first - 1)
                return
            if not self._batches:
                self._progressed = now
            self._batches.append(chunk.last)

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(1000):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard = time.monotonic()
            handle = _HANDLERS.get(parts[0])
            if handle is not None:
                handle(self, socket, parts[1] if len(parts) > 1 else b"")

    def _on_welcome(self, _socket: zmq.Socket[bytes], payload: bytes) -> None:
        """The agent holds all up to `last`: go on behind it. It says so again when a batch came too early."""
        welcome = wire.unpack(payload)
        self._spool.own(str(welcome["agent"]))
        self._on_ack(_socket, wire.SEQ.pack(int(welcome["last"])))
        self._go_back()
        self._met = True
        if not self._welcomed:
            self._welcomed = True
            self._window, self._hold_until = WINDOW, 0.0

    def _go_back(self) -> None:
        """Send again from the last acknowledged record: one batch, until the agent has taken it.

        Not at once: what was on its way behind a refused batch is refused too, and each says so.
        """
        self._batches.clear()
        self._spool.rewind(self._acked)
        self._window, self._hold_until = 1, time.monotonic() + _GAP

    def _on_ack(self, _socket: zmq.Socket[bytes], payload: bytes) -> None:
        acked = wire.SEQ.unpack(payload)[0]
        self._batches = [last for last in self._batches if last > acked]
        if acked <= self._acked:
            return
        self._window, self._hold_until, self._progressed = WINDOW, 0.0, self._heard
        with self._progress:
            self._acked = min(acked, self._spool.last)
            self._progress.notify_all()
        self._spool.free(self._acked)
        self._spool.announce()

    def _on_who(self, socket: zmq.Socket[bytes], _payload: bytes) -> None:
        """This agent is another than the one we spoke to."""
        if self._welcomed:
            self._welcomed = False
            self._asked = 0.0
        if time.monotonic() - self._asked > 0.2:
            self._ask(socket)

    def _on_refuse(self, _socket: zmq.Socket[bytes], payload: bytes) -> None:
        self._welcomed = False
        self._say(f"the agent refuses this process: {wire.unpack(payload).get('reason', '')}")

    def _ask(self, socket: zmq.Socket[bytes]) -> None:
        self._asked = time.monotonic()
        # `first` is where an agent that does not know us has to begin: another took what came before
        hello = {"protocol": wire.PROTOCOL, "first": self._acked + 1, **self._hello}
        if hello.get("environ"):
            private = endpoint.is_private(self._target)
            if private is None:  # there is no agent to hear it; what were queued now would be without
                return
            if not private:
                hello["environ"] = {}
                self._say(f"{self._target} is not this user's alone: it is not told the trackers' keys")
        self._offer(socket, [Message.HELLO, wire.pack(hello)])

    def _beat(self, socket: zmq.Socket[bytes], now: float) -> None:
        self._beaten = now
        self._spool.announce()
        if self._welcomed:
            beat = {"dropped": self._spool.dropped(), "used": self._spool.used(), "last": self._spool.last}
            self._offer(socket, [Message.BEAT, wire.pack(beat)])
            if self._batches and self._heard - self._progressed > STALLED:
                self._go_back()
        elif now - self._asked > HELLO_AGAIN:
            self._ask(socket)

    @staticmethod
    def _offer(socket: zmq.Socket[bytes], parts: list[bytes]) -> None:
        with contextlib.suppress(zmq.Again):  # a full queue to a frozen agent: the next beat tries again
            socket.send_multipart(parts, zmq.NOBLOCK)

    def _await_agent(self, target: str) -> None:
        """It could not be started. Try ever more rarely: each attempt costs the node a second of a core."""
        self._failures += 1
        seconds = min(_TROUBLE * 2**self._failures, _LONGEST) * (0.5 + random.random() / 2)
        deadline = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < deadline and not endpoint.listens(target):
            self._pause(_TROUBLE)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < deadline:
            time.sleep(0.05)

    def _say(self, text: str) -> None:
        """On stderr, each text once: with the agent out of reach there is no other place."""
        if text not in self._said:
            self._said.add(text)
            warn(text)


_HANDLERS = {
    Message.WELCOME: Transport._on_welcome,
    Message.ACK: Transport._on_ack,
    Message.WHO: Transport._on_who,
    Message.REFUSE: Transport._on_refuse,
}


def warn(text: str) -> None:
    """One line of our own on the process's first stderr, past whatever captures sys.stderr."""
    stream = sys.__stderr__
    if stream is not None:
        try:
            stream.write(f"rankside: {text}\n")
            stream.flush()
        except (OSError, ValueError):  # closed, or a full disk behind it
            pass


def _connected(context: zmq.Context[zmq.Socket[bytes]], target: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.sndhwm = 64  # the window bounds what is on its way; this, what a dead peer may collect
    socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 1000
    socket.connect(target)
    return socket
