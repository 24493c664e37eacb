"""Printed text in whatever pieces it comes, made into the lines that are recorded.

Separate from those who take the text because it is pure: the same text gives the same lines however it is
cut, and time is an argument.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from rankside.bars import Bars, bar_of, is_blank

LONGEST = 64 << 10  # characters of a line that are kept
# What ends a line, and what only goes back on it: a return, or the cursor moved up, as nested bars do.
# Returns at the very end of the text may be the beginning of a line's end.
_END = re.compile(r"\r*\n|\r+(?=[^\r\n])|\x1b\[\d{0,4}A")
_SPECIAL = re.compile(r"[\r\n\x1b]")
_LONGEST_END = 8
_ERASED = re.compile(
    r"(?:\x1b\[[\d;?]*[KJGhl])+"
)  # where a bar stood, or the cursor hidden: nothing to be seen
_OTHER = ""  # the name of what is drawn over and has no form that is known


class PrintedLines:
    """One stream's text. Every call returns the lines that are complete by then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._bars = Bars(clock)
        self._head = ""  # of a line that is longer than LONGEST
        self._beyond = 0  # characters of it that are not kept
        self._pending = ""
        self._searched = 0  # characters of that in which no end is
        self._at_bar = False  # what follows is drawn over a bar, or right below it

    def feed(self, text: str) -> list[str]:
        """A piece of the stream."""
        text = self._pending + text
        found: list[str] = []
        at = 0
        for start, stop, ended in _ends(text, self._searched):
            self._take(text[at:start], ended, found)
            at = stop
        self._keep(text[at:])
        return found

    def write(self, text: str) -> list[str]:
        """The same, of one call of write(): it is no continuation of a bar that was drawn before."""
        pending = self._pending
        if not pending and not self._head and len(text) <= LONGEST and not _SPECIAL.search(text):
            self._pending, self._searched = text, max(0, len(text) - _LONGEST_END)  # most calls
            return []
        if pending and text[:1] not in "\r\n" and not text.isspace() and bar_of(pending) is not None:
            found: list[str] = []
            self._pending, self._searched = "", 0
            self._take(pending, False, found)
            return found + self.feed(text)
        return self.feed(text)

    @property
    def unfinished(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._pending or self._head)

    def overdue(self) -> list[str]:
        """The newest states of bars, where those shown are old."""
        if not self._pending and not self._bars:
            return []
        bar = bar_of(self._pending)
        shown = [] if bar is None else list(self._bars.see(bar.name, bar.text, bar.at, False, bar.done))
        return shown + list(self._bars.overdue())

    def finish(self) -> list[str]:
        """What is left: unfinished text, and the last states of bars."""
        found: list[str] = []
        pending, self._pending, self._searched = self._pending, "", 0
        if pending or self._head:
            self._take(pending, True, found)
        return [*found, *self._bars.rest()]

    def _keep(self, rest: str) -> None:
        if self._head or len(rest) > LONGEST + _LONGEST_END:
            if not self._head:
                self._head, rest = rest[:LONGEST], rest[LONGEST:]
            self._beyond += max(0, len(rest) - _LONGEST_END)
            rest = rest[-_LONGEST_END:]
        self._pending = rest
        self._searched = max(0, len(rest) - _LONGEST_END)

    def _take(self, text: str, ended: bool, found: list[str]) -> None:
        """One line, or (not `ended`) what the next text is drawn over."""
        text = text.rstrip("\r")
        if text.startswith("\x1b") and (erased := _ERASED.match(text)) is not None:
            text = text[erased.end() :]
        if self._head or len(text) > LONGEST:
            text = self._cut(text)
        bar = bar_of(text)
        if bar is not None:
            found += self._bars.see(bar.name, bar.text, bar.at, ended, bar.done)
            if bar.rest:
                found.append(bar.rest)
            self._at_bar = True
        elif is_blank(text):
            if ended and not self._at_bar:
                found.append(text)
            elif text and not ended:
                found += self._bars.erased()
            self._at_bar = self._at_bar or not ended
        elif ended:
            self._bars.overwritten(_OTHER)
            found.append(text)
            self._at_bar = False
        else:
            found += self._bars.see(_OTHER, text, 0.0, False)
            self._at_bar = True

    def _cut(self, text: str) -> str:
        length = len(self._head) + self._beyond + len(text)
        kept = self._head or text[:LONGEST]
        self._head, self._beyond = "", 0
        return f"{kept} ... [rankside: cut here, {length} characters in all]" if length > LONGEST else text


def _ends(text: str, start: int) -> Iterator[tuple[int, int, bool]]:
    """Where each line's end, or what goes back on it, begins and stops, and whether it is an end."""
    if "\r" in text or "\x1b" in text:
        for found in _END.finditer(text, start):
            yield found.start(), found.end(), found[0].endswith("\n")
        return
    at = text.find("\n", start)  # the rest of the pattern asks at each character: half of a helper's time
    while at >= 0:
        yield at, at + 1, True
        at = text.find("\n", at + 1)
