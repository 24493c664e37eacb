"""What a record holds, and how values become plain: shared by the caller's side and every reader.

Bodies, in the order of their fields (t is wall time in seconds, as a float):

    LOG         t, level number, level name, file stem, line, text
    METRICS     t, step or None, {name: number}
    THROUGHPUT  t, step or None, {field: number}
    PARAMS      t, {name: plain value}
    EVENT       t, name, {field: plain value}
    ARTIFACT    t, path
    MODULE      t, module name
    DROPPED     t, {kind name: count}
    CLOSE       t, status
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgpack

from rankside import readable, wire

MAX_TEXT = wire.MAX_BODY - 4096  # bytes of one log text; the rest of the record fits into what is left
MAX_NAME = 1000  # bytes of the name of an event, a module or a parameter
MOST_ITEMS = 100_000  # of parameters or of an event: a table of names of 20,000 classes is one
MOST_CHARACTERS = 16 << 20
_SHORTEST = 200  # characters that are left of a text when there is no room
_CUT = "... [rankside: cut here, {} items in all]"
_REFUSED = "?"  # key of the mark that stands in place of a value that is no number
_TIMES = ("m", "M")  # kinds of numpy's types: timedelta64, datetime64
_DEPTH = 6  # nesting shown of a parameter; deeper is text


class Log(NamedTuple):
    """One log record; `text` includes the traceback, if there is one."""

    time: float
    level_no: int
    level: str
    file: str
    line: int
    text: str


class Packer:
    """Packs records from any thread, and from a signal handler in the middle of another pack.

    A msgpack packer is twice as fast when it is kept, but holds a buffer that two callers must not share:
    so each call takes one out of a list and puts it back (both atomic). One that lets surrogates through
    is a third slower, and is made only for the text that has one.
    """

    def __init__(self) -> None:
        self._free: list[msgpack.Packer] = []

    def pack(self, value: Any) -> bytes:
        """One record's body."""
        try:
            packer = self._free.pop()
        except IndexError:
            packer = msgpack.Packer(default=number_or_mark)
        try:
            packed: bytes = packer.pack(value)  # on an error it is not put back: its buffer is half full
        except UnicodeEncodeError:
            return self._with_surrogates(value)
        self._free.append(packer)
        return packed

    @staticmethod
    def _with_surrogates(value: Any) -> bytes:
        packer = msgpack.Packer(default=number_or_mark, unicode_errors="surrogatepass")
        packed: bytes = packer.pack(value)
        return packed


def number_or_mark(value: Any) -> Any:  # noqa: PLR0911  one line a form
    """The number in a 0-d tensor, numpy scalar or one-element array, or a mark that says why there is none.

    msgpack calls this only for what is no plain value already. `.item()` is called once at most: on a GPU
    it waits for the device.
    """
    try:
        count = getattr(value, "numel", None) or getattr(value, "size", None)
        count = count() if callable(count) else count
        if count is not None and count != 1:
            return {_REFUSED: f"{type(value).__name__} of shape {list(getattr(value, 'shape', []))}"}
        item = getattr(value, "item", None)
        found = item() if callable(item) else value
        if isinstance(found, str | bytes):
            return {_REFUSED: type(found).__name__}
        kind: Any = type(value)
        if _may_be_masked(kind) and value.mask.any():
            return {_REFUSED: f"{type(value).__name__} whose value is masked"}
        if isinstance(found, int) and -(2**63) <= found < 2**64:
            dtype = getattr(value, "dtype", None)
            if getattr(dtype, "kind", "") in _TIMES:  # in nanoseconds, numpy gives their integer
                return {_REFUSED: f"{type(value).__name__} of type {dtype}"}
            return int(found)
        return float(found)  # numpy's long double has no other plain form; no wire holds a longer integer
    except Exception as error:  # noqa: BLE001  foreign objects may raise anything; training must not see it
        return {_REFUSED: f"{type(value).__name__}: {_one_line(error)}"}


@lru_cache(64)
def _may_be_masked(kind: Any) -> bool:
    """Whether it is numpy's array that hides values, or its one hidden value."""
    return any(each.__name__ == "MaskedArray" for each in kind.__mro__)


