"""What `import rankside` takes from the start of a training. Separate: each figure is a new process."""

from __future__ import annotations

import subprocess
import sys

from figures import Section, Value, median, spread
from workplace import Workplace

_IMPORTS = {
    "import zmq, msgpack": "import zmq, msgpack",
    "import rankside": "import rankside",
    "import rankside, zmq and msgpack being there": "import zmq, msgpack; start = clock(); import rankside",
    "import logging": "import logging",
}
_CODE = "from time import perf_counter as clock; start = clock(); {}; print(clock() - start)"


def measure(rounds: int) -> Section:
    """One new interpreter for each figure, in turns."""
    notes = [f"median of {rounds} new interpreters each, in turns; measured inside, after Python's own start"]
    section = Section("import time", notes, ("import", "ms", "x zmq, msgpack", "rounds ms"))
    took: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(rounds):
        for name, statement in _IMPORTS.items():
            took[name].append(_once(statement))
    base = took["import zmq, msgpack"]
    for name, found in took.items():
        ratios = [mine / theirs for mine, theirs in zip(found, base, strict=True)]
        row: dict[str, Value] = {"import": name, "ms": median(found), "x zmq, msgpack": median(ratios)}
        section.rows.append({**row, "rounds ms": spread(found)})
    return section


def _once(statement: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _CODE.format(statement)],
        capture_output=True,
        text=True,
        check=True,
        env=Workplace.environment(),
        cwd="/",
    )
    return float(done.stdout) * 1000
