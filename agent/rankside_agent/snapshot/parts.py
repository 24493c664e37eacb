"""What the last rank has said of its start, as the files of a snapshot: a table, a file and what is in it.

Separate from writing them, which may hang. Secrets were masked in the rank; what has their form is masked
once more, for an older client may have sent it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rankside import secrets
from rankside.identity import Hello
from rankside_agent.snapshot import config_text

Told = Mapping[str, Any]  # a hello's `launch`


def contents(hello: Hello, launch: Told, attempt: int) -> dict[str, bytes]:
    """By file name; a part that an older client did not tell is left out."""
    made = {name: make(hello, launch, attempt) for name, make in FILES.items()}
    return {name: text.encode("utf-8", "backslashreplace") for name, text in made.items() if text}


def _config(hello: Hello, launch: Told, attempt: int) -> str:
    values = secrets.masked_params({**hello.config, **launch.get("hidden", {})})
    title = (
        f"resolved configuration of {hello.exp_name}, attempt {attempt}; a file for rankside.init(config=...)"
    )
    return config_text.write(values, launch.get("given", {}), title) if values else ""


def _environment(_hello: Hello, launch: Told, _attempt: int) -> str:
    found = launch.get("environ", {})
    return _json(dict(sorted(secrets.safe_environ(found).items()))) if found else ""


def _command(hello: Hello, launch: Told, attempt: int) -> str:
    told = {name: launch[name] for name in ("argv", "cwd") if name in launch}
    own = ("exp_name", "exp_root", "team", "user", "module", "rank", "world_size", "host", "started")
    return _json({**told, **{name: getattr(hello, name) for name in own}, "attempt": attempt})


def _versions(hello: Hello, launch: Told, _attempt: int) -> str:
    return _json(launch.get("versions") or {"rankside": hello.version})


def _packages(_hello: Hello, launch: Told, _attempt: int) -> str:
    found = launch.get("packages", [])
    return "".join(f"{' '.join(line.split())}\n" for line in found)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str)


FILES: dict[str, Callable[[Hello, Told, int], str]] = {
    "config.yaml": _config,
    "env.json": _environment,
    "command.json": _command,
    "versions.json": _versions,
    "packages.txt": _packages,
}
GIT = "git.json"
HARDWARE = "hardware-{host}.json"  # of every node
