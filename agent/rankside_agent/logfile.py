"""One log file: append whole records or nothing, notice when it is gone, rotate by renaming.

Separate from the writer of a run's files because everything that a disk can do to a file is handled here.
"""

from __future__ import annotations

import errno
import glob
import gzip
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from rankside_agent import files

# Nonblocking: a pipe that nobody reads would be waited for, and with it all files of the run
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Mark(NamedTuple):
    """What a checkpoint remembers of a file: which one it was, how long, how many records it got."""

    inode: int
    size: int
    records: int


class LogFile:
    """An open file and the mark of its whole records. Methods raise OSError and leave no half record."""

    def __init__(self, path: Path, mark: Mark | None = None, allowed: tuple[str, ...] = ()) -> None:
        """`allowed`: folders below which it must really lie; none: anywhere."""
        self.path = path
        self._allowed = allowed
        self.mark = mark or Mark(0, 0, 0)
        self._fd = -1
        self._links = 0  # of the open file
        self._half: tuple[int, int] | None = None  # inode and whole size, where a cut failed

    def ready(self) -> bool:
        """Open, the path still leading to our file; False where it had to be created or taken anew.

        A new inode must be in a checkpoint before the first record is written to it: only then can a crash
        be told from a stranger's file.
        """
        if self._fd >= 0 and self._same():
            return True
        self.close()
        outside = files.outside(self.path, self._allowed)
        if outside:
            raise PermissionError(errno.EACCES, outside, str(self.path))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = _opened(self.path)
        try:
            found = self._without_half()
        except OSError:
            self.close()
            raise
        known = self._is_ours(found)
        self._links = found.st_nlink
        self.mark = Mark(found.st_ino, found.st_size, self.mark.records)
        return known

    def append(self, data: bytes, records: int) -> None:
        """Whole records at the end. After an error the file is cut back to where it was."""
        before = -1
        try:
            before = os.fstat(self._fd).st_size  # not our own count: copytruncate may just have shortened it
            written = 0
            while written < len(data):
                took = os.write(self._fd, data[written:] if written else data)
                if not took:
                    raise OSError(errno.ENOSPC, "nothing written", str(self.path))
                written += took
            if self._links and not os.fstat(self._fd).st_nlink:  # since we looked: nobody would ever read it
                raise FileNotFoundError(errno.ENOENT, "deleted while it was written", str(self.path))
        except OSError:
            self._cut(before)
            raise
        self.mark = Mark(self.mark.inode, before + len(data), self.mark.records + records)

    def cut_to_mark(self) -> None:
        """After a crash: take away what was written behind the checkpoint. A stranger's file stays."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return
        if found.st_ino == self.mark.inode and found.st_size > self.mark.size:
            os.truncate(self.path, self.mark.size)

    def close(self) -> None:
        """Let go of the file; it is opened again when needed."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.EIO, errno.ENOSPC, errno.EDQUOT):
                    raise

    def _same(self) -> bool:
        try:
            return self._is_ours(os.stat(self.path))
        except FileNotFoundError:
            return False

    def _is_ours(self, found: os.stat_result) -> bool:
        """A shorter file is another one: file systems use the inode of a deleted file again at once, and what
        somebody truncated needs a checkpoint as a new file does."""
        return found.st_ino == self.mark.inode and found.st_size >= self.mark.size

    def _cut(self, size: int) -> None:
        try:
            if size >= 0:
                os.ftruncate(self._fd, size)
        except OSError:  # a device, or a handle that became stale: cut when the path leads to the file again
            self._half = self.mark.inode, size
        finally:
            self.close()

    def _without_half(self) -> os.stat_result:
        found = os.fstat(self._fd)
        if self._half is not None and found.st_ino == self._half[0] and found.st_size > self._half[1]:
            os.ftruncate(self._fd, self._half[1])
            found = os.fstat(self._fd)
        self._half = None
        return found


