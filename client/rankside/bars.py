"""Progress bars as they are drawn on one line: where one stands, and when a state of it is worth a line.

Separate from the splitting of lines because the forms are other people's: tqdm's with a total and without,
and rich's. A bar is known by its form alone, at the start of the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

EVERY = 5.0  # seconds between two states of one bar
_MOST = 64  # bars remembered at once
_MOST_ALIKE = 8  # bars whose names differ in whole numbers only; more, and the numbers are no part of a name
_LOOKED_AT = 2000  # characters of a line; a bar is as wide as a terminal
_INSIDE = r"(?:[^\[\]]|\[[^\[\]]*\])*"
_COUNT = r"[\d.]+(?:[kMGTPEZY](?![a-z]))?"
_COLOUR = r"(?:\x1b\[[\d;]*m)*"
# tqdm's `{desc}: {percentage}%|{bar}| {n}/{total} [{elapsed}<{remaining}, {rate}{postfix}]`, then the one
# without a total, then rich's heavy lines with a share or a time behind them: without, it is a ruled line
_FORMS = (
    re.compile(
        rf"(?P<desc>.{{0,300}}?)(?<![\d.])\d{{1,3}}%\|[^|]{{0,500}}\| {{0,20}}(?P<count>{_COUNT})"
        rf"/(?P<total>{_COUNT}|\?)(?: \[\d+:\d\d{_INSIDE}\])?",
        re.DOTALL,
    ),
    re.compile(
        rf"(?P<desc>.{{0,300}}?)(?<![\d.])(?P<count>{_COUNT})[a-zA-Z]{{1,20}}(?P<total>)"
        rf" \[[\d:]+:\d\d, {{1,20}}[\d.?]+[kMGTPEZY]?[a-zA-Z]{{1,20}}/{_INSIDE}\]",
        re.DOTALL,
    ),
    re.compile(
        rf"(?P<desc>[^\u2500-\u257f]{{0,300}}?){_COLOUR}[━╸╺](?:{_COLOUR}[━╸╺]){{2}}[^\n┏┓┳┡┩╇┗┛┻┣┫╋]*?"
        r"(?:(?<![\d.])(?P<count>\d{1,3})%|\d:\d\d|-:--:--)(?P<total>)[^\n]*",
    ),
)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FRACTIONS = re.compile(r"\d*\.\d+(?:e[-+]?\d+)?")
_NUMBERS = re.compile(r"\d+")
_SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24}


class Bar(NamedTuple):
    """One state: which bar it is of, how far that is, and what was printed right behind it."""

    name: str
    text: str
    at: float
    done: bool
    rest: str


def bar_of(text: str) -> Bar | None:
    """The bar that the line begins with, if it does."""
    if not ("%|" in text or " [" in text or "━" in text or "╸" in text):
        return None
    for form in _FORMS:
        found = form.match(text, 0, _LOOKED_AT)
        if found is not None:
            break
    else:
        return None
    rest = text[found.end() :].strip(" ")
    name = _FRACTIONS.sub("#", _CONTROL.sub("", found["desc"]).strip())[:60] + "/" + found["total"]
    done = found["count"] == found["total"] != ""
    state = text[: found.end()].rstrip(" ")
    return Bar(name, state, _number(found["count"] or ""), done, "" if is_blank(rest) else rest)


def is_blank(text: str) -> bool:
    """Whether nothing is to be seen of it."""
    return not text or text.isspace() or ("\x1b" in text and not _CONTROL.sub("", text).strip())


def _number(text: str) -> float:
    try:
        return float(text.rstrip("kMGTPEZY") or 0) * _SUFFIXES.get(text[-1:], 1)
    except ValueError:
        return 0.0


class _Drawn:
    """What was shown of one bar, and the newest state that was not."""

    def __init__(self) -> None:
        self.shown_at = self.last_at = float("-inf")
        self.full_at: float | None = None  # when it was first drawn full, and its end is still to come
        self.full_shown = False
        self.shown = self.held = ""
        self.count = 0.0

    def begin(self) -> None:
        """Another bar of this name."""
        self.held, self.last_at, self.full_at, self.full_shown = "", float("-inf"), None, False

    def show(self, text: str, now: float) -> str:
        """This is the state that is to be seen."""
        self.shown, self.held, self.shown_at = text, "", now
        self.full_shown, self.full_at = self.full_shown or self.full_at is not None, None
        return text


class Bars:
    """Lets through a state every EVERY seconds, and the last one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._drawn: dict[str, _Drawn] = {}
        self._alike: dict[str, set[str]] = {}  # names without their numbers, and the names

    def __bool__(self) -> bool:
        """Whether any was drawn."""
        return bool(self._drawn)

    def see(self, name: str, text: str, count: float, ended: bool, full: bool = False) -> Iterator[str]:
        """A state was drawn; `ended` where its line was. Yields what to record.

        A `full` bar is drawn once more where it ends, and that state is its last.
        """
        now = self._clock()
        key = self._key(name)
        drawn = self._drawn.get(key)
        if drawn is None:
            if len(self._drawn) >= _MOST:
                yield from self._forgotten()
            drawn = self._drawn[key] = _Drawn()
        # it goes back: another bar of this name, so that was the last of the one before
        if count < drawn.count and key == name:
            if drawn.held:
                yield drawn.held
            drawn.begin()
        drawn.count = count
        if text == drawn.shown and not (full and ended):
            drawn.held, drawn.full_at = "", None
        elif full:
            yield from self._full(drawn, text, now, ended)
        elif now - (drawn.last_at if ended else drawn.shown_at) >= EVERY:
            drawn.last_at = now if ended else drawn.last_at
            yield drawn.show(text, now)
        else:
            drawn.held = text

    def _full(self, drawn: _Drawn, text: str, now: float, ended: bool) -> Iterator[str]:
        if drawn.full_shown and (not ended or text == drawn.shown or now - drawn.last_at < EVERY):
            drawn.held, drawn.last_at = "", now  # drawn again, at another speed
        elif ended:
            drawn.full_at, drawn.last_at = now, now
            yield drawn.show(text, now)
        else:
            drawn.full_at = drawn.full_at or now
            drawn.held = text

    def overdue(self) -> Iterator[str]:
        """States that have waited long enough for a newer one."""
        now = self._clock() if self._drawn else 0.0
        for drawn in self._drawn.values():
            if drawn.held and now - (drawn.full_at or drawn.shown_at) >= EVERY:
                drawn.last_at = now if drawn.full_at else drawn.last_at
                yield drawn.show(drawn.held, now)

    def erased(self) -> Iterator[str]:
        """What was drawn last is wiped away: a full bar ends there."""
        now = self._clock() if self._drawn else 0.0
        for drawn in self._drawn.values():
            if drawn.held and drawn.full_at:
                drawn.last_at = now
                yield drawn.show(drawn.held, now)

    def overwritten(self, name: str) -> None:
        """The newest state of it stands nowhere any more."""
        if name in self._drawn:
            self._drawn[name].held = ""

    def rest(self) -> Iterator[str]:
        """The last state of every bar, where it was not shown."""
        for drawn in self._drawn.values():
            if drawn.held:
                yield drawn.held
        self._drawn.clear()

    def _key(self, name: str) -> str:
        """The name; without its numbers, where these change too often to be part of one ("step 17: 3%|")."""
        bare = _NUMBERS.sub("#", name)
        if bare == name:
            return name
        if len(self._alike) >= _MOST and bare not in self._alike:
            self._alike.clear()
        alike = self._alike.setdefault(bare, set())
        if name in alike:
            return name
        if len(alike) < _MOST_ALIKE:
            alike.add(name)
            return name
        for each in alike:
            self._drawn.pop(each, None)
        return bare

    def _forgotten(self) -> Iterator[str]:
        eldest = min(self._drawn, key=lambda key: self._drawn[key].shown_at)
        held = self._drawn.pop(eldest).held
        if held:
            yield held
