"""What else is asked about a start later: parameters that were given, packages, versions; for its snapshot.

Separate from `launch`, which the trackers show. The packages are told by the names of their folders: a rank
knows what it runs, and an agent outside of its container does not; to read 300 METADATA files would cost a
start more than everything else in it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from rankside.version import __version__

MOST_PACKAGES = 64 << 10  # characters of all; a large environment of 600 has 15,000
_LONGEST = 500  # characters of one text
_MOST_TEXTS = 10_000
_MOST_FOLDERS = 50  # of sys.path; each costs a rank some 0.3 ms
_MOST_NAMES = 20_000  # in a folder of packages
_MOST_BESIDE = 1000  # in any other: the script may lie beside a million samples
_ENDINGS = (".dist-info", ".egg-info")
_NAME = re.compile(r"(?P<name>.+?)-(?P<version>[0-9][^-]*)(?:-py[0-9.]+(?:-.*)?)?", re.DOTALL)
_PARTS: dict[str, type] = {"given": dict, "hidden": dict, "packages": list, "versions": dict}


def tell(values: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """{"given", "hidden", "packages", "versions"}; `given` says of a parameter where its value comes from.

    "hidden" holds in their stead the values in which something secret stands.
    """
    from rankside import secrets

    known = secrets.known_values(os.environ)
    plain = {name: secrets.masked_params(values[name], known) for name in given if name in values}
    return {
        "given": {name: _cut(secrets.masked_text(place, known)) for name, place in given.items()},
        "hidden": {name: _cut(str(value)) for name, value in plain.items() if value != values[name]},
        "packages": packages(sys.path),
        "versions": versions(),
    }


def packages(folders: Iterable[str]) -> list[str]:
    """`name==version` of everything installed there, sorted; of two of a name, what an import would find."""
    found: dict[str, str] = {}
    for folder in list(dict.fromkeys(folders))[:_MOST_FOLDERS]:
        for name in _installed(folder):
            match = _NAME.fullmatch(name)
            title, version = (match["name"], match["version"]) if match else (name, "unknown")
            found.setdefault(re.sub(r"[-_.]+", "-", title).lower(), version)
    return _bounded(sorted(_cut(f"{name}=={version}") for name, version in found.items()))


def versions() -> dict[str, str]:
    """Of the interpreter, and of torch where the training has imported it."""
    torch = sys.modules.get("torch")
    built = getattr(torch, "version", None)
    told = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "rankside": __version__,
        "torch": getattr(torch, "__version__", None),
        "hip": getattr(built, "hip", None),
        "cuda": getattr(built, "cuda", None),
    }
    return {name: _cut(str(value)) for name, value in told.items() if value}


def checked(value: Mapping[Any, Any]) -> dict[str, Any]:
    """A stranger's: the parts that `tell` gives, as far as they are there. Raises ValueError."""
    found: dict[str, Any] = {name: value[name] for name in _PARTS if name in value}
    for name, part in found.items():
        fits: bool = isinstance(part, _PARTS[name])
        if not fits or len(part) > _MOST_TEXTS:
            raise ValueError(f"hello: launch: {name}: is no {_PARTS[name].__name__}, or too long")
        texts = [*part, *part.values()] if isinstance(part, dict) else part
        if not all(
            isinstance(text, str) and len(text) <= _LONGEST + 3 and "\0" not in text for text in texts
        ):
            raise ValueError(
                f"hello: launch: {name}: holds what is no text, a NUL, or a text that is too long"
            )
        if sum(len(text) for text in texts) > 2 * MOST_PACKAGES:
            raise ValueError(f"hello: launch: {name}: holds more than {2 * MOST_PACKAGES} characters")
    return found


def _installed(folder: str) -> list[str]:
    """The names of what has metadata in there, without their endings."""
    if not os.path.isabs(folder) or folder.endswith((".zip", "lib-dynload")):  # "" is where the script lies
        return []
    most = _MOST_NAMES if folder.endswith("-packages") else _MOST_BESIDE
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, most)]
    except (OSError, ValueError):
        return []
    return [name.rpartition(".")[0] for name in names if name.endswith(_ENDINGS)]


def _bounded(texts: list[str]) -> list[str]:
    left = MOST_PACKAGES
    for number, text in enumerate(texts):
        left -= len(text)
        if left < 0:
            return [*texts[:number], f"[rankside: cut here, {len(texts)} packages in all]"]
    return texts


def _cut(text: str) -> str:
    plain = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."
