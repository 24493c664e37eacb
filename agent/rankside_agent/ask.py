"""One question to a living agent, with a deadline: for commands that want what only it knows."""

from __future__ import annotations

from typing import Any

import zmq

from rankside import endpoint, wire
from rankside.wire import Message


class NoAnswer(RuntimeError):
    """Nobody listens there, or nobody answered in time."""


def ask(target: str, command: str, seconds: float = 3.0) -> dict[str, Any]:
    """The answer to `command`. Raises NoAnswer."""
    if not endpoint.listens(target):
        raise NoAnswer(f"no agent listens on {target}; start one with `rankside agent`, or name its endpoint")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(target)
        socket.send_multipart([Message.COMMAND, wire.pack({"command": command})])
        if not socket.poll(int(seconds * 1000)):
            raise NoAnswer(f"the agent on {target} did not answer within {seconds:g} s")
        answer = wire.unpack(socket.recv_multipart()[1])
    finally:
        context.destroy(linger=0)
    if not isinstance(answer, dict) or "error" in answer:
        raise NoAnswer(f"the agent on {target}: {answer}")
    return answer
