"""One command from its start to its end: what it printed, and what it took.

Separate because the CPU time is what can be trusted where other programs keep the machine busy.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import NamedTuple

from figures import Value, median, spread
from workplace import Workplace


class Took(NamedTuple):
    """Milliseconds on the clock and of CPU."""

    wall: float
    cpu: float


def rankside(*arguments: str) -> list[str]:
    """The command of this interpreter's installation."""
    return [sys.executable, "-m", "rankside_agent", *arguments]


def timed(place: Workplace, command: list[str], more: dict[str, str] | None = None) -> tuple[Took, str]:
    """Run it. Raises CalledProcessError."""
    cpu, start = _children(), time.perf_counter()
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        check=True,
        text=True,
        env=place.environment(more),
        cwd=place.disk,
    )
    wall = time.perf_counter() - start
    return Took(wall * 1000, (_children() - cpu) * 1000), done.stdout


def columns(took: list[Took]) -> dict[str, Value]:
    """Medians, and the spread of the clock."""
    walls, cpus = [each.wall for each in took], [each.cpu for each in took]
    return {"ms": median(walls), "CPU ms": median(cpus), "rounds ms": spread(walls)}


def _children() -> float:
    """CPU seconds of all processes that were waited for."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime
