"""A W&B transaction log: whole records appended, every write seen to have happened.

Separate from W&B's own writer, which reports success on a full disk and writes nothing more even when there
is room again, loses what it holds when its process is killed, and begins another file each time. Its readers
(`wandb sync`, `wandb leet`) take the file for one of theirs: the format is LevelDB's log format.

    file      ":W&B" | 0xBEE1 u16 | version u8, then blocks of 32 KiB
    block     chunks, none of which begins in its last 6 bytes
    chunk     crc32 of type and data u32 | length u16 | type u8 (whole, first, middle, last) | data
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rankside_agent.sinks.durable import MOST_BYTES, DurableFile

HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
_BLOCK = 32 << 10
_CHUNK = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = [zlib.crc32(bytes([kind])) for kind in range(5)]


def frame(data: bytes, at: int) -> bytes:
    """A record as it stands at the place `at` of a file."""
    parts: list[bytes | memoryview] = []
    view, first = memoryview(data), True
    while first or view:
        room = _BLOCK - at % _BLOCK
        if room < _CHUNK.size:
            parts.append(bytes(room))
            at += room
            room = _BLOCK
        piece, view = view[: room - _CHUNK.size], view[room - _CHUNK.size :]
        kind = (_MIDDLE if view else _LAST) if not first else (_FIRST if view else _WHOLE)
        parts += (_CHUNK.pack(zlib.crc32(piece, _SEEDS[kind]), len(piece), kind), piece)
        at += _CHUNK.size + len(piece)
        first = False
    return b"".join(parts)


def records(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """(end, data) of the whole records from the end of another one on, up to the first that is torn.

    Raises OSError. Nothing where the file is no transaction log.
    """
    with path.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            return
        at = max(start, len(HEADER))
        file.seek(at)
        parts: list[bytes] = []
        while (chunk := _chunk(file, at)) is not None:
            at, kind, data = chunk
            if (kind in (_WHOLE, _FIRST)) == bool(parts):
                return  # a record without its end, or an end without its beginning
            parts.append(data)
            if kind in (_WHOLE, _LAST):
                yield at, b"".join(parts)
                parts.clear()


def _chunk(file: BinaryIO, at: int) -> tuple[int, int, bytes] | None:
    room = _BLOCK - at % _BLOCK
    if room < _CHUNK.size:
        file.seek(room, os.SEEK_CUR)
        at += room
    head = file.read(_CHUNK.size)
    if len(head) < _CHUNK.size:
        return None
    check, length, kind = _CHUNK.unpack(head)
    data = file.read(length)
    if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or len(data) < length:
        return None
    if zlib.crc32(data, _SEEDS[kind]) != check:
        return None
    return at + _CHUNK.size + length, kind, data


class TransactionLog(DurableFile):
    """The only writer of a file. After any error it is to be closed, and opened again where it ends whole."""

    def __init__(self, path: Path, size: int) -> None:
        """Append behind `size`, where the last whole record ends; 0 begins the file. Raises OSError."""
        super().__init__(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644), size)
        try:
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)
        except OSError:
            self.close()
            raise
        if not size:
            self._take(HEADER)

    def add(self, data: bytes) -> None:
        """Append a record; it is written with others. Raises OSError."""
        self._take(frame(data, self.size + self._waiting_bytes))
        if self._waiting_bytes >= MOST_BYTES:
            self.write()
