"""One TensorBoard event file: whole records appended, its size always known.

Separate from TensorBoard's own writer, which hands events to a thread that dies on a full disk, leaves half
a record behind, opens the file anew for each event, and imports TensorFlow where that is installed.

    record    length u64 | masked crc32c of the length u32 | data | masked crc32c of the data u32
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from rankside_agent.sinks.durable import MOST_BYTES, DurableFile

_LONGEST = 64 << 20  # bytes of one record; a length beyond is damage
_LENGTH = struct.Struct("<Q")
_CHECK = struct.Struct("<I")


def _tables() -> tuple[list[int], list[int]]:
    one = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901  the polynomial, reflected
        one.append(value)
    two = [one[one[v & 255] & 255 ^ v >> 8] ^ one[v & 255] >> 8 for v in range(1 << 16)]
    return one, two


_ONE, _TWO = _tables()


def masked_crc(data: bytes) -> int:
    """The checksum of record files. Two bytes a step, which halves the cost of pure Python."""
    even = len(data) & ~1
    crc, two = 0xFFFFFFFF, _TWO
    for pair in memoryview(data)[:even].cast("H"):  # little-endian, as every machine with such GPUs is
        crc = two[(crc ^ pair) & 0xFFFF] ^ crc >> 16
    if even != len(data):
        crc = _ONE[(crc ^ data[even]) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """One record."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _CHECK.pack(masked_crc(length)), data, _CHECK.pack(masked_crc(data))))


def records(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """(end, data) of the whole records from `start` on, up to the first that is torn. Raises OSError."""
    with path.open("rb") as file:
        file.seek(start)
        while True:
            head = file.read(_LENGTH.size + _CHECK.size)
            if len(head) < _LENGTH.size + _CHECK.size:
                return
            length = _LENGTH.unpack_from(head)[0]
            if length > _LONGEST or _CHECK.unpack_from(head, 8)[0] != masked_crc(head[:8]):
                return
            data, check = file.read(length), file.read(_CHECK.size)
            if len(check) < _CHECK.size or _CHECK.unpack(check)[0] != masked_crc(data):
                return
            start += len(head) + length + _CHECK.size
            yield start, data


class EventFile(DurableFile):
    """A new file, and its only writer. After any error it is to be closed and another begun."""

    def __init__(self, path: Path, header: Iterable[bytes]) -> None:
        """Create with its first records, or not at all. Raises OSError."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        super().__init__(path, fd, 0)
        try:
            for data in header:
                self._take(frame(data))
            self.write()
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def add(self, data: bytes, most: int) -> None:
        """Append a record; it is written with others, when `most` wait."""
        self._take(frame(data))
        if len(self._waiting) >= most or self._waiting_bytes >= MOST_BYTES:
            self.write()
