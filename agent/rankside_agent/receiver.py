"""The socket's side: takes messages from ranks and strangers, journals, then acknowledges.

Separate from the loop because everything untrusted is checked here: sizes first, then form, then meaning.
A bad message costs its sender one warning a minute and nobody else anything.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import zmq

from rankside import wire
from rankside.identity import Hello
from rankside.wire import Message
from rankside_agent.progress import Channel
from rankside_agent.registry import Refused, Registry
from rankside_agent.runs import Gap, Run

_AT_ONCE = 64  # messages taken before the loop looks at anything else
_WARN_EVERY = 60.0  # seconds between warnings about one peer
_WARNINGS = 20  # in that time about all peers: each new connection of a stranger is another one
_PEERS = 10_000  # connections remembered; a stranger's never counts, only one that was welcomed


class Receiver:
    """Owned by the agent's loop."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        registry: Registry,
        agent_id: str,
        answer: Callable[[dict[str, Any]], dict[str, Any]],
        report: Callable[[str], None],
    ) -> None:
        self._socket = socket
        self._registry = registry
        self._agent_id = agent_id
        self._answer = answer
        self._report = report
        self._peers: dict[bytes, tuple[Run, Channel]] = {}
        self._prune_at = 256
        self._warned: dict[bytes, float] = {}
        self._warnings: deque[float] = deque(maxlen=_WARNINGS)
        self.counts: Counter[str] = Counter()
        self.adopted: Callable[[Run, Channel], None] = lambda _run, _channel: None

    def receive(self) -> None:
        """Take what has come, up to a bound, and acknowledge it once per rank."""
        acks: dict[bytes, int] = {}
        for _ in range(_AT_ONCE):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._take(parts, acks)
        for identity, last in acks.items():
            self._send(identity, Message.ACK, wire.SEQ.pack(last))

    def _take(self, parts: list[bytes], acks: dict[bytes, int]) -> None:
        identity = parts[0]
        handle = _HANDLERS.get(parts[1]) if len(parts) == 3 else None
        if handle is None:
            self._bad(identity, f"{len(parts) - 1} parts, or of no known kind")
            return
        try:
            handle(self, identity, parts[2], acks)
        except ValueError as error:  # BadFrame and everything wire.unpack refuses
            self._bad(identity, str(error))
        except OSError as error:
            self.counts["journal errors"] += 1
            self._report(f"journal: {error}; ranks keep their records until there is room")
        except Exception as error:  # noqa: BLE001  one peer's message must not end the agent
            self._bad(identity, f"{type(error).__name__}: {error}")

    def _on_hello(self, identity: bytes, payload: bytes, _acks: dict[bytes, int]) -> None:
        value = wire.unpack(payload)
        if isinstance(value, dict) and value.get("protocol") != wire.PROTOCOL:  # first: its form may differ
            text = f"protocol {value.get('protocol')!r}, this agent speaks {wire.PROTOCOL}: update one"
            self._send(identity, Message.REFUSE, wire.pack({"reason": text}))
            return
        hello = Hello.unpacked(value)
        refused = self._registry.refused.get(hello.channel)
        if refused:
            self._send(identity, Message.REFUSE, wire.pack({"reason": refused}))
            return
        first = value.get("first", 1)
        if not isinstance(first, int) or first < 1:
            raise ValueError("hello: first is no sequence number")

        def welcome(run: Run, channel: Channel) -> None:
            self._welcome(identity, run, channel, first)

        try:
            self._registry.open(hello, first, welcome)
        except Refused as error:
            self._send(identity, Message.REFUSE, wire.pack({"reason": str(error)}))
            raise  # the agent's side hears of it as of any bad message

    def _welcome(self, identity: bytes, run: Run, channel: Channel, first: int) -> None:
        self._peers.pop(channel.identity, None)
        channel.identity = identity
        channel.progress.seen = time.monotonic()
        if channel.how == "lost":
            run.revive(channel)
        if first > channel.last + 1:
            run.miss(channel, first - 1)
        self._prune()
        if len(self._peers) < _PEERS:
            self._peers[identity] = (run, channel)
        self.adopted(run, channel)
        self._say_where(identity, channel)

    def _say_where(self, identity: bytes, channel: Channel) -> None:
        self._send(identity, Message.WELCOME, wire.pack({"last": channel.last, "agent": self._agent_id}))

    def _prune(self) -> None:
        """Of the connections of ranks and runs that are no more; each time twice as many came."""
        if len(self._peers) >= self._prune_at:
            self._peers = {key: peer for key, peer in self._peers.items() if self._is_current(*peer)}
            self._prune_at = max(256, 2 * len(self._peers))

    def _is_current(self, run: Run, channel: Channel) -> bool:
        return (
            self._registry.runs.get(run.folder.name) is run
            and run.channels.get(channel.hello.channel) is channel
        )

    def _peer(self, identity: bytes) -> tuple[Run, Channel] | None:
        """Who speaks; None for a stranger, and for one whose channel or run was put away meanwhile."""
        peer = self._peers.get(identity)
        return peer if peer is not None and self._is_current(*peer) else None

    def _on_batch(self, identity: bytes, payload: bytes, acks: dict[bytes, int]) -> None:
        peer = self._peer(identity)
        if peer is None:
            self._send(identity, Message.WHO, b"")
            return
        run, channel = peer
        channel.progress.seen = time.monotonic()
        try:
            acks[identity] = run.accept(channel, payload)
        except Gap:
            acks.pop(identity, None)
            self.counts["gaps"] += 1
            self._say_where(identity, channel)
        self.counts["batches"] += 1

    def _on_beat(self, identity: bytes, payload: bytes, acks: dict[bytes, int]) -> None:
        peer = self._peer(identity)
        if peer is None:
            self._send(identity, Message.WHO, b"")
            return
        peer[1].progress.seen = time.monotonic()
        peer[1].progress.beat(wire.unpack(payload))
        acks[identity] = peer[1].last

    def _on_command(self, identity: bytes, payload: bytes, _acks: dict[bytes, int]) -> None:
        value = wire.unpack(payload)
        if not isinstance(value, dict):
            raise ValueError("command: not a mapping")
        self._send(identity, Message.REPLY, wire.pack(self._answer(value)))

    def _send(self, identity: bytes, kind: bytes, payload: bytes) -> None:
        try:
            self._socket.send_multipart([identity, kind, payload], zmq.NOBLOCK)
        except zmq.ZMQError:
            self.counts["unsent"] += 1  # gone, or its queue is full: it asks again

    def _bad(self, identity: bytes, problem: str) -> None:
        self.counts["bad messages"] += 1
        now = time.monotonic()
        if now - self._warned.get(identity, -_WARN_EVERY) < _WARN_EVERY:
            return
        if len(self._warnings) == _WARNINGS and now - self._warnings[0] < _WARN_EVERY:
            return
        self._warnings.append(now)
        if len(self._warned) > _PEERS:
            self._warned.clear()
        self._warned[identity] = now
        self._report(f"bad message from a peer, skipped: {problem[:300]}")


_HANDLERS = {
    Message.HELLO: Receiver._on_hello,
    Message.BATCH: Receiver._on_batch,
    Message.BEAT: Receiver._on_beat,
    Message.COMMAND: Receiver._on_command,
}
