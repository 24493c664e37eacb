"""One value of sysfs, or None.

Separate because a driver may refuse, be gone or tell half a value at any of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOST = 1 << 16  # bytes; the longest file read here, a KFD node's properties, holds about two thousand
_NUMBER = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def data(path: Path) -> bytes | None:
    """What the file holds; None where it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe there would hold us
    except (OSError, ValueError):
        return None
    try:
        return os.read(handle, _MOST)
    except OSError:
        return None
    finally:
        os.close(handle)


def text(path: Path) -> str | None:
    """The same as text without its end of line; None where there is nothing in it."""
    found = data(path)
    return (found.decode("utf-8", "replace").strip() or None) if found is not None else None


def number(path: Path) -> int | None:
    """A whole number in decimal digits; anything else is None."""
    found = text(path)
    return int(found) if found and _NUMBER.fullmatch(found) else None
