"""A run's log folder of any size, as an agent would have left it, made quickly: live files and rotated ones.

Separate because no agent wrote these: only the layout of names and lines is the agent's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from samples import TEXT

RANKS = 8
_NODE_PARTS = 4  # files of the node log while a rank fills one: shorter lines, but of all ranks
_AT_ONCE = 2 * RANKS + _NODE_PARTS
_BEGAN = datetime(2026, 1, 2, 3, 4, 5)
_SECONDS = 50  # distinct times in one file
_WARNINGS = 100  # of each rank


def write(root: Path, size: int, rotation: int = 10_000_000) -> int:
    """About `size` bytes below `root`/logs/pretrain; returns how many."""
    folder = root / "logs" / "pretrain"
    written = sum(_warnings(folder / f"rank-{rank}", rank) for rank in range(RANKS))
    for hour in reversed(range(max(1, size // (_AT_ONCE * rotation)))):  # the last, hour 0, is live
        for rank in range(RANKS):
            for name in ("debug", "info"):
                path = _named(folder / f"rank-{rank}" / f"{name}.log", hour, 0)
                written += _fill(path, rotation, _at(hour, 0), partial(_level_line, rank))
        for part in reversed(range(_NODE_PARTS)):
            path = _named(folder / "node-host.log", hour, part)
            written += _fill(path, rotation, _at(hour, part), _node_lines)
    return written


def _node_lines(when: datetime) -> str:
    return "".join(_node_line(when, rank) for rank in range(RANKS))


def _at(hour: int, part: int) -> datetime:
    return _BEGAN - timedelta(hours=hour, minutes=15 * part)


def _named(path: Path, hour: int, part: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if hour == part == 0:
        return path
    ended = _at(hour, part) + timedelta(seconds=_SECONDS)
    return path.with_name(f"{path.stem}.{ended:%Y-%m-%d_%H-%M-%S_%f}.log")


def _fill(path: Path, size: int, begins: datetime, lines: Callable[[datetime], str]) -> int:
    with path.open("wb") as out:
        for second in range(_SECONDS):
            data = lines(begins + timedelta(seconds=second)).encode()
            out.write(data * (size // _SECONDS // len(data)))
        return out.tell()


def _warnings(folder: Path, rank: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    times = [_BEGAN - timedelta(minutes=number) for number in reversed(range(_WARNINGS))]
    lines = [f"{_head(when, rank, 'WARNING')}rank {rank} is slow\n" for when in times]
    return (folder / "warning.log").write_text("".join(lines), encoding="utf-8")


def _head(when: datetime, rank: int, level: str = "INFO") -> str:
    """How a level file's line begins, up to the text."""
    who = f"[{when:%Y%m%d %H:%M:%S}][user/team][pretrain   ][ip-10.0.0.7][rank-{rank}/{RANKS}]"
    return f"{who}{f'[{level}]': <11}[-----------train.py:215] : "


def _level_line(rank: int, when: datetime) -> str:
    return f"{_head(when, rank)}{TEXT}, rank {rank}\n"


def _node_line(when: datetime, rank: int) -> str:
    who = f"[{when:%Y%m%d %H:%M:%S}.{rank * 1000:06d}][rank-{rank}/{RANKS}][INFO]     "
    return f"{who}[-----------train.py:215] : {TEXT}, rank {rank}\n"
