"""One file of a log, plain or gzipped, read at any offset; nobody else knows of packing and handles."""

from __future__ import annotations

import gzip
import os
import stat
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

DAMAGES = (EOFError, gzip.BadGzipFile, zlib.error)

_UNPACKED = 1 << 20  # bytes unpacked at once
_IN_MEMORY = 1 << 25  # an unpacked file of the usual 10 MB stays in memory, a larger one goes to disk


class Piece(Protocol):
    """Bytes at offsets."""

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes, fewer at the end."""

    def size(self) -> int:
        """The bytes there are now."""

    def close(self) -> None:
        """Give the handle back."""


class Plain:
    """A plain file, followed by its handle: it may be renamed or deleted meanwhile."""

    def __init__(self, path: Path) -> None:
        # a pipe or a terminal under a log's name must neither block us nor become ours
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(self._fd)
            raise OSError(f"{path} is no regular file")
        # no other file gets this number while our handle is open, so it may be compared
        self.identity = (found.st_dev, found.st_ino)

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._fd, count, offset)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)


def unpack_beginning(path: Path, count: int) -> bytes:
    """The first bytes of a gzipped file, without unpacking the rest; b"" when it is damaged there."""
    with gzip.open(path) as packed:
        try:
            return packed.read(count)
        except DAMAGES:
            return b""


def packed_size(path: Path) -> int:
    """How large a gzipped file was, modulo 2**32: its last four bytes say so."""
    with open(path, "rb") as packed:
        packed.seek(max(0, packed.seek(0, os.SEEK_END) - 4))
        return int.from_bytes(packed.read(4), "little")


class Packed:
    """A gzipped file, unpacked once into a nameless temporary file."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._size = 0
        with gzip.open(path) as packed:
            self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by close()
            try:
                while data := packed.read(_UNPACKED):
                    self._file.write(data)
                    self._size += len(data)
            except DAMAGES:
                say(f"{path} is damaged: only its first {self._size} bytes can be unpacked")

    def read(self, offset: int, count: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(count)

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._file.close()
