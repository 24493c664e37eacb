"""A file of ours that grows by whole records, and is still the one that readers find.

Separate because every sink that writes files needs the same care, whatever its records look like: no half
a record before whole ones, a full disk noticed, a deleted or replaced file too.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

MOST_BYTES = 1 << 20  # written at once, however many records may wait


class DurableFile:
    """The only writer of a file. After any error it is to be closed, and another made."""

    def __init__(self, path: Path, fd: int, size: int) -> None:
        """`fd` is the file's, and stands at `size`, where its last whole record ends."""
        self.path = path
        self.size = size  # of what the kernel has
        self._fd = fd
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def write(self) -> None:
        """Hand what waits to the kernel. Raises OSError; the file then ends with its last whole record."""
        if self._waiting:
            append(self._fd, b"".join(self._waiting), self.size)
            self.size += self._waiting_bytes
            self._waiting.clear()
            self._waiting_bytes = 0

    def flush(self) -> None:
        """Bring all to the disk. Raises OSError, also when the file was deleted or replaced by others."""
        self.write()
        try:
            os.fdatasync(self._fd)  # file servers tell of a full disk or quota only here
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot do it at all
                raise
        mine, there = os.fstat(self._fd), os.stat(self.path)
        if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
            raise OSError(errno.ESTALE, "replaced beneath its writer", str(self.path))

    def close(self) -> None:
        """Let go of the file, without what waits."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, framed: bytes) -> None:
        self._waiting.append(framed)
        self._waiting_bytes += len(framed)


def append(fd: int, data: bytes, size: int) -> None:
    """All of `data` behind the first `size` bytes, or none of it. Raises OSError."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        os.ftruncate(fd, size)  # a reader must not find half a record before whole ones
        raise
