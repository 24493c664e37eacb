"""What `import rankside` takes from the start of a training. Separate: each figure is a new process."""

from __future__ import annotations

import sys

from command import Took, columns, timed
from figures import Section, median
from workplace import Workplace

_IMPORTS = {
    "nothing": "",
    "zmq, msgpack": "import zmq, msgpack",
    "rankside": "import rankside",
}
_BASE = "nothing"


def measure(place: Workplace, rounds: int) -> Section:
    """One new interpreter for each figure, in turns."""
    notes = [
        f"{rounds} new interpreters each, in turns, compiled before; whole processes, from start to end",
        "more: milliseconds of CPU above an interpreter that imports nothing",
    ]
    section = Section("import time", notes, ("import", "more", "ms", "CPU ms", "rounds ms"))
    took: dict[str, list[Took]] = {name: [] for name in _IMPORTS}
    for number in range(rounds + 1):
        for name, statement in _IMPORTS.items():
            found, _ = timed(place, [sys.executable, "-c", statement])
            if number:  # the first compiles
                took[name].append(found)
    for name, found in took.items():
        more = [mine.cpu - base.cpu for mine, base in zip(found, took[_BASE], strict=True)]
        section.rows.append({"import": name, "more": median(more), **columns(found)})
    return section
