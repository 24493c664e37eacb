"""Read rows back from W&B's offline files with its own command, `wandb leet inspect`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankside_agent.demo.account import Point

NUMBER = "_step"  # of a row; two files may hold the same one, and W&B shows it once
STEP, ATTEMPT = "train_step", "attempt"  # the columns in which rankside puts them
_SECONDS = 120.0


def read(root: Path, _last: int) -> dict[str, list[Point]]:
    """Every number of the newest attempt, row by row."""
    paths = sorted(root.glob("wandb/offline-run-*/*.wandb"))
    rows = {row.get(NUMBER): row for path in paths for row in _rows(path)}
    newest = max((row.get(ATTEMPT, 0) for row in rows.values()), default=0)
    found: dict[str, list[Point]] = {}
    for row in rows.values():
        if row.get(ATTEMPT, 0) == newest and STEP in row:
            for name, value in row.items():
                if isinstance(value, int | float) and not name.startswith("_"):
                    found.setdefault(name, []).append(Point(int(row[STEP]), float(value)))
    return found


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The history in one file. Raises OSError and ValueError where it cannot be read."""
    start = "from wandb.cli.cli import cli; cli()"  # as the script `wandb`, which may not be on the path
    command = [sys.executable, "-c", start, "leet", "inspect", "--json", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise ValueError(f"wandb leet inspect: {done.stderr.strip()[-300:]}")
    for line in done.stdout.splitlines():
        record = json.loads(line)
        if record.get("type") == "history":
            yield record["history"].get("item", {})
