"""`rankside tail -n 100` on a run of gigabytes beside one of megabytes: it should read ends of files only."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import logs
from figures import Section, Value, median, spread
from workplace import Workplace

_LINES = 100
_SMALL = 20_000_000


def measure(place: Workplace, size: int, rounds: int) -> Section:
    """Whole commands, in turns; the large folder is deleted again at once."""
    small, large = place.disk / "small", place.disk / "large"
    try:
        few = logs.write(small, _SMALL, rotation=1_000_000)
        many = logs.write(large, size)
        commands = _commands(small, f"{few / 1e6:,.0f} MB") | _commands(large, f"{many / 1e9:.2f} GB")
        commands["rankside --version, for its start"] = _rankside("--version")
        took: dict[str, list[float]] = {title: [] for title in commands}
        for _ in range(rounds):
            for title, command in commands.items():
                took[title].append(_once(place, command))
    finally:
        shutil.rmtree(large, ignore_errors=True)
        shutil.rmtree(small, ignore_errors=True)
    return _section(took)


def _commands(folder: Path, size: str) -> dict[str, list[str]]:
    node = folder / "logs" / "pretrain" / "node-host.log"
    lines = ("tail", "-n", str(_LINES), str(folder))
    return {
        f"rankside tail, {size}": _rankside(*lines),
        f"rankside tail --rank 3, {size}": _rankside(*lines, "--rank", "3"),
        f"rankside tail --level WARNING, {size}": _rankside(*lines, "--level", "WARNING"),
        f"tail of the node log, {size}": ["tail", "-n", str(_LINES), str(node)],
    }


def _rankside(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rankside_agent", *arguments]


def _once(place: Workplace, command: list[str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True, env=place.environment(), cwd=place.disk)
    took = (time.perf_counter() - start) * 1000
    found = done.stdout.count(b"\n")
    if found != _LINES and "--version" not in command:
        raise RuntimeError(f"{' '.join(command)} printed {found} lines, not {_LINES}")
    return took


def _section(took: dict[str, list[float]]) -> Section:
    notes = [
        f"{logs.RANKS} ranks' debug and info logs and the node log in files of 10 MB, in the page cache",
        "each rank has a warning.log of some kilobytes beside them",
    ]
    section = Section(f"rankside tail -n {_LINES}", notes, ("command", "ms", "x --version", "rounds ms"))
    start = took["rankside --version, for its start"]
    for title, found in took.items():
        ratios = [mine / base for mine, base in zip(found, start, strict=True)]
        row: dict[str, Value] = {"command": title, "ms": median(found), "x --version": median(ratios)}
        section.rows.append({**row, "rounds ms": spread(found)})
    return section