def named(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Metrics whose names are no texts: a tuple or an Enum as a key could not be unpacked again."""
    return {key if isinstance(key, str) else _text(key): value for key, value in values.items()}


def spared(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Metrics that cannot be packed because of one of them: that one becomes a mark, the others go."""
    return {name: value if _packs(value) else number_or_mark(value) for name, value in named(values).items()}


def _packs(value: Any) -> bool:
    kind = type(value)  # isinstance would ask the value itself, too
    return issubclass(kind, str | float) or (issubclass(kind, int) and -(2**63) <= value < 2**64)


def numbers(values: Any) -> tuple[dict[str, float], dict[str, str]]:
    """Split unpacked metrics into numbers and refused ones, {name: reason}."""
    good: dict[str, float] = {}
    refused: dict[str, str] = {}
    if not isinstance(values, dict):
        return good, {"": f"{type(values).__name__} is no mapping of names to numbers"}
    for key, value in values.items():
        name = key if isinstance(key, str) else str(key)
        if isinstance(value, int | float):
            good[name] = value if isinstance(value, float) else int(value)
        elif isinstance(value, dict) and list(value) == [_REFUSED]:
            refused[name] = str(value[_REFUSED])
        else:
            refused[name] = f"{type(value).__name__} is no number"
    return good, refused


def halves(values: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Two mappings of half the size, for metrics that do not fit into one record."""
    items = list(values.items())
    middle = len(items) // 2
    return dict(items[:middle]), dict(items[middle:])


def cut(text: str, most: int = MAX_TEXT) -> str:
    """`text`, shortened to what one record may hold, with a mark that names its original length."""
    if len(text) * 4 <= most:  # no character takes more than four bytes
        return text
    raw = text[: most + 1].encode("utf-8", "surrogatepass")  # none takes less than one
    if len(raw) <= most:
        return text
    end = most - 100
    while raw[end] & 0xC0 == 0x80:  # not in the middle of a character
        end -= 1
    kept = raw[:end].decode("utf-8", "surrogatepass")
    return f"{kept} ... [rankside: cut here, {len(text)} characters in all]"


class _Left:
    """What one call may still make plain: its work is bounded, whatever it is given."""

    __slots__ = ("characters", "items")

    def __init__(self, items: int, characters: int) -> None:
        self.items, self.characters = items, characters

    def text(self, text: str) -> str:
        """Of it, what there is room for."""
        found = cut(text, max(_SHORTEST, min(MAX_TEXT, self.characters)))
        self.characters -= len(found)
        return found

    def share(self, count: int) -> int:
        """Of so many items, how many may be shown: no container takes all from those behind it."""
        return count if count * 2 <= self.items else max(0, self.items // 2)


def tree(value: Any, items: int = MOST_ITEMS, characters: int = MOST_CHARACTERS) -> Any:
    """Parameters and event fields as plain values: readable text for all else, cycles and depth marked.

    No more than so many items of containers, and characters; what is cut says so. A mapping's own names and
    plain values are all there.
    """
    left = _Left(items, characters)
    try:
        if isinstance(value, Mapping):
            return _mapping(value.items(), _DEPTH, (id(value),), left)
    except Exception as error:  # noqa: BLE001  a foreign container may raise anything
        return f"<{type(value).__name__}: {_one_line(error)}>"
    return _branch(value, _DEPTH, (), left)


def _branch(value: Any, depth: int, above: tuple[int, ...], left: _Left) -> Any:
    try:
        return _tree(value, depth, above, left)
    except Exception as error:  # noqa: BLE001  a foreign container may raise anything; its neighbours still go
        return f"<{type(value).__name__}: {_one_line(error)}>"


def _tree(value: Any, depth: int, above: tuple[int, ...], left: _Left) -> Any:  # noqa: PLR0911  one line a form
    left.items -= 1
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, str):
        return left.text(str.__str__(value))
    if id(value) in above:
        return "<itself>"
    if depth and isinstance(value, Mapping):
        return _some_of(value, depth, (*above, id(value)), left)
    if depth and isinstance(value, list | tuple | set | frozenset):
        count, within = len(value), (*above, id(value))
        share = left.share(count)
        found = [_branch(item, depth - 1, within, left) for item in islice(value, share)]
        return found if share == count else [*found, _CUT.format(count)]
    if depth and type(value).__name__ in ("Namespace", "SimpleNamespace"):
        return _some_of(vars(value), depth, (*above, id(value)), left)
    return left.text(_text(value))


def _some_of(value: Mapping[Any, Any], depth: int, above: tuple[int, ...], left: _Left) -> dict[str, Any]:
    count = len(value)
    share = left.share(count)
    found = _mapping(islice(value.items(), share), depth, above, left)
    return found if share == count else {**found, "...": _CUT.format(count)}


def _mapping(
    items: Iterable[tuple[Any, Any]], depth: int, above: tuple[int, ...], left: _Left
) -> dict[str, Any]:
    return {
        cut(key if isinstance(key, str) else _text(key), MAX_NAME): _branch(item, depth - 1, above, left)
        for key, item in items
    }


def _text(value: Any) -> str:
    try:
        found = number_or_mark(value) if hasattr(value, "item") else None
        if isinstance(found, int | float) and not math.isnan(found):
            return str(found)
        if isinstance(value, str | bytes | bytearray) and len(value) > MAX_TEXT:
            return f"{value[:_SHORTEST]!r} ... [rankside: cut here, {len(value)} in all]"
        return readable.text_of(value)
    except Exception as error:  # noqa: BLE001  a __repr__ may raise anything
        return f"<{type(value).__name__}: its repr raised {_one_line(error)}>"


def _one_line(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
    except Exception:  # noqa: BLE001  as above, in its __str__
        return type(error).__name__
