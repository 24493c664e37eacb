"""What becomes of a spool's segments when their process leaves before an agent had them all.

Separate from the spool because it happens once, at the end: files are cut to what is in them, and what a full
disk had left in memory alone goes to the disk now, or is counted, since it ends with the process.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from rankside import wire
from rankside.segment import TITLE_SIZE, Segment


class Held:
    """A segment and where its records end.

    No NamedTuple: making one at the exit resets what Python knows of a Ctrl-C that ended the process, and
    its exit status.
    """

    def __init__(self, segment: Segment, end: int) -> None:
        self.segment = segment
        self.end = end


def leave(
    segments: list[Held], next_path: Callable[[], Path], acked: int
) -> tuple[Counter[int], Counter[int]]:
    """Let go of all; `acked` is the last sequence number that an agent has.

    Returns what is lost, by kind, and what was announced in records that are lost themselves. Raises OSError.
    """
    lost: list[Held] = []
    late = False  # a segment got a later name than those behind it have: they are read by name
    for held in segments:
        if held.segment.path is None and not _saved(held, next_path()):
            lost.append(held)
            continue
        late = late or held.segment.path is None
        if held.segment.path is not None:
            _cut(held, next_path() if late else None)
        if held.end > TITLE_SIZE:
            lost.clear()  # a reader sees the gap before this one, and tells of it
    found = _counted(lost, acked)
    for held in segments:
        if held.segment.path is None:
            held.segment.map.close()
    return found


def _saved(held: Held, path: Path) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(held.segment.map[: held.end])
    except OSError:
        path.unlink(missing_ok=True)
        return False
    return True


def _cut(held: Held, renamed: Path | None) -> None:
    segment = held.segment
    assert segment.path is not None
    segment.map.close()  # first: a page behind the end of its file is SIGBUS
    os.truncate(segment.path, held.end)
    if renamed is not None:
        os.rename(segment.path, renamed)


def _counted(lost: list[Held], acked: int) -> tuple[Counter[int], Counter[int]]:
    kinds: Counter[int] = Counter()
    announced: Counter[int] = Counter()
    for kind, body in _bodies(lost, acked):
        if kind == wire.Kind.DROPPED:
            announced.update(
                {int(wire.Kind[name.upper()]): count for name, count in wire.unpack(body)[1].items()}
            )
        elif kind != wire.Kind.CLOSE:  # without it the channel is one that vanished, which is told anyway
            kinds[kind] += 1
    return kinds, announced


def _bodies(lost: list[Held], acked: int) -> Iterator[tuple[int, bytes]]:
    for held in lost:
        data = held.segment.map[: held.end]
        for frame in wire.frames(data, TITLE_SIZE):
            if frame.seq > acked:
                yield frame.kind, wire.body(data, frame)
