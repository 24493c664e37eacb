"""Frames and messages between a rank and its agent: the one file that both sides import.

A record travels and rests as a *frame*, the same bytes in the spool, on the wire and in the journal:

    body length u32 | crc32 u32 | sequence u64 | kind u8 | body (msgpack)

The checksum starts from sequence and kind, so a frame that was moved or relabelled fails as one that was cut
(modulo a prime, so that each of their bits counts).
Messages are ZeroMQ multipart: one byte of `Message`, then at most one payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from mmap import mmap
from typing import Any, NamedTuple
from zlib import crc32

import msgpack

PROTOCOL = 1

MAX_BODY = 1 << 20  # one record; longer texts are cut by the client and say so
MAX_BATCH = 128 << 10  # what the transport puts into one message, unless one frame alone is longer
MAX_MESSAGE = 4 << 20  # the agent's socket drops the peer above this; well over any honest batch

_PRIME = 4294967291  # the largest below 2**32
HEAD = struct.Struct("<IIQB")
SEQ = struct.Struct("<Q")


class Kind(IntEnum):
    """What a record is; the number is on disk and must not be reused."""

    LOG = 1
    METRICS = 2
    THROUGHPUT = 3
    PARAMS = 4
    EVENT = 5
    ARTIFACT = 6
    MODULE = 7
    DROPPED = 8
    CLOSE = 9


KINDS = frozenset(int(kind) for kind in Kind)


class Message:
    """First part of every multipart message."""

    HELLO = b"H"
    WELCOME = b"W"
    REFUSE = b"X"
    WHO = b"?"
    BATCH = b"B"
    ACK = b"A"
    BEAT = b"T"
    COMMAND = b"C"
    REPLY = b"R"


class BadFrame(ValueError):
    """Bytes that are not whole frames in sequence."""


class Frame(NamedTuple):
    """Where one record lies in a buffer: `start` is its head, `end` the byte after its body."""

    seq: int
    kind: int
    start: int
    end: int


def seal(seq: int, kind: int, body: bytes) -> bytes:
    """One frame of `body`."""
    return HEAD.pack(len(body), crc32(body, (seq << 4 | kind) % _PRIME), seq, kind) + body


def frames(buffer: bytes | memoryview | mmap, start: int = 0, end: int | None = None) -> Iterator[Frame]:
    """The frames from `start` on, up to the first that is torn, overwritten or absent."""
    limit = len(buffer) if end is None else end
    head, unpack = HEAD.size, HEAD.unpack_from
    while start + head <= limit:
        length, check, seq, kind = unpack(buffer, start)
        stop = start + head + length
        if not length or length > MAX_BODY or stop > limit or kind not in KINDS:
            return
        if crc32(buffer[start + head : stop], (seq << 4 | kind) % _PRIME) != check:
            return
        yield Frame(seq, kind, start, stop)
        start = stop


def batch(data: bytes) -> list[Frame]:
    """The frames of a message's payload. Raises BadFrame unless they fill it whole, in sequence."""
    found = list(frames(data))
    if not found or found[-1].end != len(data):
        raise BadFrame(f"{len(data)} bytes hold {len(found)} whole frames and a remainder")
    first = found[0].seq
    if [frame.seq for frame in found] != list(range(first, first + len(found))):
        raise BadFrame("sequence numbers of a batch are not consecutive")
    return found


def only_logs(data: bytes) -> tuple[int, int] | None:
    """First and last sequence number of a batch of nothing but LOG, the usual one; else None.

    The same checks as `batch`, which then says what is wrong, at a third of its price: the receiver's share
    of a record is spent here.
    """
    unpack, head, size, log = HEAD.unpack_from, HEAD.size, len(data), int(Kind.LOG)
    start, first, expected = 0, 0, 0
    while start + head <= size:
        length, check, seq, kind = unpack(data, start)
        start += head
        stop = start + length
        if kind != log or not 0 < length <= MAX_BODY or stop > size or (seq != expected and expected):
            return None
        if crc32(data[start:stop], (seq << 4 | kind) % _PRIME) != check:
            return None
        first, expected, start = first or seq, seq + 1, stop
    return (first, expected - 1) if first and start == size else None


def body(data: bytes | memoryview, frame: Frame) -> bytes:
    """The packed body of a frame found in `data`."""
    return bytes(data[frame.start + HEAD.size : frame.end])


def pack(value: Any) -> bytes:
    """msgpack, with lone surrogates let through: a log line may hold anything."""
    packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    return packed


def unpack_plain(data: bytes) -> Any:
    """As `unpack`, quicker for what holds no lone surrogates and no odd keys: nearly everything."""
    try:
        return msgpack.unpackb(data)
    except Exception:  # noqa: BLE001  the other one says what is wrong, if anything is
        return unpack(data)


def unpack(data: bytes | memoryview) -> Any:
    """The value of `pack`. Raises ValueError on anything else; never builds objects beyond plain ones."""
    try:
        return msgpack.unpackb(
            data, unicode_errors="surrogatepass", strict_map_key=False, ext_hook=_refuse, timestamp=1
        )
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise ValueError(f"not a message: {error or type(error).__name__}") from error


def _refuse(code: int, _data: bytes) -> Any:
    raise ValueError(f"extension type {code}")
