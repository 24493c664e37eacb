"""Captured output whose rank and helper are both gone: starts the same helper again, to record the rest.

Separate from the recovery of spools because it reads nothing itself: the helper has a channel of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from rankside import outputs
from rankside.output_folder import ENDING, OutputFolder

_FIRST, _LONGEST = 2.0, 300.0  # seconds between attempts


class LeftOutputs:
    """Owned by the agent's loop. `endpoint` is where the helper finds us."""

    def __init__(self, endpoint: str, report: Callable[[str], None]) -> None:
        self._endpoint, self._report = endpoint, report
        self._started: list[subprocess.Popen[bytes]] = []
        self._next: dict[Path, tuple[float, float]] = {}  # when to try again, and after how long then

    def look(self, folder: Path, now: float) -> bool:
        """Whether it is a capture's folder, and no spool. It is seen to, if nobody else does."""
        if not folder.name.endswith(ENDING):
            return False
        self._started = [process for process in self._started if process.poll() is None]
        due, pause = self._next.get(folder, (now, _FIRST))
        if now >= due and (folder / "capture").exists():
            self._next = {path: when for path, when in self._next.items() if path.exists()}
            self._begin(OutputFolder(folder), now, pause)
        return True

    def _begin(self, folder: OutputFolder, now: float, pause: float) -> None:
        if folder.rank_lives():  # and sees to its helper
            return
        alone = folder.read_alone()
        if alone is None:
            return
        self._next[folder.path] = now + pause, min(pause * 2, _LONGEST)
        try:
            self._started.append(self._helper(folder.path, alone))
        except OSError as error:
            self._report(f"captured output {folder.path}: {error}; trying again")
        finally:
            os.close(alone)

    def _helper(self, folder: Path, alone: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*outputs.output_tail_command(), str(folder), str(alone), "record"],
            pass_fds=(alone,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={
                **os.environ,
                "RANKSIDE_ENDPOINT": self._endpoint,
                "RANKSIDE_SPOOL_DIR": str(folder.parent.parent),
            },
            start_new_session=True,
        )
