"""Where a run came from: program, user, machine, and the state of its source tree, as tags.

Separate because the tree's state comes later than the run's first points, or never: the agent writes it to
`origin/attempt-{n}.json` when git has answered, and here is looked for it at each flush.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.sinks.mlflow_batches import Batches
from rankside_agent.sinks.points import Source

ARTIFACT = "system/git_metadata.json"  # of the newest attempt
_GIT_TAGS = {
    "commit": "mlflow.source.git.commit",
    "branch": "mlflow.source.git.branch",
    "repo_url": "mlflow.source.git.repoURL",
    "dirty": "mlflow.source.git.dirty",
}


class Origin:
    """The origin of one run's newest attempt. `folder` is the run's own; `done` the attempt known already."""

    def __init__(self, folder: Path, exp_root: str, batches: Batches, done: int) -> None:
        self.done = done
        self._folder = folder / "origin"
        self._exp_root = exp_root
        self._batches = batches

    def begin(self, source: Source) -> None:
        """What is known at the first point of an attempt."""
        argv = source.launch.get("argv")
        tags = {
            "mlflow.user": source.user,
            "mlflow.source.name": argv[0] if isinstance(argv, list) and argv else "",
            "mlflow.source.type": "LOCAL",
            "rankside.attempt": source.attempt,
            "rankside.exp_root": self._exp_root,
            "rankside.host": source.host,
            "rankside.module": source.module,
            "rankside.world_size": source.world_size,
        }
        for key, value in tags.items():
            if value != "":
                self._batches.tag(key, value)

    def flush(self, attempt: int) -> Iterator[tuple[str, Path]]:
        """The tags of the source tree, as soon as they are known; gives the artifact."""
        if attempt <= self.done:
            return
        path = self._folder / f"attempt-{attempt}.json"
        found = files.read_json(path)
        if not isinstance(found, dict):
            return
        self.done = attempt
        self._tag(found)
        if found:
            yield ARTIFACT, path

    def _tag(self, found: Mapping[str, Any]) -> None:
        for name, key in _GIT_TAGS.items():
            if found.get(name) not in (None, ""):
                self._batches.tag(key, found[name])
