"""What a user finds in a run's log files, rotated and compressed ones too: records, and the agent's lines.

Separate from the verdict because it only reads: it knows the layout, and not who should have said what.
Imports nothing of rankside: a shared mistake would be seen by neither.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LEAST = {"debug": 10, "info": 20, "warning": 30, "error": 40, "node": 10}
_NAME = re.compile(
    r"(debug|info|warning|error|node-[^.]+)(?:\.(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{6}))?\.log(\.gz)?"
)
_RECORD = re.compile(
    r"\[([A-Z]+)\] *\[[^\]\n]*\] : (?:\[pid \d+\] )?rec (\S+) (\d+) (.*?) #([0-9a-f]{8})\n", re.DOTALL
)
_BEGINS = re.compile(r"\] : (?:\[pid \d+\] )?rec \S+ \d+ ")
_EVENT = re.compile(r"\] : (?:\[pid \d+\] )?event chaos stream=(\S+) number=(\d+)\n")
_FURTHER = re.compile(r"\n\[\d{8} [\d:.]+\]\[rank-[^\]\n]*\]\[[A-Z]+\] *\| ")
_DROPPED = re.compile(r"\] : (?:\[pid \d+\] )?(\d+) records dropped, the spool was full: (.*)\n")
_ITERATION = re.compile(r"\] :  iteration +(\d+)")
# Losses that nothing in a plan excuses
_LOSSES = re.compile(
    r"\] : (\d+ records (?:are missing|of the spool cannot be read|lost: ).*|record \d+ cannot be read.*)"
)


class Record(NamedTuple):
    """A record of ours in a file: whose, its number, its level ("" for an event), and whether it is whole."""

    stream: str
    number: int
    level: str
    whole: bool


@dataclass
class Piece:
    """One file."""

    path: Path
    text: str = field(repr=False)
    records: list[Record] = field(default_factory=list)
    begun: int = 0  # records that begin in it

    def drops(self) -> list[tuple[str, dict[str, int]]]:
        """Announced losses, with the line."""
        return [(found[0], _counts(found[2])) for found in _DROPPED.finditer(self.text)]

    def iterations(self) -> list[int]:
        """Of the training lines."""
        return [int(number) for number in _ITERATION.findall(self.text)]

    def losses(self) -> list[str]:
        """Lines that tell of a loss that should not be."""
        return _LOSSES.findall(self.text)


@dataclass
class Shelf:
    """One log with all its pieces: what a user sees, the oldest first, and what a deed took away."""

    root: str  # "logs", or "logs/attempt-2"
    label: str  # "rank-3", or "node"
    name: str  # debug, info, warning, error, node
    seen: list[Piece] = field(default_factory=list)
    kept: list[Piece] = field(default_factory=list)


def shelves(exp: Path, kept: Path) -> list[Shelf]:
    """All logs of a run."""
    found: dict[tuple[str, str], Shelf] = {}
    named = [(path, str(path.relative_to(exp)), "") for path in exp.glob("logs/**/*.log*")]
    named += [(path, path.name[5:].replace("%", "/"), path.name[:3]) for path in kept.iterdir()]
    ordered = []
    for path, place, taken in named:
        folder, _, name = place.rpartition("/")
        known = _NAME.fullmatch(name)
        if known and path.is_file():
            ordered.append((folder, known[1], taken, known[2] or "~", bool(known[3]), path))
    for folder, stem, taken, _stamp, _gz, path in sorted(ordered):
        shelf = found.setdefault((folder, stem), _shelf(folder, stem))
        (shelf.kept if taken else shelf.seen).append(_piece(path, shelf.name))
    return list(found.values())


def _shelf(folder: str, stem: str) -> Shelf:
    parts = folder.split("/")
    root = "/".join(parts[:2]) if len(parts) > 1 and parts[1].startswith("attempt-") else "logs"
    node = stem.startswith("node-")
    return Shelf(root, "node" if node else parts[-1], "node" if node else stem)


def _piece(path: Path, name: str) -> Piece:
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    text = data.decode(errors="replace")
    piece = Piece(path, text)
    plain = _FURTHER.sub("\n", text) if name == "node" else text
    piece.records = [record for _, record in sorted(_records(plain))]
    piece.begun = len(_BEGINS.findall(plain))
    return piece


def _records(text: str) -> Iterator[tuple[int, Record]]:
    for found in _RECORD.finditer(text):
        whole = f"{zlib.crc32(found[4].encode()):08x}" == found[5]
        yield found.start(2), Record(found[2], int(found[3]), found[1], whole)
    for found in _EVENT.finditer(text):
        yield found.start(1), Record(found[1], int(found[2]), "", True)


def _counts(told: str) -> dict[str, int]:
    return {name: int(count) for count, name in (each.split(" ") for each in told.split(", "))}
