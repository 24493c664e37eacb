"""Where a run's files go, and the names of the folders on the way: given, of a file, or the environment's.

Separate from the settings because names are no parameters: they become folders, and are refused for what no
folder can be.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from rankside.identity import safe_name
from rankside.settings import ConfigError, shown

_LONGEST_ROOT = 3500  # bytes of a path, of the 4096 that the kernel takes: files of the run lie below


class Place(NamedTuple):
    """Where a run's files go, and the names of its parts."""

    exp_root: str
    exp_name: str
    team: str
    user: str


def find_place(
    exp_name: str | None,
    exp_root: str | os.PathLike[str] | None,
    workspace: str | os.PathLike[str] | None,
    work_group: str | None,
    user_name: str | None,
    environ: Mapping[str, str] = os.environ,
    told: Mapping[str, str] | None = None,
) -> Place:
    """`exp_root`, or {workspace}/{work_group}/{user_name}/{exp_name} as Primus builds it; absolute.

    What is not given is what the configuration file has `told`, else the environment. Raises ConfigError for
    a name without a folder in it ("/"), and where none could lie so deep.
    """
    told = told or {}
    exp_name = exp_name or told.get("exp_name")
    workspace = workspace if workspace is not None else told.get("workspace") or None
    # YAML makes a number of a name like 007
    team = str(work_group or told.get("work_group") or environ.get("PRIMUS_TEAM") or "default")
    user = str(user_name or told.get("user_name") or environ.get("PRIMUS_USER") or _login())
    if exp_root is not None:
        root = os.path.abspath(_path("exp_root", exp_root))
        name = str(exp_name or os.path.basename(root) or "experiment")
        _demand_printable({"exp_name": exp_name or "", "work_group": team, "user_name": user})
        return Place(root, name, team, user)
    name = str(exp_name or environ.get("PRIMUS_EXP_NAME") or "experiment")
    space = _path("workspace", workspace or environ.get("PRIMUS_WORKSPACE") or "./output")
    named = {"work_group": team, "user_name": user, "exp_name": name}
    _demand_printable(named)
    parts = [folder for what, text in named.items() for folder in _folders(what, text)]
    root = os.path.abspath(os.path.join(space, *parts))
    if len(root.encode(errors="replace")) > _LONGEST_ROOT:
        raise ConfigError(f"init(): exp_name: {shown(name)} makes a path that no file below it could have")
    return Place(root, name, team, user)


def _demand_printable(named: Mapping[str, Any]) -> None:
    """Refuse control characters: of a NUL no folder can be made, of a line's end no line of a log."""
    for what, name in named.items():
        if any(char < " " or "\x7f" <= char <= "\x9f" for char in str(name)):
            problem = "is not allowed; choices: a text without control characters"
            raise ConfigError(f"init(): {what}: {shown(str(name))} {problem}")


def _path(what: str, given: Any) -> str:
    try:
        path = os.fspath(given)
    except Exception:  # noqa: BLE001  a stranger's __fspath__ may raise anything
        path = None
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise ConfigError(f"init(): {what}: {shown(given)} is not allowed; choices: a path")
    return path


def _folders(what: str, name: str) -> list[str]:
    """The folders that a name stands for: at least one, so that no run lies where the runs of a user do."""
    found = [safe_name(part) for part in name.split("/") if part]
    if not found:
        raise ConfigError(f"init(): {what}: {name!r} names no folder")
    return found


def _login() -> str:
    try:
        import getpass

        return getpass.getuser()
    except (OSError, KeyError):  # a container's uid without a name
        return str(os.getuid())
