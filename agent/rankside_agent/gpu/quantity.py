"""A number with its unit, as the tools write it.

Separate because one value comes as `288`, `"288"`, `"288 MB"`, `{"value": 288, "unit": "MB"}`, `(132Mhz)`,
`42.0\N{DEGREE SIGN}C` or `N/A`, by tool and version.
"""

from __future__ import annotations

import re
from typing import Any

_QUANTITY = re.compile(r"\(?\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-zA-Z%\u00b0]{0,6})\s*\)?")
# The tools shift by 10, 20 and 30 bits, whatever they call it: an MI300X has 196592 of amd-smi's MB
_BYTES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTE_UNIT = re.compile(r"b|bytes?|[kmgt]i?b")


def number(told: Any) -> float | None:
    """The number, whatever its unit; None where there is none."""
    found = _split(told)
    return float(found[0]) if found else None


def count(told: Any) -> int | None:
    """A whole number without a unit."""
    found = _split(told)
    return int(found[0]) if found and not found[1] and "." not in found[0] else None


def size(told: Any, unit: str = "b") -> int | None:
    """Bytes. `unit` is that of a number without one."""
    found = _split(told)
    if not found:
        return None
    digits, own = found[0], (found[1] or unit).lower()
    if not _BYTE_UNIT.fullmatch(own):
        return None
    scale = _BYTES[own[0]]
    return int(digits) * scale if "." not in digits else round(float(digits) * scale)


def _split(told: Any) -> tuple[str, str] | None:
    if isinstance(told, dict):
        unit = told.get("unit")
        found = _split(told.get("value")) if not isinstance(told.get("value"), dict) else None
        return (found[0], unit.strip() if isinstance(unit, str) else found[1]) if found else None
    if isinstance(told, bool) or not isinstance(told, (str, int, float)):
        return None
    try:
        match = _QUANTITY.fullmatch(str(told).strip())
    except ValueError:  # an int of thousands of digits
        return None
    return (match[1], match[2]) if match else None
