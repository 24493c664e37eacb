"""Foreign objects as text at a bounded cost: their repr where little lies behind it, else what they are.

Separate from the values that are plain because it looks into other people's objects: a repr of a table, a
model or an array of a million reads all of it, and one that logs would come back here.
"""

from __future__ import annotations

import threading
from typing import Any

_MOST = 300  # things looked at behind one object: more, and its repr is not asked
_LONG = 4096  # characters or bytes that count as one of these
_KNOWN = (type, range, slice, type(_MOST.bit_length), type(lambda: None))  # short, whatever they hold


class _Now(threading.local):
    """Whether this thread is in a repr that was asked here."""

    asking = False


_now = _Now()


def text_of(value: Any) -> str:
    """Its own text, or its type with its shape or length. Raises what its __repr__ raises."""
    if hasattr(value, "__fspath__"):
        return str(value)
    plain: Any = object.__repr__
    if type(value).__repr__ is not plain and not isinstance(value, _KNOWN):
        if _now.asking:
            return f"<{_kind(value)} in a repr that is under way>"
        if not _is_light(value):
            return f"<{_kind(value)}{_size(value)}, its text is left out>"
    before, _now.asking = _now.asking, True
    try:
        return repr(value)
    finally:
        _now.asking = before


def _is_light(value: Any) -> bool:
    left, seen, todo = _MOST, set(), [value]
    while todo and left > 0:
        each = todo.pop()
        if id(each) in seen or isinstance(each, _KNOWN):
            continue
        seen.add(id(each))
        left -= 1
        if isinstance(each, str | bytes | bytearray):
            left -= len(each) // _LONG
        elif isinstance(each, int | float | complex | None):
            continue
        elif _is_array(each) or _length(each) > left:
            return False
        elif isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            todo += each
        else:
            todo += _held(each)
    return not todo


def _held(each: Any) -> list[Any]:
    if isinstance(each, BaseException):
        return list(each.args)
    found = list(vars(each).values()) if hasattr(each, "__dict__") else []
    for kind in type(each).__mro__:
        slots = vars(kind).get("__slots__", ())
        found += [getattr(each, name, None) for name in ([slots] if isinstance(slots, str) else slots)]
    return found


def _is_array(each: Any) -> bool:
    """Whether it has dimensions, and more than one value in them."""
    shape = getattr(each, "shape", None)
    return isinstance(shape, tuple | list) and any(side != 1 for side in shape)


def _length(each: Any) -> int:
    counts = any("__len__" in vars(kind) for kind in type(each).__mro__)  # an Enum's type counts its members
    return len(each) if counts else 0


def _kind(value: Any) -> str:
    return type(value).__name__


def _size(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        dtype = getattr(value, "dtype", None)
        return f" of shape {list(shape)}{'' if dtype is None else f', {dtype}'}"
    length = _length(value)
    return f" of {length} items" if length else ""
