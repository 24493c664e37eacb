"""A run's log folder of any size, as an agent would have left it, made quickly: live files and rotated ones.

Separate because it only borrows the agent's layout of a line; no agent wrote these.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from samples import TEXT

from rankside_agent.lines import Form, Locations

RANKS = 8
_NODE_PARTS = 4  # files of the node log while a rank fills one: shorter lines, but of all ranks
_AT_ONCE = 2 * RANKS + _NODE_PARTS
_BEGAN = datetime(2026, 1, 2, 3, 4, 5)
_SECONDS = 50  # distinct times in one file
_WARNINGS = 100  # of each rank


def write(root: Path, size: int, rotation: int = 10_000_000) -> int:
    """About `size` bytes below `root`/logs/pretrain; returns how many."""
    folder = root / "logs" / "pretrain"
    forms = [_form(rank) for rank in range(RANKS)]
    written = sum(_warnings(folder / f"rank-{rank}", form) for rank, form in enumerate(forms))
    for hour in reversed(range(max(1, size // (_AT_ONCE * rotation)))):  # the last, hour 0, is live
        for rank, form in enumerate(forms):
            for name in ("debug", "info"):
                path = _named(folder / f"rank-{rank}" / f"{name}.log", hour, 0)
                written += _fill(path, rotation, _at(hour, 0), [_level_line(form)])
        layouts = [_node_line(form, number) for number, form in enumerate(forms)]
        for part in reversed(range(_NODE_PARTS)):
            path = _named(folder / "node-host.log", hour, part)
            written += _fill(path, rotation, _at(hour, part), layouts)
    return written


def _at(hour: int, part: int) -> datetime:
    return _BEGAN - timedelta(hours=hour, minutes=15 * part)


def _named(path: Path, hour: int, part: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if hour == part == 0:
        return path
    ended = _at(hour, part) + timedelta(seconds=_SECONDS)
    return path.with_name(f"{path.stem}.{ended:%Y-%m-%d_%H-%M-%S_%f}.log")


def _fill(path: Path, size: int, begins: datetime, layouts: list[Callable[[str], str]]) -> int:
    with path.open("wb") as out:
        for second in range(_SECONDS):
            when = f"{begins + timedelta(seconds=second):%Y%m%d %H:%M:%S}"
            lines = "".join(layout(when) for layout in layouts).encode()
            out.write(lines * (size // _SECONDS // len(lines)))
        return out.tell()


def _warnings(folder: Path, form: Form) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    level, location = form.level("WARNING"), form.location("train", 215)
    times = [f"{_BEGAN - timedelta(minutes=number):%Y%m%d %H:%M:%S}" for number in reversed(range(_WARNINGS))]
    lines = [form.level_line(when, level, location, f"{form.head}: slow") for when in times]
    return (folder / "warning.log").write_text("".join(lines), encoding="utf-8")


def _level_line(form: Form) -> Callable[[str], str]:
    level, location, text = form.level("INFO"), form.location("train", 215), f"{form.head}: {TEXT}"
    return lambda when: form.level_line(when, level, location, text)


def _node_line(form: Form, number: int) -> Callable[[str], str]:
    level, location, text = form.level("INFO"), form.location("train", 215), f"{form.head}: {TEXT}"
    return lambda when: form.node_line(when, number * 1000, level, location, text)


def _form(rank: int) -> Form:
    info: dict[str, Any] = {
        "label": str(rank),
        "rank": rank,
        "world_size": RANKS,
        "parent": None,
        "pid": 1000 + rank,
        "user": "user",
        "team": "team",
        "module": "pretrain",
        "role": "worker",
        "node_ip": "10.0.0.7",
    }
    return Form(info, Locations())
