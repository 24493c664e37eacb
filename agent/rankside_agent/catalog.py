"""Finds runs from their state folders, whether an agent lives or not: for `tail` and everything else that
asks by name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankside_agent import files


class UnknownRun(LookupError):
    """No such run on this node; the message names those there are."""


@dataclass(frozen=True)
class Run:
    """A run as its run.json tells it."""

    folder: Path
    facts: dict[str, Any]

    @property
    def exp_name(self) -> str:
        """The experiment's name."""
        return str(self.facts["exp_name"])

    @property
    def exp_root(self) -> Path:
        """The folder of its files."""
        return Path(self.facts["exp_root"])

    @property
    def updated(self) -> float:
        """When it last changed, unix seconds."""
        found = self.facts.get("updated")
        return float(found) if isinstance(found, int | float) else 0.0

    @property
    def log_roots(self) -> list[Path]:
        """Folders that hold module folders: `logs`, and those of attempts that ran beside another."""
        names = {"logs": None, **{attempt["log_root"]: None for attempt in self.facts["attempts"]}}
        return [self.exp_root / name for name in names]


def all_runs(state_dir: Path) -> list[Run]:
    """Every run, the most recently changed first."""
    paths = [*state_dir.glob("runs/*/run.json"), *state_dir.glob("done/*/run.json")]
    found = filter(None, (run_at(path.parent) for path in paths))
    return sorted(found, key=lambda run: run.updated, reverse=True)


def run_at(folder: Path) -> Run | None:
    """The run whose state that folder is, wherever it lies."""
    facts = files.read_json(folder / "run.json")
    known = isinstance(facts, dict) and {"exp_name", "exp_root", "attempts"} <= facts.keys()
    return Run(folder, facts) if known else None


def find_run(state_dir: Path, selector: str | None = None) -> Run:
    """By run id, experiment name or exp_root; without one, the most recent. Raises UnknownRun."""
    known = all_runs(state_dir)
    if not known:
        raise UnknownRun(f"no run is known in {state_dir}; give a folder, or set RANKSIDE_STATE_DIR")
    if selector is None:
        return known[0]
    path = Path(os.path.abspath(selector))
    fits = [run for run in known if selector in (run.folder.name, run.exp_name) or run.exp_root == path]
    if not fits:
        names = ", ".join(dict.fromkeys(run.exp_name for run in known[:10]))
        raise UnknownRun(f"run {selector!r} is not known in {state_dir}; known: {names}")
    return fits[0]
