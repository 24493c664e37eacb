"""How far a run's log files are, kept in two generations: a lost or damaged one doubles no line.

Separate from the log files because it knows nothing of lines: only whether what lies there can be trusted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankside_agent import files


def previous(path: Path) -> Path:
    """The generation before."""
    return path.with_name(f"{path.name}.previous")


def save(path: Path, value: dict[str, Any]) -> None:
    """Put `value` in place; what was there is the previous one. Raises OSError."""
    path.parent.mkdir(exist_ok=True)  # somebody may have removed it; nothing above it is made here
    files.replace_json(_coming(path), value)
    with suppress(FileNotFoundError):
        os.replace(path, previous(path))
    os.replace(_coming(path), path)


def load(path: Path, report: Callable[[str], None]) -> dict[str, Any] | None:
    """The newest generation that is whole, or None. Raises OSError where one is there and cannot be read."""
    found = _whole(path, report)
    if found is None:
        found = _whole(_coming(path), report)  # killed between the two renames
        if found is not None:
            os.replace(_coming(path), path)
    if found is None:
        found = _whole(previous(path), report)
        if found is not None:
            report(f"log files: {path} is lost; they go on from the generation before it, {previous(path)}")
    _coming(path).unlink(missing_ok=True)  # stale once a file is written to
    return found


def forget(path: Path) -> None:
    """All is delivered."""
    for each in (path, _coming(path), previous(path)):
        each.unlink(missing_ok=True)


def _coming(path: Path) -> Path:
    return path.with_name(f"{path.name}.next")


def _whole(path: Path, report: Callable[[str], None]) -> dict[str, Any] | None:
    try:
        found = files.stored_json(path)
    except ValueError:
        found = ()
    if found is None:
        return None
    if _has_form(found):
        return dict(found)
    report(f"log files: {path} is damaged and was put aside")
    os.replace(path, path.with_name(f"{path.name}.damaged"))  # else it would become the previous one
    return None


def _has_form(found: Any) -> bool:
    lanes = found.get("lanes") if isinstance(found, dict) else None
    return isinstance(lanes, list) and bool(lanes) and all(_is_lane(lane) for lane in lanes)


def _is_lane(lane: Any) -> bool:
    if not isinstance(lane, dict) or not isinstance(lane.get("files"), dict):
        return False
    marks = lane["files"].values()
    return _numbers(lane.get("position"), 2) and all(_numbers(mark, 3) for mark in marks)


def _numbers(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(each, int) for each in value)
