"""The snapshot of one attempt, read from its folder as groups of names and values.

Separate from writing: the files may be of another version, of another node, or half gone. Whatever is in
them, the groups hold plain values; a group of which there is no file is not there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rankside_agent import files
from rankside_agent.snapshot import config_text, parts

Group = dict[str, Any]
_MOST_NODES = 10_000


class Snapshot(NamedTuple):
    """Groups by title, in the order in which they are shown; where parameters were given."""

    groups: dict[str, Group]
    given: dict[str, str]


def read(folder: Path) -> Snapshot:
    """What there is in `snapshot/attempt-{n}`."""
    groups = {title: group for title, look in _GROUPS.items() if (group := look(folder))}
    return Snapshot(groups, _config(folder).given)


def exists(folder: Path) -> bool:
    """Whether there is anything to read."""
    return any((folder / name).is_file() for name in parts.FILES) or bool(_nodes(folder))


def _config(folder: Path) -> config_text.Resolved:
    return config_text.read(_text(folder / "config.yaml"))


def _command(folder: Path) -> Group:
    found = _json(folder / "command.json")
    argv = found.get("argv")
    if isinstance(argv, list):
        found["argv"] = shlex.join(map(str, argv))
    return found


def _packages(folder: Path) -> Group:
    lines = filter(None, _text(folder / "packages.txt").split("\n"))
    pairs = (line.partition("==") for line in lines)
    return {name: version for name, _, version in pairs}


def _git(folder: Path) -> Group:
    """Each changed file is a name of its own, so that two states can be compared."""
    found = _json(folder / parts.GIT)
    status, diff = found.pop("status", None), found.pop("diff_stat", None)
    for line in status if isinstance(status, list) else []:
        found[f"status {str(line)[3:]}"] = str(line)[:2].strip()
    for line in diff.split("\n") if isinstance(diff, str) else []:
        name, bar, change = line.partition("|")
        if bar:
            found[f"diff {name.strip()}"] = " ".join(change.split())
    found.pop("captured", None)
    return found


def _hardware(folder: Path) -> Group:
    """The last rank's node in full, of every other one a line."""
    nodes = _nodes(folder)
    host = str(_json(folder / "command.json").get("host", ""))
    own = nodes.pop(host, None) or (nodes.pop(next(iter(nodes))) if nodes else {})
    found = {name: value for name, value in own.items() if name not in ("gpus", "source")}
    for number, gpu in enumerate(_gpus(own)):
        found[f"gpu {number}"] = _gpu(gpu)
    return {**found, **{f"node {name}": _summary(node) for name, node in sorted(nodes.items())}}


def _nodes(folder: Path) -> dict[str, Group]:
    paths = sorted(folder.glob(parts.HARDWARE.format(host="*")))[:_MOST_NODES]
    found = [_json(path) for path in paths]
    return {str(node["host"]): node for node in found if node.get("host")}


def _gpus(node: Group) -> list[Group]:
    gpus = node.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []


def _gpu(gpu: Group) -> str:
    names = ("name", "pci", "uuid", "partition")
    told = [str(gpu[name]) for name in names if gpu.get(name) not in (None, "")]
    return "  ".join([*told, f"{gpu['memory_gib']} GiB"] if "memory_gib" in gpu else told)


def _summary(node: Group) -> str:
    gpus = _gpus(node)
    names = sorted({str(gpu.get("name") or gpu.get("vendor") or "GPU") for gpu in gpus})
    told = [f"{node.get('cpus')} x {node.get('cpu')}", f"{node.get('memory_gib')} GiB"]
    return ", ".join([*told, f"{len(gpus)} x {'/'.join(names)}"] if gpus else told)


def _json(path: Path) -> Group:
    try:
        found = files.read_json(path)
    except RecursionError:
        return {}
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}


def _text(path: Path) -> str:
    try:
        return re.sub(r"\r", "", path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""


_GROUPS: dict[str, Callable[[Path], Group]] = {
    "configuration": lambda folder: _config(folder).values,
    "command": _command,
    "versions": lambda folder: _json(folder / "versions.json"),
    "packages": _packages,
    "git": _git,
    "hardware": _hardware,
    "environment": lambda folder: _json(folder / "env.json"),
}
GROUPS = tuple(_GROUPS)
