"""Make text from strangers safe for a terminal; apart, for it guards every word that is shown."""

from __future__ import annotations

import re

# C0 but for the tab, DEL, C1, line and paragraph separators, marks and controls of writing direction
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r"}


def escape(text: str) -> str:
    """The text with every character that could steer a terminal written as an escape."""
    return _UNSAFE.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
