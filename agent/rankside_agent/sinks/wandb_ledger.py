"""Decisions that would not fall the same way a second time, written down before they take effect.

Separate because everything else follows from the journal alone. After a kill the points behind the stored
mark come again; the rows made of them must be the rows that the tracker may already have, number for number.
Three things do not lie in the journal: where the first row of this node stood in the run, where a flush ended
a row before its step was over, and which names were the first ten thousand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.sinks import durable

_CUTS_KEPT = 2000  # flushes; a mark that could not be stored for as long is not expected


class Ledger:
    """One file. Points are numbered by the caller, the same way each time."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        self._bases: dict[int, tuple[int, bool]] = {}
        self._cuts: dict[int, None] = {}
        self._names: dict[str, None] = {}
        self.id = ""  # under which the run goes in W&B, where that is not the usual one
        self._unsynced = False
        path.parent.mkdir(parents=True, exist_ok=True)
        for kind, value in self._read():
            self._apply(kind, value)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._compact()

    def base(self, point: int) -> int | None:
        """The number of the row that begins with a point, where it does not follow from the row before."""
        return self._bases[point][0] if point in self._bases else None

    def sure(self, point: int) -> bool:
        """Whether the server was asked when that was decided."""
        return self._bases.get(point, (0, True))[1]

    def is_cut(self, point: int) -> bool:
        """Whether a row was ended behind a point."""
        return point in self._cuts

    def knows(self, name: str) -> bool:
        """Whether a name is among those that are shown."""
        return name in self._names

    @property
    def names(self) -> int:
        """How many are shown."""
        return len(self._names)

    def set_base(self, point: int, number: int, sure: bool) -> None:
        """Durable at once. Raises OSError."""
        self._note("base", [point, number, sure])
        self.flush()

    def set_id(self, run_id: str) -> None:
        """Durable at once. Raises OSError."""
        self._note("id", run_id)
        self.flush()

    def cut(self, point: int) -> None:
        """Raises OSError."""
        self._note("cut", point)

    def add_name(self, name: str) -> None:
        """Raises OSError."""
        self._note("name", name)

    def flush(self) -> None:
        """Notes outlive the process at once, and the machine from here on. Raises OSError."""
        if self._unsynced:
            os.fdatasync(self._fd)
            self._unsynced = False
            self._compact()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _note(self, kind: str, value: Any) -> None:
        size = os.fstat(self._fd).st_size
        durable.append(self._fd, (json.dumps([kind, value]) + "\n").encode(), size)
        self._unsynced = True
        self._apply(kind, value)

    def _apply(self, kind: str, value: Any) -> None:
        if kind == "cut":
            self._cuts[int(value)] = None
        elif kind == "name":
            self._names[str(value)] = None
        elif kind == "base":
            self._bases[int(value[0])] = int(value[1]), bool(value[2])
        elif kind == "id":
            self.id = str(value)

    def _read(self) -> Iterator[tuple[str, Any]]:
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        if lines and not lines[-1].endswith(b"\n"):  # torn with the machine, before it took effect
            os.truncate(self._path, sum(map(len, lines[:-1])))
            lines.pop()
        for line in lines:
            try:
                kind, value = json.loads(line)
            except ValueError:
                continue
            yield str(kind), value

    def _compact(self) -> None:
        """Old cuts go: what they decided has long been delivered."""
        if len(self._cuts) < 2 * _CUTS_KEPT:
            return
        self._cuts = dict.fromkeys(list(self._cuts)[-_CUTS_KEPT:])
        kept: list[Any] = [["base", [point, *base]] for point, base in self._bases.items()]
        kept += [["id", self.id]] if self.id else []
        kept += [["cut", point] for point in self._cuts]
        kept += [["name", name] for name in self._names]
        files.replace(self._path, "".join(json.dumps(each) + "\n" for each in kept).encode())
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
