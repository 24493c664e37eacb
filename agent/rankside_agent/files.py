"""Small files that must be whole or absent: written beside, then put in place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def replace(path: Path, data: bytes) -> None:
    """Write `data` so that a reader, or a crash, sees the old content or the new. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fresh.write_bytes(data)
        os.replace(fresh, path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def replace_json(path: Path, value: Any) -> None:
    """As `replace`, for a value that people may read too."""
    replace(path, json.dumps(value, indent=1, default=str).encode())


def read_json(path: Path) -> Any:
    """The value, or None where there is none or it is no JSON."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
