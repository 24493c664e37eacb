"""Where the runs go: the tracking URI as somebody told it, made absolute, or refused in one clear sentence.

Separate because it is decided before MLflow's library is asked, which would take a relative path from this
process's folder, the agent's own state, and an address without a scheme for a path.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from rankside_agent.sinks import tracker_environ
from rankside_agent.sinks.mlflow_errors import Away, NoFolder

VARIABLE = "MLFLOW_TRACKING_URI"
_ADDRESS = re.compile(r"(?!file:|sqlite)(\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}(/.*)?")  # no scheme
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///(?:file:)?)([^?]*)(.*)", re.DOTALL)
_MEMORY = re.compile(r"sqlite(\+\w+)?:(//)?(/(file:)?:memory:.*)?")
_FILE = re.compile(r"(file:(?!//)|(?!databricks|uc$|uc:)(?![a-zA-Z][\w+.-]*:))(.+)", re.DOTALL)


def tracking_uri(environ: Mapping[str, str], exp_root: str) -> str:
    """As told, else Databricks if that is there, else a database of our own."""
    if told := environ.get(VARIABLE, "").strip():
        return told
    if environ.get("DATABRICKS_HOST", "").strip():
        return "databricks"
    return f"sqlite:///{Path(exp_root).absolute()}/mlflow.db"


def folder_of(environ: Mapping[str, str], cwd: str) -> str:
    """What a relative address is relative to: the training's folder, or that of who replays and told it."""
    if VARIABLE in environ.get(tracker_environ.CALLERS, "").split(","):
        return environ.get("PWD", "")
    return cwd


def absolute_uri(uri: str, folder: str, shown: str) -> str:
    """The same place, from wherever it is asked for. Raises Away, where `shown` stands for the URI."""
    if _ADDRESS.fullmatch(uri):
        raise Away(f"{VARIABLE}={shown} has no scheme: write http://{shown} or https://{shown}")
    if _MEMORY.fullmatch(uri):
        raise Away(f"{VARIABLE}={shown} is a database in memory, of which nothing stays; name a file")
    for pattern in (_SQLITE, _FILE):
        if found := pattern.fullmatch(uri):
            return _absolute(*(*found.groups(), "")[:3], folder=folder, shown=shown)
    return uri


def database_file(uri: str) -> Path | None:
    """The file of a sqlite database with an absolute path; None for any other place."""
    found = _SQLITE.fullmatch(uri)
    plain = found is not None and not _MEMORY.fullmatch(uri) and "file:" not in found[1]
    return Path(found[2]) if found and plain and os.path.isabs(found[2]) else None


def _absolute(scheme: str, path: str, rest: str, *, folder: str, shown: str) -> str:
    if os.path.isabs(path):
        return f"{scheme}{path}{rest}"
    if not os.path.isabs(folder):
        raise NoFolder(
            f"{VARIABLE}={shown} is relative, and the training's working directory is not known; name an "
            "absolute path"
        )
    return f"{scheme}{posixpath.normpath(posixpath.join(folder, path))}{rest}"
