"""A new sqlite database of MLflow's, there whole or not at all.

Separate because MLflow makes its tables in dozens of steps in the file itself: a process that dies among
them, or a second run that begins at the same time, leaves a file that no MLflow ever opens again.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

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


def is_gone(path: Path) -> bool:
    """Whether the file that this process has connected to lies there no more, or another one does."""
    return path in _connected and _connected[path] != _file(path)


def connected(path: Path) -> None:
    """This process has."""
    _connected[path] = _file(path)


def forget(uri: str) -> None:
    """Have MLflow connect anew: it keeps stores, and connections to a file that was deleted, for good."""
    stores: Any = importlib.import_module("mlflow.tracking._tracking_service.registry")
    databases: Any = importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    kept = getattr(stores.TrackingStoreRegistry, "_get_store_with_resolved_uri", None)
    if kept is not None and hasattr(kept, "cache_clear"):
        kept.cache_clear()
    engine = getattr(databases.SqlAlchemyStore, "_engine_map", {}).pop(uri, None)
    if engine is not None:
        engine.dispose()


_connected: dict[Path, tuple[int, int] | None] = {}


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
