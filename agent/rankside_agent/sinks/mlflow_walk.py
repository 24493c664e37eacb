"""The files below a folder, a bounded number of them, some at a time.

Separate because a training may name a folder of millions of files, and neither the points nor the sign of
life may wait until they are looked through.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

MOST_FILES = 10_000  # of a folder that is an artifact; the first by name
MOST_BYTES = 100 << 30  # of them together
MOST_COUNTED = 1_000_000  # of those beyond, so that somebody can be told how many there are
SLICE = 200  # files
_COUNTED_AT_ONCE = 10_000


class Walk:
    """Through one folder. `over` once there is nothing more; `beyond` is how many were left out."""

    def __init__(self, folder: Path) -> None:
        self.over = False
        self.beyond = 0
        self._paths = files_below(folder)
        self._files = self._bytes = 0

    def slice(self) -> Iterator[Path]:
        """The next files, if any are within the limits."""
        if self.beyond:
            self._count()
            return
        paths = list(islice(self._paths, SLICE))
        self.over = len(paths) < SLICE
        for number, path in enumerate(paths):
            size = 0
            with suppress(OSError):
                size = path.stat().st_size
            if self._files >= MOST_FILES or self._bytes + size > MOST_BYTES:
                self.beyond = len(paths) - number
                return
            self._files += 1
            self._bytes += size
            yield path

    def _count(self) -> None:
        seen = sum(1 for _ in islice(self._paths, _COUNTED_AT_ONCE))
        self.beyond += seen
        self.over = seen < _COUNTED_AT_ONCE or self.beyond >= MOST_COUNTED


def files_below(folder: Path, skip: frozenset[str] = frozenset(), hidden: bool = True) -> Iterator[Path]:
    """The plain files below a folder, sorted; no link is followed. `skip` names folders left out."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in set(folders) - skip if hidden or not each.startswith("."))
        for name in sorted(names):
            path = Path(root) / name
            if (hidden or not name.startswith(".")) and _is_plain(path):
                yield path


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
