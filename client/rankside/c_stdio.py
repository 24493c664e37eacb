"""The C library's own buffer of stdout: what C and C++ print lies there until it is flushed.

Separate because it is reached through ctypes alone.
"""

from __future__ import annotations

import ctypes

_LINES = 1  # _IOLBF, the same for glibc and musl


def flush() -> None:
    """Send what C code has printed so far to where descriptor 1 leads now."""
    ctypes.CDLL(None).fflush(None)


def by_lines() -> None:
    """Flush stdout at each line's end from here on, as on a terminal; for a file, C fills 4 KiB first."""
    library = ctypes.CDLL(None)
    stdout = ctypes.c_void_p.in_dll(library, "stdout")
    library.setvbuf(stdout, None, ctypes.c_int(_LINES), ctypes.c_size_t(0))
