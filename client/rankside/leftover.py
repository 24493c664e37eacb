"""A spool from outside: what an agent, or anybody, reads once the process that wrote it is gone.

Separate from the spool because the writer never needs it, and it trusts nothing it reads.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from rankside import wire
from rankside.segment import TITLE_SIZE, first_of
from rankside.state_page import StatePage


class Leftover:
    """A spool whose process may be gone, as the agent sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hello(self) -> bytes:
        """Whose it is. Raises OSError where the process died before it had said so."""
        return (self.folder / "channel").read_bytes()

    def take(self) -> StatePage | None:
        """The state page, locked, where the process is gone; None while it lives. Raises OSError."""
        return StatePage.taken(self.folder / "state")

    def frames(self, after: int) -> Iterator[tuple[int, int, bytes]]:
        """(sequence, kind, frame bytes) of every whole record after `after`, in order."""
        for path in sorted(self.folder.glob("*.seg")):
            data = path.read_bytes()
            expected = first_of(data)
            if expected is None:
                continue
            for frame in wire.frames(data, TITLE_SIZE):
                if frame.seq != expected:  # what follows is of this segment's earlier life
                    break
                expected += 1
                if frame.seq > after:
                    after = frame.seq
                    yield frame.seq, frame.kind, data[frame.start : frame.end]

    def remove(self) -> None:
        """Delete it: all it held is in a journal."""
        shutil.rmtree(self.folder, ignore_errors=True)
