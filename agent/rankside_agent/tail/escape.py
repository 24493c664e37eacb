"""Make text from strangers safe for a terminal; apart, for it guards every word that is shown."""

from __future__ import annotations

import re

# C0 but for the tab, DEL, C1, line and paragraph separators, marks and controls of writing direction
_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER = r"[0-9]{1,3}"
# Weight, underline and colours; not what hides text or blinks
_LOOK = rf"(?:0{{0,2}}|0?[1-4]|2[1-4]|[349][0-7]|10[0-7]|[34]9|[34]8;5;{_NUMBER}|[34]8;2(?:;{_NUMBER}){{3}})"
_COLOUR = re.compile(rf"(\x1b\[{_LOOK}(?:;{_LOOK}){{0,7}}m)")
_RESET = "\x1b[0m"
_SHORT = {"\n": "\\n", "\r": "\\r"}


def escape(text: str) -> str:
    """The text with every character that could steer a terminal written as an escape."""
    return _UNSAFE.sub(_written, text)


def drawn(text: str, *, colour: bool) -> str:
    """As `escape`, but colours of the text's own, as TorchTitan's lines have them, stay or are left out."""
    if "\x1b" not in text:
        return escape(text)
    parts = _COLOUR.split(text)
    if not colour:
        return escape("".join(parts[::2]))
    ended = _RESET if len(parts) > 1 else ""
    return "".join(part if number % 2 else escape(part) for number, part in enumerate(parts)) + ended


def _written(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
