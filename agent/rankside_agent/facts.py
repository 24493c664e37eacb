"""What run.json holds of a run, and how it is made anew from the journals where that file is lost.

Separate because a run cannot be opened without it, and what its journal holds must not wait for a next start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.journal import ChannelState

_NEEDED = {"exp_root", "exp_name", "module", "modules", "world_size", "sinks", "attempts"}
_PATIENCE = 2.0  # seconds that the run's folder may take to tell its key


def read(folder: Path) -> dict[str, Any] | None:
    """None where it is not there or damaged. Raises OSError where it cannot be read: it is not lost."""
    try:
        found = files.stored_json(folder / "run.json")
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() >= _NEEDED else None


def first(run_id: str, info: dict[str, Any]) -> dict[str, Any]:
    """Of a run that begins with this channel."""
    return {
        "run_id": run_id,
        "exp_root": info["exp_root"],
        "exp_name": info["exp_name"],
        "module": info["module"],
        "modules": [info["module"]],
        "host": info["host"],
        "world_size": info["world_size"],
        "started": time.time(),
        "sinks": [],
        "attempts": [],
    }


def rebuilt(run_id: str, channels: Iterable[ChannelState]) -> dict[str, Any] | None:
    """From what the journals know of the run's channels; None where that is nothing."""
    known = sorted(channels, key=lambda channel: float(channel.info["opened"]))
    if not known:
        return None
    made = {**first(run_id, known[0].info), "started": known[0].info["opened"]}
    made["key"] = _key(Path(made["exp_root"]))
    attempts: dict[int, dict[str, Any]] = {}
    for channel in known:
        _add(attempts, channel)
        made.update(module=channel.info["module"], world_size=channel.info["world_size"])
        if channel.info["module"] not in made["modules"]:
            made["modules"].append(channel.info["module"])
    return {**made, "attempts": [attempts[number] for number in sorted(attempts)]}


def _add(attempts: dict[int, dict[str, Any]], channel: ChannelState) -> None:
    info, ended = channel.info, channel.ended or {}
    attempt = attempts.setdefault(
        info["attempt"],
        {
            "n": info["attempt"],
            "job": info["job"],
            "started": info["opened"],
            "ended": ended.get("time"),
            "status": ended.get("status", "running"),
            "world_size": info["world_size"],
            "log_root": info["log_root"],
            "ranks": {},
        },
    )
    if not ended:
        attempt.update(ended=None, status="running")
    if not info["parent"]:
        place = attempt["ranks"][info["label"]] = {"pid": info["pid"], "host": info["host"]}
        place.update({"status": ended["status"]} if ended else {})


def _key(exp_root: Path) -> str:
    """The experiment's, by which trackers know it; the folder may lie on a mount that hangs."""
    found: list[str] = []

    def look() -> None:
        with suppress(OSError, ValueError):
            found.append((exp_root / "snapshot" / "key").read_text(encoding="ascii").strip())

    thread = threading.Thread(target=look, name="rankside-key", daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return found[0] if found else ""
