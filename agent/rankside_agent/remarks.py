"""A sink's remark for people: words, which may be cut, and commands on lines of their own, which are not.

Separate because `status` and `replay` both show them, and whoever copies a command needs all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankside_agent.tail.escape import escape

COMMAND = "    "  # begins a line that is a command


def lines(text: str, longest: int, more: str = "...") -> Iterator[str]:
    """Line by line, harmless on a terminal."""
    for line in text.split("\n"):
        plain = escape(line)
        yield plain if line.startswith(COMMAND) or len(plain) <= longest else f"{plain[:longest]}{more}"
