"""Runs that no agent serves now: how they ended, and what is left to do for them. Read from the state folder.

Separate from what a living agent says of itself, because this is known without one, and a run leaves the
agent's memory seconds after its end, while a command that it left to its user stays of use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankside_agent import catalog, files
from rankside_agent.sinks import SINKS, cursor_path

MOST = 5  # finished runs that are told, the newest first


def finished(state_dir: Path) -> list[dict[str, Any]]:
    """The last ones whose records are all delivered."""
    return [_told(run) for run in _runs(state_dir, "done")[:MOST]]


def interrupted(state_dir: Path) -> list[dict[str, Any]]:
    """Those whose agent has left before it was through; another one goes on with them."""
    return [_told(run) for run in _runs(state_dir, "runs")]


def _runs(state_dir: Path, kind: str) -> list[catalog.Run]:
    return [run for run in catalog.all_runs(state_dir) if run.folder.parent.name == kind]


def _told(run: catalog.Run) -> dict[str, Any]:
    attempts = run.facts["attempts"]
    latest = attempts[-1] if attempts else {}
    return {
        "run_id": run.folder.name,
        "exp_name": run.exp_name,
        "exp_root": str(run.exp_root),
        "module": str(run.facts.get("module", "")),
        "attempt": latest.get("n", 0),
        "status": str(latest.get("status", "starting")),
        "ended": latest.get("ended"),
        "remarks": [
            {"reader": name, "remark": told} for name in SINKS if (told := _remark(run.folder, name))
        ],
    }


def _remark(folder: Path, name: str) -> str:
    """Of a tracker; where it has none and is not through, what stands in its way."""
    found = files.read_json(cursor_path(folder, name))
    told = found if isinstance(found, dict) else {}
    return str(told.get("remark") or ("" if told.get("state") == "done" else told.get("last_error") or ""))
