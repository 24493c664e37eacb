"""A new sqlite database of MLflow's, there whole or not at all.

Separate because MLflow makes its tables in dozens of steps in the file itself: a process that dies among
them, or a second run that begins at the same time, leaves a file that no MLflow ever opens again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rankside_agent.sinks.mlflow_place import database_file


def make(uri: str, folder: Path, create: Callable[[str], object]) -> None:
    """Let `create(uri)` fill a database in `folder`, this run's own, and put it where `uri` says.

    Nothing is done where a file is already, or where none can be. Raises OSError, and what `create` does.
    """
    path = database_file(uri)
    if path is None or path.exists() or not path.parent.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "mlflow-new.db"
    beside = path.with_name(f".{path.name}.{folder.parent.name}.new")
    try:
        _clear(fresh)  # of a process that was killed here
        create(f"sqlite:///{fresh.absolute()}")
        _clear(beside)
        with closing(sqlite3.connect(fresh)) as source, closing(sqlite3.connect(beside)) as target:
            source.backup(target)
        _put(beside, path)
    finally:
        _clear(fresh)
        _clear(beside)


def _put(beside: Path, path: Path) -> None:
    """Never over a file: another run may have been first, and have written to it already."""
    try:
        os.link(beside, path)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not path.exists():
            beside.rename(path)


def _clear(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}-journal")):
        each.unlink(missing_ok=True)
