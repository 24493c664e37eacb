"""Bring a file of ours to the disk, and see that it is still the one that readers find.

Separate because every tracker that writes files needs the same two looks, in this order.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def sync(fd: int, path: Path) -> None:
    """Raises OSError, also when the file was deleted or replaced by others."""
    try:
        os.fdatasync(fd)  # file servers tell of a full disk or quota only here
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot do it at all
            raise
    mine, there = os.fstat(fd), os.stat(path)
    if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino):
        raise OSError(errno.ESTALE, "replaced beneath its writer", str(path))
