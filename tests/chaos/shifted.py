"""A wall clock that jumps: `time.time` of one whole process, moved by the seconds that a file holds.

Separate because ranks use it by a call and the agent, which has no such seam, by being started through here:
`python -m tests.chaos.shifted CLOCK rankside_agent agent ...`. Durations stay true: they are monotonic.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import sys
import time

_OFFSET = struct.Struct("<d")


def make(path: str) -> None:
    """A clock that is right."""
    with open(path, "wb") as out:
        out.write(_OFFSET.pack(0.0).ljust(mmap.PAGESIZE, b"\0"))


def jump(path: str, seconds: float) -> None:
    """By so much, from the true time, for all who look at this clock."""
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, _OFFSET.pack(seconds), 0)
    os.close(fd)


def shift(path: str) -> None:
    """This process looks at that clock from now on. Before anything is imported that keeps `time.time`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    seen = mmap.mmap(fd, mmap.PAGESIZE, prot=mmap.PROT_READ)
    os.close(fd)
    true = time.time
    time.time = lambda: true() + _OFFSET.unpack_from(seen)[0]


if __name__ == "__main__":
    shift(sys.argv[1])
    module, sys.argv = sys.argv[2], sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
