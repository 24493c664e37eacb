"""Names and texts as every tracker takes them: nested parameters flat, nothing that cannot be encoded.

Separate because several trackers show the same things, and they are to be found under the same names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_DEPTH = 8


def flat(values: Mapping[Any, Any], above: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, str]]:
    """Nested names joined by dots; lists, and what lies deeper, as JSON."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and value and depth:
            yield from flat(value, f"{path}.", depth - 1)
        elif isinstance(value, dict | list):
            yield path, json.dumps(value, ensure_ascii=False, default=str)
        else:
            yield path, str(value)


def writable(text: str) -> str:
    """With lone surrogates, which no UTF-8 holds, written out."""
    return text.encode("utf-8", "backslashreplace").decode()
