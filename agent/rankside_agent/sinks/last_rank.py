"""On which node the rank that speaks for an attempt came up, by the place that it took in the run's folder.

Separate because two decisions hang on it, and no journal of this node holds it: what other ranks' words here
are worth, and who tells a tracker how the attempt ended. See attempts.py for the places.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rankside_agent import files


def host_of(exp_root: Path, attempt: int, world_size: int) -> str:
    """The node's name; empty where that rank has not come up, or the folder cannot be read."""
    place = exp_root / "snapshot" / f"attempt-{attempt}" / "ranks" / f"worker-{world_size - 1}.json"
    found = files.read_json(place)
    return str(found.get("host") or "") if isinstance(found, dict) else ""


def is_elsewhere(exp_root: Path, attempt: int, world_size: int, here: Collection[str]) -> bool:
    """Whether it came up on another node than these."""
    host = host_of(exp_root, attempt, world_size)
    return bool(host) and host not in here
