"""Which attempt somebody means: a run by name or folder, with or without `@attempt`.

Separate from both commands, which mean the same by it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from rankside_agent.catalog import UnknownRun, find_run, run_at
from rankside_agent.snapshot import stored


class NoSnapshot(LookupError):
    """There is none; says what there is."""


class Attempt(NamedTuple):
    """One with a snapshot."""

    run: str
    number: int
    folder: Path

    @property
    def title(self) -> str:
        """As people write it."""
        return f"{self.run}@{self.number}"


def find(state_dir: Path, text: str | None, number: int | None = None) -> Attempt:
    """The attempt of that number, or the last one. Raises NoSnapshot, and UnknownRun."""
    title, root, named = _meant(state_dir, text or "")
    found = _attempts(title, root)
    wanted = named if number is None else number
    if wanted is None:
        return found[-1]
    fits = [attempt for attempt in found if attempt.number == wanted]
    if not fits:
        numbers = ", ".join(str(attempt.number) for attempt in found)
        raise NoSnapshot(f"{title} has no snapshot of attempt {wanted}; it has {numbers}")
    return fits[0]


def before(state_dir: Path, text: str) -> tuple[Attempt, Attempt]:
    """The attempt that is meant, behind the one before it. Raises NoSnapshot, and UnknownRun."""
    last = find(state_dir, text)
    title, root, _ = _meant(state_dir, text)
    earlier = [attempt for attempt in _attempts(title, root) if attempt.number < last.number]
    if not earlier:
        raise NoSnapshot(
            f"{last.title} is the first attempt with a snapshot; give another run to compare with"
        )
    return earlier[-1], last


def _attempts(title: str, root: Path) -> list[Attempt]:
    """All that have a snapshot, at least one."""
    found = [Attempt(title, number, folder) for number, folder in _numbered(root / "snapshot")]
    if not found:
        raise NoSnapshot(f"{root / 'snapshot'} holds no snapshot of an attempt")
    return found


def _meant(state_dir: Path, text: str) -> tuple[str, Path, int | None]:
    """The run's title and folder, and the attempt's number where one is named. Names may hold an @ too."""
    other: NoSnapshot | None = None
    if os.path.isdir(text):
        try:
            return _in_folder(Path(os.path.abspath(text)))
        except NoSnapshot as problem:
            other = problem
    try:
        run = find_run(state_dir, text or None)  # a name may look like a path, too: "team/llama"
    except UnknownRun as unknown:
        if other is not None:
            raise other from None
        return _numbered_run(state_dir, text, unknown)
    return run.exp_name, run.exp_root, None


def _in_folder(path: Path) -> tuple[str, Path, int | None]:
    inside = re.fullmatch(r"attempt-(\d{1,9})", path.name) if path.parent.name == "snapshot" else None
    return (*_at(path), int(inside[1]) if inside else None)


def _numbered_run(state_dir: Path, text: str, unknown: UnknownRun) -> tuple[str, Path, int | None]:
    """What stands before the last @, and the number behind it. Raises NoSnapshot, and UnknownRun."""
    name, at, number = text.rpartition("@")
    try:
        title, root, _ = _meant(state_dir, name) if at and name else (None, None, None)
    except LookupError:
        title = root = None
    if title is None or root is None:
        problem = f"{text} is no folder of a run, nor the name of one: {unknown}"
        raise NoSnapshot(problem) if os.sep in text else unknown
    if not re.fullmatch(r"[0-9]{1,9}", number):
        numbers = ", ".join(str(attempt.number) for attempt in _attempts(title, root))
        raise NoSnapshot(f"{text}: {number!r} is no number of an attempt; {title} has {numbers}")
    return title, root, int(number)


def _at(path: Path) -> tuple[str, Path]:
    """The run that lies there: its folder, one inside of it, or that of its state."""
    run = run_at(path)
    if run is not None:
        return run.exp_name, run.exp_root
    for root in (path, path.parent, path.parent.parent):
        if (root / "snapshot").is_dir():
            return root.name, root
    raise NoSnapshot(f"{path} is no folder of a run: it has no snapshot in it")


def _numbered(snapshot: Path) -> list[tuple[int, Path]]:
    try:
        names = os.listdir(snapshot)
    except OSError:
        return []
    numbers = sorted(int(found[1]) for name in names if (found := re.fullmatch(r"attempt-(\d{1,9})", name)))
    folders = [(number, snapshot / f"attempt-{number}") for number in numbers]
    return [(number, folder) for number, folder in folders if stored.exists(folder)]