def _opened(path: Path) -> int:
    """Raises OSError, too, for what a write could wait at. A link to /dev/null is somebody's wish."""
    try:
        fd = os.open(path, _FLAGS, 0o644)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            error.strerror = "is no regular file"
        raise
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        os.close(fd)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return fd


class Rename(NamedTuple):
    """A rotation that a checkpoint announced; done again after a crash, it does nothing twice."""

    source: Path
    target: Path
    inode: int

    def perform(self) -> None:
        """Rename, if the file is still the one that was meant."""
        try:
            if os.stat(self.source).st_ino == self.inode and not self.target.exists():
                os.rename(self.source, self.target)
        except FileNotFoundError:
            return


class Rotation:
    """Names for rotated files, and what becomes of them."""

    def __init__(
        self, limit: int, keep: int | None, compress: bool, now: Callable[[], datetime] = datetime.now
    ) -> None:
        self.limit = limit
        self._keep = keep
        self._compress = compress
        self._now = now  # local time, as in the lines and in loguru's names
        self._tidying = threading.Lock()
        self._latest: dict[Path, datetime] = {}

    def due(self, file: LogFile, more: int) -> bool:
        """Whether `more` bytes go to a new file."""
        return file.mark.size > 0 and file.mark.size + more > self.limit

    def plan(self, file: LogFile) -> Rename:
        """The next name: `debug.2026-12-02_07-18-53_159741.log`, later in order than all before it,
        whatever the clock does."""
        path = file.path
        latest = self._latest.get(path) or _newest_stamp(path)
        stamp = self._now()
        if latest is not None and stamp <= latest:
            stamp = latest + timedelta(microseconds=1)
        self._latest[path] = stamp
        target = path.with_name(f"{path.stem}.{stamp:{_STAMP}}{path.suffix}")
        return Rename(path, target, file.mark.inode)

    def afterwards(self, done: Rename) -> None:
        """Compress and thin out, beside the writing."""
        if self._compress or self._keep is not None:
            threading.Thread(target=self._tidy, args=(done,), name="rankside-rotated", daemon=True).start()

    @staticmethod
    def heal(path: Path) -> None:
        """A crash between the two last steps of compressing leaves a file there twice. Raises OSError."""
        for found in rotated(path):
            if found.suffix == ".gz":  # whole, else it would not have this name
                found.with_suffix("").unlink(missing_ok=True)

    def _tidy(self, done: Rename) -> None:
        with self._tidying:  # one at a time for a run: it must not take the node's cores
            try:
                siblings = rotated(done.source)
                keep = len(siblings) if self._keep is None else min(self._keep, len(siblings))
                for old in siblings[: len(siblings) - keep]:
                    old.unlink(missing_ok=True)
                for plain in siblings[len(siblings) - keep :]:
                    if self._compress and plain.suffix != ".gz":  # this one, and what a crash left
                        _gzip(plain)
            except OSError:
                time.sleep(1.0)  # a full disk: the files stay as they are, and a later rotation tries again


_STAMP = "%Y-%m-%d_%H-%M-%S_%f"


def rotated(path: Path) -> list[Path]:
    """The rotated siblings of a log file, oldest first."""
    siblings = path.parent.glob(f"{glob.escape(path.stem)}.*")
    names = [found for found in siblings if _stamp_of(path, found) is not None]
    return sorted(names, key=lambda found: str(_stamp_of(path, found)))


def _stamp_of(path: Path, sibling: Path) -> datetime | None:
    middle = sibling.name.removesuffix(".gz").removesuffix(path.suffix).removeprefix(f"{path.stem}.")
    try:
        return datetime.strptime(middle, _STAMP)
    except ValueError:
        return None


def _newest_stamp(path: Path) -> datetime | None:
    found = rotated(path)
    return _stamp_of(path, found[-1]) if found else None


def _gzip(path: Path) -> None:
    packed = path.with_name(f".{path.name}.gz.new")
    try:
        with open(path, "rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        shutil.copystat(path, packed)
        os.rename(packed, path.with_name(f"{path.name}.gz"))
        path.unlink()
    finally:
        packed.unlink(missing_ok=True)
