"""The one fixed rule that makes names legal in MLflow.

Separate because metrics, params and tags share it, and because it must never change: it decides under which
name a run that goes on for weeks, and the runs it is compared with, are found.

Legal is what MLflow's own check takes (letters, digits and `_ - . : /` and blanks, at most 250, nothing that
would be another path), except that ours looks at the whole name: MLflow's overlooks a newline at the end.
Any other name is changed and gets a short hash of the original, so that no two names become one:

    throughput(tps)            throughput_tps-924ed0
    mfu(%)                     mfu_pct-8ae227
    memory/max_active(GiB)     memory/max_active_GiB-2f6cc4
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from hashlib import sha256

LONGEST = 250  # characters, MLflow's own limit
LONGEST_CHANGED = 200  # of a changed name; with a prefix it still makes a legal tag
MOST_REMEMBERED = 10_000

_LEGAL = re.compile(r"[/\w.\- :]+")
_LEGAL_WITHOUT_COLON = re.compile(r"[/\w.\- ]+")
_CHANGED = re.compile(r".*-[0-9a-f]{6}", re.DOTALL)  # looks like one of ours: a name that could meet one
_WORDS = {"%": "pct", "@": "_at_", "#": "num", "&": "_and_", "+": "plus"}
_ILLEGAL = re.compile(r"[^\w.\- ]+")
_BLANKS = re.compile(r"_{2,}")


class Names:
    """Legal names for original ones. `changed` is told once of each that had to be changed."""

    def __init__(self, changed: Callable[[str, str], None], colons: bool = True) -> None:
        self._changed = changed
        self._colons = colons
        self._known: dict[str, str] = {}

    @property
    def colons(self) -> bool:
        """Whether this server takes names with a colon: those before 2.16, and those on Windows, do not."""
        return self._colons

    def forbid_colons(self) -> None:
        """From now on a colon is no legal character."""
        self._colons = False
        self._known.clear()

    def legal(self, name: str) -> str:
        """The name in MLflow."""
        found = self._known.get(name)
        if found is None:
            found = legal(name, self._colons)
            if len(self._known) >= MOST_REMEMBERED:  # names without end: told of again, and memory is bounded
                self._known.clear()
            self._known[name] = found
            if found != name:
                self._changed(found, name)
        return found

    def behind(self, prefix: str, name: str) -> str:
        """The key of something about `name`."""
        found = self.legal(name)
        if len(found) > LONGEST_CHANGED:
            found = _changed(name)
        return f"{prefix}{found}"


def legal(name: str, colons: bool = True) -> str:
    """The name itself where MLflow takes it, else a readable one that no other name becomes."""
    pattern = _LEGAL if colons else _LEGAL_WITHOUT_COLON
    if len(name) <= LONGEST and pattern.fullmatch(name) and _is_itself(name) and not _CHANGED.match(name):
        return name
    return _changed(name)


def _changed(name: str) -> str:
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{_readable(name)[: LONGEST_CHANGED - 7].rstrip('/ ')}-{digest}"


def _is_itself(name: str) -> bool:
    return posixpath.normpath(name) == name and not name.startswith(("..", "/")) and name != "."


def _readable(name: str) -> str:
    for symbol, word in _WORDS.items():
        name = name.replace(symbol, word)
    parts = (_BLANKS.sub("_", _ILLEGAL.sub("_", part)).strip("_ ") for part in name.split("/"))
    return "/".join(part for part in parts if part.strip(".")) or "unnamed"
