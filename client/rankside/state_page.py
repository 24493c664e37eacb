"""The page a channel shares with whoever comes after its process: the lock, what was dropped, the owner.

Separate because it is the only thing that two processes may look at while the channel is alive.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from pathlib import Path

from rankside import wire

_CENSUS = struct.Struct("<16Q16Q")  # by kind: dropped, of these announced
_OWNER = 512  # place of the owning agent's id on the page
_OWNER_SIZE = 64
_ALONE = struct.Struct("<Q")  # the last record that is in the process's own memory alone, and its place
_ALONE_AT = 1024
_STATE_SIZE = 4096


class StatePage:
    """Its POSIX lock ends with the process, however that dies.

    A POSIX lock and no flock: a forked child does not inherit it, so a child that lives on does not make
    its parent look alive. It is seen across pid namespaces, where pids say nothing.
    """

    def __init__(self, path: Path, create: bool = False) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if create:
                os.posix_fallocate(self._fd, 0, _STATE_SIZE)  # never sparse: a full disk would be SIGBUS
            self._map = mmap.mmap(self._fd, _STATE_SIZE)
        except BaseException:
            os.close(self._fd)
            raise

    @classmethod
    def taken(cls, path: Path) -> StatePage | None:
        """The page of a process that is gone; None while it lives. Raises OSError."""
        try:
            return cls(path)
        except (BlockingIOError, PermissionError):  # what lockf raises while another holds it
            return None

    def census(self, dropped: list[int], announced: list[int]) -> None:
        """Note what was dropped, and what of it has been said."""
        # one copy over the old figures: `pack_into` clears them first, and a SIGKILL then would leave none
        self._map[: _CENSUS.size] = _CENSUS.pack(*dropped, *announced)

    def unannounced(self) -> dict[str, int]:
        """What was dropped and not said yet, by kind."""
        counts = _CENSUS.unpack_from(self._map)
        return difference(list(counts[:16]), list(counts[16:]))

    def announce(self) -> None:
        """All that was dropped has been said."""
        counts = _CENSUS.unpack_from(self._map)
        self.census(list(counts[:16]), list(counts[:16]))

    def in_memory(self, seq: int) -> None:
        """Note that `seq` is the newest record that no file holds; 0 where there is none any more."""
        self._map[_ALONE_AT : _ALONE_AT + _ALONE.size] = _ALONE.pack(seq)  # as above

    def last_in_memory(self) -> int:
        """That record: what nobody had of those before it went with the process."""
        return int(_ALONE.unpack_from(self._map, _ALONE_AT)[0])

    def own(self, agent: str) -> None:
        """Note the agent whose journal holds this channel's beginning."""
        self._map[_OWNER : _OWNER + _OWNER_SIZE] = agent.encode()[:_OWNER_SIZE].ljust(_OWNER_SIZE, b"\0")

    def owner(self) -> str:
        """That agent's id, or nothing."""
        return self._map[_OWNER : _OWNER + _OWNER_SIZE].rstrip(b"\0").decode("ascii", "replace")

    def close(self) -> None:
        """Let go of the page and the lock."""
        self._map.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def difference(dropped: list[int], announced: list[int]) -> dict[str, int]:
    """By kind, what the first has more than the second."""
    return {
        kind.name.lower(): dropped[kind] - announced[kind]
        for kind in wire.Kind
        if dropped[kind] > announced[kind]
    }
