"""One file a command: its help text, its options, what it does."""

from __future__ import annotations

import sys
from typing import NoReturn


def fail(text: str, code: int) -> NoReturn:
    """One line on stderr, and the exit status: 1 the thing asked about is bad, 2 wrong use."""
    sys.stderr.write(f"rankside: {text}\n")
    raise SystemExit(code)
