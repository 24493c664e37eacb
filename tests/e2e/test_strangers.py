"""Strangers at a living agent's socket: whatever bytes they send, the ranks beside them lose nothing."""

from __future__ import annotations

import os
import random
import socket
import struct
from contextlib import suppress

import msgpack
import psutil
import pytest
import zmq

LINES = 3000
CHAOS = os.environ.get("RANKSIDE_CHAOS", "short")
ROUNDS, SEEDS = {"short": (400, 1), "long": (4000, 8)}[CHAOS]
GROWTH = 200 << 20  # bytes: some messages of 4 MB held at once, and no more

NUMBERED = f"""
    for number in range(1, {LINES + 1}):
        log.info("line %d", number)
        mon.metrics({{"loss": 1 / number}}, step=number)
        if number % 30 == 0:
            time.sleep(0.05)
    """


def plain(chance: random.Random, depth: int = 0) -> object:
    """A value of msgpack, of any kind."""
    kinds = [None, True, chance.getrandbits(63), chance.random(), "x" * chance.randrange(50), b"\0" * 9]
    if depth < 3:
        some = range(chance.randrange(4))
        kinds += [[plain(chance, depth + 1) for _ in some], {str(n): plain(chance, depth + 1) for n in some}]
    return chance.choice(kinds)


def message(chance: random.Random) -> list[bytes]:
    """A first part of the protocol or none, and a payload that is one, is nearly one, or is nothing."""
    payload = (
        msgpack.packb(plain(chance)) if chance.random() < 0.5 else chance.randbytes(chance.randrange(200))
    )
    if chance.random() < 0.2:  # the head of a frame that promises anything
        payload = struct.pack("<IIQB", chance.getrandbits(32), chance.getrandbits(32), 1, 1) + payload
    if payload and chance.random() < 0.3:
        at = chance.randrange(len(payload))
        payload = payload[:at] + chance.randbytes(1) + payload[at + 1 :]
    return [chance.choice([b"H", b"B", b"T", b"C", b"A", b"W", b"", b"?", b"HH"]), payload][
        : chance.choice([1, 2, 2, 2])
    ]


def shout(chance: random.Random, context: zmq.Context, endpoint: str) -> None:
    """One stranger's visit, in ZeroMQ."""
    with context.socket(chance.choice([zmq.DEALER, zmq.REQ, zmq.PUSH])) as peer:
        peer.linger = peer.sndtimeo = (
            50  # the agent's socket turns some kinds away, and then nobody takes theirs
        )
        if chance.random() < 0.5:
            peer.routing_id = chance.randbytes(chance.randrange(1, 60)).replace(b"\0", b"1")
        peer.connect(endpoint)
        with suppress(zmq.Again):
            for _ in range(1 if peer.type == zmq.REQ else chance.randrange(1, 20)):
                peer.send_multipart(message(chance) + [b"more"] * chance.choice([0, 0, 0, 3]))


def scribble(chance: random.Random, path: str) -> None:
    """Bytes that are not even ZeroMQ, or the beginning of it."""
    with socket.socket(socket.AF_UNIX) as peer, suppress(OSError):
        peer.settimeout(2)
        peer.connect(path)
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
        peer.sendall(greeting[: chance.randrange(len(greeting))] + chance.randbytes(chance.randrange(300)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ranks_lose_nothing_beside_strangers_that_send_anything(node, numbers, seed):
    agent = node.agent()
    chance, context = random.Random(seed), zmq.Context()
    before = psutil.Process(agent.pid).memory_info().rss
    ranks = [node.rank(NUMBERED, rank, 2, "disable_tensorboard=False") for rank in range(2)]
    try:
        for _ in range(ROUNDS):
            shout(chance, context, node.endpoint)
            scribble(chance, node.endpoint.removeprefix("ipc://"))
    finally:
        context.destroy(linger=0)
    node.finish(*ranks)

    assert agent.poll() is None
    assert psutil.Process(agent.pid).memory_info().rss < before + GROWTH
    node.until(node.all_delivered, "the run put away")
    for rank in range(2):
        assert numbers(node.texts(rank)) == list(range(1, LINES + 1))
    assert steps_in(node.exp / "tensorboard") == list(range(1, LINES + 1))
    assert node.command("status").returncode == 0


def steps_in(folder) -> list[int]:
    """Of the loss, as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [event.step for event in reader.Scalars("loss")]
