"""The resolved configuration as `config.yaml`: a line for each parameter, and whether somebody gave it.

Separate because it is read in two ways: by `rankside.init(config=...)`, as any YAML, and by the comparison,
which wants to know what was given. JSON is YAML too, and needs no library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_LINE = re.compile(r"(?P<name>\"(?:[^\"\\]|\\.)*\"|[\w.\-]+): (?P<value>.*)")
_GIVEN = "  # given: "
_PLAIN = re.compile(r"[A-Za-z_][\w.\-]*")
_DECODER = json.JSONDecoder()


class Resolved(NamedTuple):
    """Values by name, and for those that were given, where."""

    values: dict[str, Any]
    given: dict[str, str]


def write(values: Mapping[str, Any], given: Mapping[str, str], title: str) -> str:
    """Sorted as the parameters are. `title` becomes a comment at the top."""
    lines = [f"# {_one_line(title)}"]
    for name, value in values.items():
        told = f"{_GIVEN}{_one_line(given[name])}" if name in given else ""
        key = name if _PLAIN.fullmatch(name) else json.dumps(name)
        lines.append(f"{key}: {json.dumps(value, default=str)}{told}")
    return "\n".join((*lines, ""))


def read(text: str) -> Resolved:
    """What `write` has written; lines that it cannot have written are passed over."""
    values: dict[str, Any] = {}
    given: dict[str, str] = {}
    for line in text.split("\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        try:
            name = json.loads(found["name"]) if found["name"].startswith('"') else found["name"]
            value, end = _DECODER.raw_decode(found["value"])
        except (ValueError, RecursionError):
            continue
        values[name] = value
        if found["value"].startswith(_GIVEN, end):
            given[name] = found["value"][end + len(_GIVEN) :]
    return Resolved(values, given)


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"[^\x20-\x7e]", "?", text).split())
