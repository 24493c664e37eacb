"""The limits that an agent inherits from whoever started it: raised as far as they go, the rest told.

Separate because a rank's `ulimit` is meant for a training, and the agent serves others after it.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

# Of one file's size, processor time and memory: what an agent needs is small, but it grows with its age
_RAISED = (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_DATA)
_FILES = 65536  # 64 ranks have some 300 files, and tail opens one a log: a few runs meet the usual 1024


def lift(report: Callable[[str], None]) -> None:
    """Raise the soft limits to the hard ones; a hard one that will be met is told."""
    for which in _RAISED:
        _, hard = resource.getrlimit(which)
        resource.setrlimit(which, (hard, hard))
    allow_many_files()
    if file_bytes() < sys.maxsize:
        report(
            f"no file of this agent may be larger than {file_bytes()} bytes (the hard limit of `ulimit -f` "
            "where it was started): journals and log files go on in new ones before that, a tracker's cannot"
        )


def allow_many_files() -> None:
    """Raise the soft limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def file_bytes() -> int:
    """How large a file may become."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
