"""CPU time of another process by thread, and its memory, from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Seconds of CPU since the process began; bytes of memory now."""

    total: float
    main: float  # of the thread that runs the agent's loop: receiver and journal
    zmq: float
    rss: int

    @property
    def others(self) -> float:
        """The log files' writer; threads that ended are in here too."""
        return self.total - self.main - self.zmq


def usage(pid: int) -> Usage:
    """Of one process, now. Raises OSError when it is gone."""
    main = zmq = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text()
            spent = int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue  # ended between two looks
        if task.name == str(pid):
            main += spent
        elif name.startswith("ZMQ"):
            zmq += spent
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    total = (int(fields[11]) + int(fields[12])) / _TICK
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(total, main, zmq, pages * os.sysconf("SC_PAGE_SIZE"))
