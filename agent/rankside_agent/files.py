"""Small files that must be whole or absent: written beside, then put in place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace(path: Path, data: bytes, private: bool = False) -> None:
    """Write `data` so that a reader, or a crash, sees the old content or the new. Raises OSError.

    Nobody but this user can read a `private` one, from its first byte on.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        if private:
            fresh.unlink(missing_ok=True)  # one left behind by a crash would keep its mode
            fresh.touch(0o600, exist_ok=False)
        fresh.write_bytes(data)
        os.replace(fresh, path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def replace_json(path: Path, value: Any, private: bool = False) -> None:
    """As `replace`, for a value that people may read too."""
    replace(path, json.dumps(value, indent=1, default=str).encode(), private)


def outside(path: Path, allowed: tuple[str, ...]) -> str:
    """Why `path` may not be written to, links and `..` resolved; empty where it may. No roots: anywhere."""
    real = Path(os.path.realpath(path))
    roots = [Path(os.path.realpath(root)) for root in allowed]
    if not roots or any(real == root or root in real.parents for root in roots):
        return ""
    return f"{real} is outside the allowed roots {', '.join(map(str, roots))}"


def stored_json(path: Path) -> Any:
    """The value, or None where nothing is there: only then may a caller begin anew.

    Raises OSError for what cannot be read, ValueError for what is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def read_json(path: Path) -> Any:
    """The value, or None where there is none or it is no JSON."""
    try:
        return stored_json(path)
    except (OSError, ValueError):
        return None
