"""A rank's own account of what it logged, which the check holds rankside's files against.

Separate from both sides of it: it is written inside the training and read outside.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One log record: the number of its level, the first line of its text, whether a traceback follows."""

    level: int
    text: str
    traceback: bool


class Point(NamedTuple):
    """One number of one step."""

    step: int
    value: float


@dataclass
class Account:
    """All that one rank logged and measured, in order."""

    rank: int
    world_size: int
    exp_root: str = ""
    lines: list[Line] = field(default_factory=list)
    points: dict[str, list[Point]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """As one file of the rank, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"rank-{self.rank}.part"
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        os.replace(part, folder / f"rank-{self.rank}.json")


def load(path: Path) -> Account:
    """The account in one file."""
    found = json.loads(path.read_text(encoding="utf-8"))
    lines = [Line(*line) for line in found.pop("lines")]
    points = {tag: [Point(*point) for point in points] for tag, points in found.pop("points").items()}
    return Account(**found, lines=lines, points=points)


def load_all(folder: Path) -> list[Account]:
    """Every rank's account, by rank."""
    return sorted(map(load, folder.glob("rank-*.json")), key=lambda account: account.rank)
