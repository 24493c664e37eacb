"""The TensorBoard sink: the run's points as event files under {exp_root}/tensorboard.

| record        | in TensorBoard |
| ------------- | -------------- |
| metrics       | scalars under their own names, NaN and infinities as they are; standard_scalars.py has the
                  few that parameters keep out |
| throughput    | scalars `iteration-time` (elapsed_s), and what the agent makes of the sample |
| params        | text `params`, a table |
| event         | text `events/{name}`, a table of its fields; an artifact is `events/artifact` |

The folder is `tensorboard`; for TorchTitan (`metrics.enable_tensorboard`) it is `metrics.save_tb_folder`.

What has no step of its own stands at the last explicit one, 0 before the first. A new attempt continues the
run; one that runs beside a living attempt of the same experiment is a run of its own, `attempt-{n}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankside.identity import safe_name
from rankside_agent.sinks.base import Counts, Run, Sink
from rankside_agent.sinks.points import Point, Source

if TYPE_CHECKING:
    from rankside_agent.sinks.event_run import EventRun


class TensorBoard(Sink):
    """Writes event files. Its state is that of each folder, by the folder's name below exp_root."""

    name = "tensorboard"

    def __init__(self, run: Run, state: Mapping[str, Any], counts: Counts) -> None:
        super().__init__(run, state, counts)
        self._runs = {folder: self._run(folder, found) for folder, found in state.items()}

    @staticmethod
    def wanted(config: Mapping[str, Any]) -> bool:
        """As Primus decides: profiling shows its results there, so it forces it on."""
        return _plain(config) or config.get("metrics.enable_tensorboard") is True

    @property
    def settled(self) -> bool:
        """Whether no folder holds points back."""
        return all(run.settled for run in self._runs.values())

    def write(self, point: Point) -> None:
        """Put a point into the folder of its attempt. Raises OSError."""
        folder = _folder(point.source)
        if folder not in self._runs:
            self._runs[folder] = self._run(folder, {})
        self._runs[folder].take(point)

    def flush(self) -> None:
        """Bring all to the disk. Raises OSError."""
        for run in self._runs.values():
            run.flush()

    def state(self) -> dict[str, Any]:
        """As of the last flush."""
        return {folder: run.state() for folder, run in self._runs.items()}

    def close(self) -> None:
        """Let go of the files."""
        for run in self._runs.values():
            run.close()

    def _run(self, folder: str, state: Mapping[str, Any]) -> EventRun:
        from rankside_agent.sinks.event_run import EventRun  # the agent asks `wanted` without the library

        return EventRun(Path(self.run.exp_root) / folder, self.run.run_id, state, self.counts)


def _plain(config: Mapping[str, Any]) -> bool:
    return config.get("disable_tensorboard") is False or config.get("profile") is True


def _folder(source: Source) -> str:
    """An attempt beside a living one has a folder of its own in the run's."""
    base = "tensorboard"
    if not _plain(source.config) and source.config.get("metrics.enable_tensorboard") is True:
        base = _inside(str(source.config.get("metrics.save_tb_folder") or "tb")) or base
    return f"{base}/{source.beside}" if source.beside else base


def _inside(folder: str) -> str:
    """As a path below exp_root; empty where it leads elsewhere: the client refuses such a one at once."""
    parts = [safe_name(part) for part in folder.split("/") if part not in ("", ".")]
    return "" if folder.startswith("/") or ".." in folder.split("/") else "/".join(parts)
