"""A choice out of a table of names: the class is imported once it is chosen.

Separate because there are several such tables, and each error is to name what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def load(what: str, table: Mapping[str, str], name: str) -> Any:
    """The object that `table` has as "module:Class". Raises ValueError, and what its import raises."""
    if name not in table:
        raise ValueError(f"{what}: unknown kind {name!r}; known: {', '.join(sorted(table))}")
    module, _, attribute = table[name].partition(":")
    return getattr(import_module(module), attribute)
