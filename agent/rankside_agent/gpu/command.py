"""Run one command for what it prints, within a time, and leave nothing of it behind.

Separate because a tool that asks a stuck driver never ends, and may have started helpers that hold its pipe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from rankside_agent.gpu.source import Unavailable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec nothing more than a call should happen
_LAST = 1.0  # seconds for a killed process to be gone; one in an uninterruptible call is left to the kernel
_MOST = 4 << 20  # characters of output that are looked at


class TookTooLong(Unavailable):
    """It was ended; asking it anything else would end the same way."""


def output(argv: Sequence[str], timeout: float) -> str:
    """What it writes to its standard output, whatever its exit status. Raises Unavailable."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # a group of its own, so that its helpers can be ended with it
            preexec_fn=_die_with_parent,  # noqa: PLW1509  the process that asks drivers has one thread
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{argv[0]}: {error}") from error
    try:
        return process.communicate(timeout=timeout)[0][:_MOST]
    except subprocess.TimeoutExpired as error:
        raise TookTooLong(f"{argv[0]} did not answer within {timeout:g} s") from error
    finally:
        _end(process)


def _die_with_parent() -> None:
    """In the new process: whoever kills its parent for being late means it, too, and does not know it."""
    with suppress(AttributeError):  # a C library without prctl
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen[str]) -> None:
    """All of its group: a helper may outlive it. The group's number is ours for as long as one is in it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST)
    if process.stdout:
        process.stdout.close()
