"""Room in a file: kept ready beyond its end, and given back where it was read.

Separate because Python has no name for it: both are modes of fallocate(2), which leave the file's size alone.
"""

from __future__ import annotations

import ctypes
import errno
import os

PAGE = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def reserve(fd: int, start: int, size: int) -> None:
    """Room that is there before it is written to, beyond the file's end. Raises OSError."""
    _fallocate(fd, _KEEP_SIZE, start, size)


def free(fd: int, start: int, end: int) -> None:
    """Give back what was read, whole pages of it; the offsets of the rest stay. Raises OSError."""
    start, end = -(-start // PAGE) * PAGE, end // PAGE * PAGE
    if end > start:
        _fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, start, end - start)


def has_room(fd: int, size: int) -> bool:
    """Whether the file's disk has so much left, beside what is reserved."""
    found = os.fstatvfs(fd)
    return found.f_bavail * found.f_frsize >= size


def _fallocate(fd: int, mode: int, start: int, size: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    while call(fd, mode, start, size):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, f"fallocate: {os.strerror(number)}")
