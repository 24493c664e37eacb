"""The files that a run leaves behind and its parameters want in MLflow: logs and profiler traces.

Separate because what counts as one is a matter of paths and names, and MLflow has no part in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rankside_agent.sinks.mlflow_walk import files_below

# Nothing a profiler writes lies here, and some of it is large, or is what we upload to
_SKIPPED = frozenset(("logs", "checkpoints", "wandb", "mlartifacts", "mlruns", "snapshot"))
_A_SIGN = 20_000  # files
_TRACE_FOLDERS = {"profile_traces", "memory_snapshot"}  # TorchTitan's defaults
_TRACES = re.compile(r".*\.pt\.trace\.json(\.gz)?|.*snapshot[^/]*\.pickle(\.gz)?|.*\.memory\.html")


def logs(exp_root: Path, log_root: str, others: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """(destination, path) of the log files of one run; `others` are the folders of runs beside it.

    Hidden files are the writers' own: locks, and what is not whole yet.
    """
    theirs = tuple(exp_root / other for other in others if other != log_root)
    for path in files_below(exp_root / log_root, hidden=False):
        if not any(their in path.parents for their in theirs):
            yield str(path.relative_to(exp_root)), path


def traces(exp_root: Path) -> Iterator[tuple[str, Path] | None]:
    """(destination, path) of the profiler's files, wherever below the experiment they are.

    None now and then, while many files are none of them: the caller has a sign of life to give.
    """
    for number, path in enumerate(files_below(exp_root, _SKIPPED), 1):
        if number % _A_SIGN == 0:
            yield None
        below = path.relative_to(exp_root)
        if _TRACES.fullmatch(path.name) or _TRACE_FOLDERS & set(below.parts[:-1]):
            yield f"traces/{below}", path
