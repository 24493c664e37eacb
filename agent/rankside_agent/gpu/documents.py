"""The JSON in what a tool printed, among warnings before, after and in the middle of it.

Separate because both tools print notices to the same pipe, and each document must be found without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_NOTICE = re.compile(r"^[ \t]*(?:WARNING|ERROR|INFO|DEBUG|NOTE)\b.*$\n?", re.MULTILINE | re.IGNORECASE)
_START = re.compile(r"[{\[]")
_TRIES = 200  # places that look like the start of a document and are none


def without_notices(text: str) -> str:
    """Without the lines that are for people."""
    return _NOTICE.sub("", text)


def documents(text: str) -> Iterator[Any]:
    """Every JSON object or array; what is none is passed over."""
    rest, at, tries = without_notices(text), 0, 0
    decoder = json.JSONDecoder()
    while tries < _TRIES and (start := _START.search(rest, at)):
        try:
            found, at = decoder.raw_decode(rest, start.start())
        except (ValueError, RecursionError):
            line = rest.find("\n", start.start())
            at, tries = (line + 1 if line >= 0 else len(rest)), tries + 1
        else:
            yield found
