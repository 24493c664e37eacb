"""A capture's folder: two files that the descriptors lead to, whose they are, and who lives.

Separate because three processes meet in it: the rank that writes, the helper that reads, and an agent that
sees to what both left behind. Locks tell who is there, as they do for spools; they end with their holders.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

from rankside import wire
from rankside.file_room import PAGE, free, reserve
from rankside.output_page import OutputPage

ENDING = ".outputs"  # of the folder's name, behind the channel's
STREAMS = ("stdout", "stderr")
AHEAD = 4 << 20  # bytes kept ready for each stream: a print must not meet a full disk

_LOOK_BACK = 64 << 10


class OutputFolder:
    """`path` and what lies there. Everything raises OSError where the disk or a name refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self, told: dict[str, Any]) -> None:
        """The folder with all but the streams' files."""
        self.path.mkdir(parents=True, mode=0o700)
        OutputPage(self.path / "page", create=True).close()
        self.tell(told)

    def tell(self, told: dict[str, Any]) -> None:
        """Whose output it is, and how it is to be recorded."""
        fresh = self.path / "capture.new"
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(wire.pack(told))
        os.rename(fresh, self.path / "capture")

    def told(self) -> dict[str, Any]:
        """The same, read. Raises ValueError where it is nothing of the kind."""
        found = wire.unpack((self.path / "capture").read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"{self.path}: capture: not a mapping")
        return found

    def page(self) -> OutputPage:
        """How far it is read."""
        return OutputPage(self.path / "page")

    def open_to_write(self, stream: int) -> int:
        """The file a descriptor is to lead to. Who inherits it holds its lock: see `unwritten`."""
        path = self.path / STREAMS[stream]
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            reserve(fd, 0, AHEAD)
            free(fd, 0, PAGE)  # where holes cannot be made, the file would grow for ever
            reserve(fd, 0, PAGE)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_to_read(self, stream: int) -> int:
        """The same for its reader. Raises FileNotFoundError where that stream was not captured."""
        return os.open(self.path / STREAMS[stream], os.O_RDWR | os.O_CLOEXEC)

    def last_line(self, stream: int, size: int) -> int:
        """Where the last whole line of the first `size` bytes ends; 0 where none is near."""
        fd = self.open_to_read(stream)
        try:
            start = max(0, size - _LOOK_BACK)
            end = os.pread(fd, size - start, start).rfind(b"\n") + 1
        finally:
            os.close(fd)
        return start + end if end else 0

    def live(self) -> int:
        """Tell that this process lives and writes here, until the descriptor returned is closed."""
        fd = os.open(self.path / "rank", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a POSIX lock: no forked child holds it
        return fd

    def rank_lives(self) -> bool:
        """Whether it does. Not to be asked by the rank itself, whose lock would be lost."""
        try:
            fd = os.open(self.path / "rank", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        finally:
            os.close(fd)
        return False

    def read_alone(self) -> int | None:
        """Become the one reader, for as long as the descriptor is open, here or where it is inherited; None
        where there is one."""
        fd = os.open(self.path / "helper", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def is_read(self) -> bool:
        """Whether somebody reads it."""
        fd = self.read_alone()
        if fd is None:
            return True
        os.close(fd)
        return False

    def note_taken(self, channel: str, last: int) -> None:
        """An agent has the records of a helper that died, up to `last`, and deletes their spool."""
        (self.path / "taken").write_bytes(wire.pack((channel, last)))

    def taken(self, channel: str) -> int | None:
        """What the note says of a channel."""
        try:
            name, last = wire.unpack((self.path / "taken").read_bytes())
        except (OSError, ValueError, TypeError):
            return None
        return int(last) if name == channel else None

    def remove(self) -> None:
        """Delete it: all it held is recorded."""
        shutil.rmtree(self.path, ignore_errors=True)


def behind(fd: int) -> OutputFolder | None:
    """The folder of the capture whose file a descriptor leads to, if it does."""
    try:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.name in STREAMS and path.parent.name.endswith(ENDING):
            return OutputFolder(path.parent) if path.exists() else None
    except OSError:  # a descriptor that is closed
        pass
    return None


def unwritten(fd: int) -> bool:
    """Whether nobody can write to a stream's file any more: each of its writers holds the lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
