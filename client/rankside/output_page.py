"""How far a capture's bytes are recorded and passed on: a mapped page that outlives whoever reads them.

Separate because the rank, its helper and the helper's successor share it. A line goes into the spool and the
position onto the page, and a SIGKILL may come in between: so the position is written first, with the number
that the line's record is to have, and confirmed afterwards. A successor that finds no confirmation asks the
spool whether that record is there.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

_SLOT = struct.Struct("<QQQQ")  # number, sequence number of the record, two positions
_CHECK = struct.Struct("<I")
_SLOTS = (0, 64)
_CONFIRMED = 128
_PASSED = (136, 144)
_SPOOL, _SPOOL_SIZE = 256, 3800
_SIZE = 4096
_WORD = struct.Struct("<Q")


class Position(NamedTuple):
    """`at`: bytes recorded of each stream, once the record `seq` is in the spool."""

    number: int
    seq: int
    at: tuple[int, int]


class OutputPage:
    """One capture's page."""

    def __init__(self, path: Path, create: bool = False) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        try:
            if create:
                os.posix_fallocate(fd, 0, _SIZE)  # never sparse: a full disk would be SIGBUS
            self._map = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)
        self._number = max((slot.number for slot in self._found()), default=0)

    def intend(self, seq: int, at: tuple[int, int]) -> None:
        """The record `seq` is about to be written; with it, all up to `at` is recorded."""
        self._number += 1
        slot = _SLOT.pack(self._number, seq, *at)
        start = _SLOTS[self._number % 2]
        self._map[start : start + _SLOT.size + _CHECK.size] = slot + _CHECK.pack(crc32(slot))

    def confirm(self) -> None:
        """It is written."""
        self._set(_CONFIRMED, self._number)

    def recorded(self, has: Callable[[str, int], bool]) -> tuple[int, int]:
        """How far it is recorded; `has(spool, seq)` is asked where that is not confirmed."""
        slots = sorted(self._found(), reverse=True)
        if not slots:
            return (0, 0)
        newest = slots[0]
        if _WORD.unpack_from(self._map, _CONFIRMED)[0] < newest.number and not has(self.spool, newest.seq):
            return slots[1].at if len(slots) > 1 else (0, 0)
        return newest.at

    def passed(self, stream: int) -> int:
        """Bytes of a stream that are passed on."""
        return int(_WORD.unpack_from(self._map, _PASSED[stream])[0])

    def pass_on(self, stream: int, at: int) -> None:
        """All up to `at` is."""
        self._set(_PASSED[stream], at)

    def _set(self, place: int, value: int) -> None:
        # one copy: `pack_into` clears the word first, and a SIGKILL then would leave 0
        self._map[place : place + _WORD.size] = _WORD.pack(value)

    @property
    def spool(self) -> str:
        """The spool that the records went to last."""
        return self._map[_SPOOL : _SPOOL + _SPOOL_SIZE].rstrip(b"\0").decode("utf-8", "surrogateescape")

    @spool.setter
    def spool(self, folder: str) -> None:
        data = folder.encode("utf-8", "surrogateescape")[:_SPOOL_SIZE]
        self._map[_SPOOL : _SPOOL + _SPOOL_SIZE] = data.ljust(_SPOOL_SIZE, b"\0")

    def close(self) -> None:
        """Let go."""
        self._map.close()

    def _found(self) -> list[Position]:
        found = []
        for start in _SLOTS:
            slot = self._map[start : start + _SLOT.size]
            if _CHECK.unpack_from(self._map, start + _SLOT.size)[0] == crc32(slot):
                number, seq, *at = _SLOT.unpack(slot)
                if number:
                    found.append(Position(number, seq, (at[0], at[1])))
        return found
