"""What lies in one module's folder: node logs, rank folders, the launcher's files; no log is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rankside_agent.tail import names
from rankside_agent.tail.names import LIVE
from rankside_agent.tail.record import LEVELS, number

FLOORS = {name: LEVELS[name.upper()] for name in ("debug", "info", "warning", "error")}
RANK, NODE, MASTER = "rank-", "node-", "master-"


class Folder(NamedTuple):
    """A folder of logs; empty while a run starts."""

    path: Path
    label: str  # below the logs: "pretrain", or "attempt-2/pretrain"
    nodes: tuple[str, ...] = ()  # stems of node logs
    ranks: tuple[str, ...] = ()  # labels of ranks that have a folder
    masters: tuple[str, ...] = ()  # stems of the launcher's level files
    has_node: bool = False  # whether a node log has anything in it

    def __bool__(self) -> bool:
        return bool(self.nodes or self.ranks or self.masters)

    @property
    def module(self) -> str:
        """The module's name."""
        return self.path.name


def look(path: Path, label: str) -> Folder:
    """Read the folder. Raises OSError."""
    nodes, ranks, masters = set(), set(), set()
    has_node = False
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith(RANK) and entry.is_dir():
                ranks.add(entry.name.removeprefix(RANK))
            elif (name := names.split(entry.name)) is None:
                continue
            elif name.stem.startswith(NODE):
                nodes.add(name.stem)
                has_node = has_node or name.order != LIVE or _size(entry) > 0
            elif name.stem.startswith(MASTER) and name.stem.removeprefix(MASTER) in FLOORS:
                masters.add(name.stem)
    in_order = tuple(sorted(ranks, key=lambda rank: (number(rank) is None, number(rank) or 0, rank)))
    return Folder(path, label, tuple(sorted(nodes)), in_order, tuple(sorted(masters)), has_node)


def stems(path: Path) -> set[str]:
    """The logs in a rank's folder. Raises OSError."""
    return {name.stem for name in map(names.split, os.listdir(path)) if name and name.stem in FLOORS}


def level_file(present: set[str], level: int, *, lazy: bool) -> str | None:
    """Of a rank's files the one that holds all of a level and the least else.

    `lazy`: files come into being with their first record, so a missing warning.log means no warning yet.
    Where that is not known a lower file is read through, which is right too, and slower.
    """
    best = max((name for name in FLOORS if FLOORS[name] <= level), key=FLOORS.__getitem__, default="debug")
    if best in present:
        return best
    lower = [name for name in present if FLOORS[name] < FLOORS[best]]
    if lower:
        return None if lazy or len(present) > 1 else lower[0]
    return min(present, key=FLOORS.__getitem__, default=None)


def subfolders(path: Path) -> Iterator[Path]:
    """The folders in a folder, by name. Raises OSError."""
    with os.scandir(path) as entries:
        found = sorted(entry.name for entry in entries if entry.is_dir())
    return (path / name for name in found)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return 0
