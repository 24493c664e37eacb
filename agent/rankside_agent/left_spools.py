"""Spools as they lie on the disk: which are ours, whose each is, in which order they began, what is rubbish.

Separate from the recovery because it only looks at folders: it knows no run and no living channel.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from rankside import wire
from rankside.identity import Hello
from rankside.leftover import Leftover

_UNFINISHED = 60.0  # seconds of our looking on, after which a folder that names no channel is rubbish


class Nameless:
    """Folders that name no channel: their rank is about to do so, or died before it could.

    How old one is we count ourselves. By its time of change a spool that is being made would be old at once
    where the node's clock was set in between, and its rank would lose all it says until it gets another.
    """

    def __init__(self) -> None:
        self._since: dict[Path, float] = {}

    def begin_again(self) -> None:
        """We did not look on: their ranks may have stood still for as long as we did."""
        self._since.clear()

    def look(self, folder: Path, now: float) -> None:
        """Delete the folder, if it has been like this for long and nobody holds it. Raises OSError."""
        if folder not in self._since:
            self._since = {path: at for path, at in self._since.items() if is_nameless(path)}
        if now - self._since.setdefault(folder, now) > _UNFINISHED and not _held(folder):
            discard(folder)


def is_nameless(folder: Path) -> bool:
    """Whether it is there, and does not say whose it is."""
    return folder.exists() and not (folder / "channel").exists()


def _held(folder: Path) -> bool:
    try:
        page = Leftover(folder).take()
    except FileNotFoundError:
        return False
    except ValueError:  # an empty page: locked by us for a moment, so by nobody else
        return False
    if page is not None:
        page.close()
    return page is None


def is_ours(folder: Path) -> bool:
    """A folder, no link, of our own user, that nobody else writes to: else its hello is anybody's."""
    try:
        found = folder.lstat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def hello_in(folder: Path) -> Hello:
    """Whose spool it is. Raises OSError, and ValueError where it is nobody's, or another folder's."""
    path = folder / "channel"
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("channel: no file")
    hello = Hello.unpacked(wire.unpack(path.read_bytes()))
    if hello.channel != folder.name:
        raise ValueError(f"channel: names {hello.channel[:100]!r}")
    return hello


def last_first(hello: Hello) -> int:
    """The last rank first: what it says decides whose metrics count."""
    return -(hello.rank if hello.rank is not None else 0)


def in_order(folders: list[Path]) -> list[Path]:
    """An earlier start first, or they change places as attempts; in each of them the last rank."""
    found = [(*_job_of(folder), folder) for folder in folders]
    begun: dict[str, int] = {}
    for job, at, *_ in found:
        begun[job] = min(at, begun.get(job, at))
    return [folder for *_, folder in sorted(found, key=lambda each: (begun[each[0]], each[0], *each[2:]))]


def _job_of(folder: Path) -> tuple[str, int, int]:
    """The start that a spool is of, when it was made, and its rank's place; nothing where it does not say."""
    try:
        hello = hello_in(folder)
        return hello.job, (folder / "channel").stat().st_mtime_ns, last_first(hello)
    except (OSError, ValueError):
        return "", 0, 0


def discard(folder: Path) -> None:
    """Delete a spool: all it held is in a journal. Only files of a spool, whatever else may lie there."""
    with suppress(OSError):
        for path in [*folder.glob("*.seg"), *(folder / name for name in ("channel", "channel.new", "state"))]:
            path.unlink(missing_ok=True)
        folder.rmdir()
