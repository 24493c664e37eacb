"""Find matching records from the end back without parsing the others, gigabytes at the speed of a search.

Most patterns hold words that every match contains. Only a record with such a word is put together and tested.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankside_agent.tail import assembly, lines
from rankside_agent.tail.family import START, Family, cut
from rankside_agent.tail.filters import Wanted
from rankside_agent.tail.names import LIVE, Order, Position
from rankside_agent.tail.piece import Piece
from rankside_agent.tail.record import Record
from rankside_agent.tail.since import times

_LEAST, _LONGEST = 2, 1000  # bytes of a word worth the search
_FIRST, _MOST = 1 << 14, 1 << 20  # bytes searched at once, at first and at most
_VAIN = 100  # words found in records that do not match: beyond this, parsing all costs less
_MARK = 256  # records parsed in vain before a word on how far back we are

# A place, the record there and its time; or no record, for there is none from this place and time on: whoever
# reads several logs can then stop going back in each as soon as the others have given enough.
Found = tuple[Position, Record | None, float | None]


def wanted_backward(family: Family, wanted: Wanted, stop: Position = START) -> Iterator[Found]:
    """The wanted records of a log from its end back to `stop`, and how far it has come without any."""
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

    def run(self) -> Iterator[Found]:
        while self._words:
            yield from self._by_word(self._words.pop(0))
            if self._vain <= _VAIN:
                return
            self._vain = 0  # that word stands in every other record, perhaps another one does not
        yield from self._by_parsing()

    def _by_parsing(self) -> Iterator[Found]:
        for count, (position, record) in enumerate(self._family.backward(self._stop, self._before)):
            if self._wanted(record):
                yield position, record, record.when
            elif count % _MARK == 0:
                yield position, None, record.when

    def _by_word(self, word: bytes) -> Iterator[Found]:
        """All wanted records, or those until it shows that most records hold the word in vain."""
        for order, piece, end in self._family.pieces_backward(self._stop, self._before):
            for found in self._in_piece(piece, order, end, word):
                if found[0] < self._stop:
                    return
                self._before = found[0]
                yield found
                if self._vain > _VAIN:
                    return

    def _in_piece(self, piece: Piece, order: Order, end: int, word: bytes) -> Iterator[Found]:
        at, size = end, _FIRST
        while at > 0:
            start = max(0, at - size)
            hit = piece.read(start, at - start).rfind(word)
            if hit < 0:
                when = next((when for _, when in times(self._family.log.kind, piece.read, start, at)), None)
                at, size = (start + len(word) - 1 if start else 0), min(2 * size, _MOST)
                yield Position(order, start), None, when
                continue
            at, record = self._record_around(piece, start + hit, end)
            self._vain += -1 if self._wanted(record) else 1
            yield Position(order, at), record if self._wanted(record) else None, record.when

    def _record_around(self, piece: Piece, hit: int, end: int) -> tuple[int, Record]:
        """The record that holds this byte, and where it begins."""
        kind = self._family.log.kind
        back = lines.backward(piece.read, lines.next_line(piece.read, hit, end))
        begun = assembly.backward(((Position(LIVE, offset), line) for offset, line in back), kind)
        at = next(begun)[0].offset
        return at, next(assembly.forward(cut(piece, at, end), kind))
