"""One mapped file of a spool: its room is really there before a record is written to it.

Separate from the spool because a reader after the writer's death must know the form, and nothing else.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from zlib import crc32

from rankside import wire

_MAGIC = b"RSSPOOL1"
_TITLE = struct.Struct("<8sQI")  # magic, first sequence number, crc32 of the two
TITLE_SIZE = 64


class Segment:
    """One mapped file. `end` and `last` are final once the writer has gone on to the next."""

    def __init__(self, path: Path | None, mapped: mmap.mmap, first: int) -> None:
        self.path, self.map = path, mapped
        self.start(path, first)

    def start(self, path: Path | None, first: int) -> None:
        """Begin (again) with sequence number `first`; older frames behind it no longer continue it."""
        self.path, self.first, self.last, self.end = path, first, first - 1, TITLE_SIZE
        head = struct.pack("<8sQ", _MAGIC, first)
        self.map[: _TITLE.size] = head + struct.pack("<I", crc32(head))
        self.map[TITLE_SIZE : TITLE_SIZE + wire.HEAD.size] = bytes(wire.HEAD.size)

    def discard(self) -> None:
        """Delete the file and let go of its memory."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        self.map.close()


def first_of(data: bytes) -> int | None:
    """The first sequence number of a segment file's content, or None where it is none."""
    if len(data) < TITLE_SIZE:
        return None
    magic, first, check = _TITLE.unpack_from(data)
    return int(first) if magic == _MAGIC and crc32(data[:16]) == check else None


def reserved(path: Path, size: int) -> mmap.mmap:
    """A new file of `size` bytes that are really there: a hole in a full file system is SIGBUS later."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        populate = getattr(mmap, "MAP_POPULATE", 0)  # the page faults now, and not one by one in the caller
        return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | populate)
    finally:
        os.close(fd)
