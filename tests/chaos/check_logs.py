"""The verdict on log files: each record that returned is there once, in order, where its level belongs.

Separate from the trackers' part: they share the oracle and nothing else. Imports nothing of rankside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.log_pieces import LEAST, Piece, Shelf, shelves
from tests.chaos.testimony import LEVELS, Account, Call

_INTERVAL = 5  # iterations from training line to training line, as ranks are told
_EVENT_LEVEL = 20


def findings(exp: Path, kept: Path, told: list[Account]) -> list[str]:
    """All that is wrong, in words."""
    found = shelves(exp, kept)
    return [
        *(problem for shelf in found for problem in _of_shelf(shelf)),
        *_conserved(found, told),
        *_lines_of_training(found, told),
    ]


def _of_shelf(shelf: Shelf) -> Iterator[str]:
    place = f"{shelf.root} {shelf.label} {shelf.name}"
    seen = [record for piece in shelf.seen for record in piece.records]
    groups = [("seen", seen), *((piece.path.name, piece.records) for piece in shelf.kept)]
    for name, records in groups:
        twice = [key for key, times in Counter(each[:2] for each in records).items() if times > 1]
        if twice:
            yield f"{place} ({name}): {len(twice)} records twice: {twice[:5]}"
        last: dict[str, int] = {}
        for record in records:
            if record.number < last.get(record.stream, 0):
                yield f"{place} ({name}): {record.stream} {record.number} after {last[record.stream]}"
            last[record.stream] = max(record.number, last.get(record.stream, 0))
            if not record.whole:
                yield f"{place} ({name}): {record.stream} {record.number} is not whole"
            if LEVELS.get(record.level, _EVENT_LEVEL) < LEAST[shelf.name]:
                yield f"{place} ({name}): {record.stream} {record.number} is {record.level}"
    for piece in [*shelf.seen, *shelf.kept]:
        halves = int(piece in shelf.kept)  # it may have been taken away in the middle of a write
        yield from (f"{place} ({piece.path.name}): {problem}" for problem in _of_piece(piece, halves))


def _of_piece(piece: Piece, halves: int) -> Iterator[str]:
    if piece.text and not piece.text.endswith("\n") and not halves:
        yield f"ends in the middle of a line: {piece.text[-80:]!r}"
    if "\0" in piece.text:
        yield "holds NUL"
    whole = sum(1 for record in piece.records if record.level)
    if not whole <= piece.begun <= whole + halves:
        yield f"{piece.begun} records begin, {whole} end"
    yield from piece.losses()


def _conserved(found: list[Shelf], told: list[Account]) -> Iterator[str]:
    """Each call against all files that should hold it; what is in none was announced as dropped."""
    seen, anywhere = _places(found)
    missing: Counter[tuple[str, str]] = Counter()  # by rank and kind: returned, and nowhere
    unsure: Counter[tuple[str, str]] = Counter()  # never returned, and nowhere
    for account in told:
        label = f"rank-{account.facts['rank']}"
        for stream, call, returned in account.calls("log", "event"):
            key = (stream, call.number)
            wanted = _names(call)
            holds = anywhere.get(key, set())
            if not holds:
                (missing if returned else unsure)[label, call.kind] += 1
            elif holds != wanted:
                yield f"{label}: {stream} {call.number} {call.what}: in {sorted(holds)}, not {sorted(wanted)}"
            times = {name: count for name in wanted if (count := seen[name, key]) > 1}
            if times:
                yield f"{label}: {stream} {call.number} is there again: {times}"
    known = {(stream, call.number) for each in told for stream, calls in each.begun.items() for call in calls}
    strange = [key for key in anywhere if key not in known]
    if strange:
        yield f"{len(strange)} records that nobody said: {strange[:5]}"
    for account in told:  # the exception that ends it is a record, too, and of nobody's testimony
        unsure[f"rank-{account.facts['rank']}", "log"] += account.facts["ending"] == "raise"
    yield from _accounted(found, missing, unsure)


def _places(
    found: list[Shelf],
) -> tuple[Counter[tuple[str, tuple[str, int]]], dict[tuple[str, int], set[str]]]:
    seen: Counter[tuple[str, tuple[str, int]]] = Counter()
    anywhere: dict[tuple[str, int], set[str]] = {}
    for shelf in found:
        for piece in shelf.seen:
            seen.update((shelf.name, record[:2]) for record in piece.records)
        for piece in [*shelf.seen, *shelf.kept]:
            for record in piece.records:
                anywhere.setdefault(record[:2], set()).add(shelf.name)
    return seen, anywhere


def _names(call: Call) -> set[str]:
    level = LEVELS[call.what["level"]] if call.kind == "log" else _EVENT_LEVEL
    return {name for name, least in LEAST.items() if level >= least}


def _accounted(
    found: list[Shelf], missing: Counter[tuple[str, str]], unsure: Counter[tuple[str, str]]
) -> Iterator[str]:
    labels = {shelf.label for shelf in found if shelf.label != "node"} | {label for label, _ in missing}
    for label in sorted(labels):
        least, most = announced(found, label)
        for kind in ("log", "event"):
            count, open_ = missing[label, kind], unsure[label, kind]
            if not count - most[kind] <= 0 or not least[kind] <= count + open_:
                told = f"{least[kind]} to {most[kind]}"
                yield f"{label}: {count} {kind} records lost ({open_} of open calls), announced {told}"


def announced(found: list[Shelf], label: str) -> tuple[Counter[str], Counter[str]]:
    """Dropped records that a rank's log tells of, at least and at most: lines may be in files taken away."""
    mine: dict[str, list[Shelf]] = {}
    for shelf in found:
        if shelf.label == label:
            mine.setdefault(shelf.name, []).append(shelf)
    untouched = [each for each in mine.values() if not any(shelf.kept for shelf in each)]
    chosen = (untouched or list(mine.values()) or [[]])[0]
    least, most = Counter[str](), Counter[str]()
    for shelf in chosen:
        for pieces, sums in ((shelf.seen, (least, most)), (shelf.kept, (most,))):
            for counts in (counts for piece in pieces for _, counts in piece.drops()):
                for each in sums:
                    each.update(counts)
    return least, most


def _lines_of_training(found: list[Shelf], told: list[Account]) -> Iterator[str]:
    """One for every sample of the last rank at an interval, none twice."""
    for label in {shelf.label for shelf in found} - {"node"}:
        mine = [shelf for shelf in found if shelf.label == label and shelf.name == "info"]
        if any(shelf.kept for shelf in mine) or announced(found, label)[1]["throughput"]:
            continue
        shown = Counter(number for shelf in mine for piece in shelf.seen for number in piece.iterations())
        sure, possible = Counter[int](), Counter[int]()
        for account in told:
            last = account.facts["rank"] == account.facts["world"] - 1 and not account.facts["child"]
            if last and label == f"rank-{account.facts['rank']}":
                for _, call, returned in account.calls("throughput"):
                    if call.what["step"] % _INTERVAL == 0:
                        possible[call.what["step"]] += 1
                        sure[call.what["step"]] += returned
        lost, more = sure - shown, shown - possible
        if lost or more:
            yield f"{label}: training lines missing {dict(lost)}, too many {dict(more)}"
