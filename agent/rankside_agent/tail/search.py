"""Find matching records from the end back without parsing the others, gigabytes at the speed of a search.

Most patterns hold words that every match contains. Only a record with such a word is put together and tested.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankside_agent.tail import assembly, lines
from rankside_agent.tail.family import START, Family, cut
from rankside_agent.tail.filters import Wanted
from rankside_agent.tail.lines import Read
from rankside_agent.tail.names import Order, Position
from rankside_agent.tail.piece import Piece
from rankside_agent.tail.record import Record

_LEAST, _LONGEST = 2, 1000  # bytes of a word worth the search
_FIRST, _MOST = 1 << 14, 1 << 20  # bytes searched at once, at first and at most
_VAIN = 100  # words found in records that do not match: beyond this, parsing all costs less

_Found = tuple[Position, Record]


def wanted_backward(family: Family, wanted: Wanted, stop: Position = START) -> Iterator[_Found]:
    """The wanted records of a log from its end back to `stop`."""
    found = [] if wanted.pattern is None else words(wanted.pattern.pattern)
    return _Search(family, wanted, found, stop).run()


def words(pattern: str) -> list[bytes]:
    """Texts which every match of a regular expression holds, the longest first; none where in doubt."""
    parts, rest = [""], iter(pattern)
    for char in rest:
        if char in "|()[]{}\n\ufffd":
            return []
        if char in ".^$+":
            parts.append("")
        elif char in "*?":
            parts[-1] = parts[-1][:-1]
            parts.append("")
        else:
            literal = next(rest, "a") if char == "\\" else char
            if char == "\\" and literal.isalnum():
                return []
            parts[-1] += literal
    found = sorted({part.encode("utf-8", "replace") for part in parts}, key=len, reverse=True)
    return [each for each in found if _LEAST <= len(each) <= _LONGEST]


class _Search:
    def __init__(self, family: Family, wanted: Wanted, words: list[bytes], stop: Position) -> None:
        self._family = family
        self._wanted = wanted
        self._words = words
        self._stop = stop
        self._before: Position | None = None  # all from here on has been searched
        self._vain = 0

    def run(self) -> Iterator[_Found]:
        while self._words:
            yield from self._by_word()
            if self._vain <= _VAIN:
                return
            del self._words[0]  # it stands in every other record, perhaps another one does not
            self._vain = 0
        rest = self._family.backward(self._stop, self._before)
        yield from (found for found in rest if self._wanted(found[1]))

    def _by_word(self) -> Iterator[_Found]:
        """All wanted records, or those until it shows that most records hold the word in vain."""
        for order, piece, end in self._family.pieces_backward(self._stop, self._before):
            for position, record in self._hits(piece, order, end):
                if position < self._stop:
                    return
                self._before = position
                if self._wanted(record):
                    self._vain -= 1
                    yield position, record
                else:
                    self._vain += 1
                    if self._vain > _VAIN:
                        return

    def _hits(self, piece: Piece, order: Order, end: int) -> Iterator[_Found]:
        at, kind = end, self._family.log.kind
        while (hit := _last(piece.read, self._words[0], at)) >= 0:
            back = lines.backward(piece.read, lines.next_line(piece.read, hit, end))
            begun = assembly.backward(((Position(order, offset), line) for offset, line in back), kind)
            at = next(begun)[0].offset
            yield Position(order, at), next(assembly.forward(cut(piece, at, end), kind))


def _last(read: Read, word: bytes, end: int) -> int:
    """The offset of the last occurrence before `end`, or -1."""
    here, size = end, _FIRST
    while here > 0:
        start = max(0, here - size)
        found = read(start, here - start).rfind(word)
        if found >= 0:
            return start + found
        here = start + len(word) - 1 if start else 0
        size = min(2 * size, _MOST)
    return -1
