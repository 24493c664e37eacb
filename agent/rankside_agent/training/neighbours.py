"""The fullest GPU of each node of a run, told through the run's own folder: no collective, no connection.

Separate, and with a thread of its own, because that folder may lie on a mount that hangs.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from rankside.identity import safe_name
from rankside_agent import files
from rankside_agent.training.memory import Memory

_EVERY = 2.0  # seconds between two looks at the folder, or two words into it
_MOST_NODES = 10_000
_FILE = "gpu-memory-{host}.json"  # below snapshot/attempt-{n}


class Neighbours:
    """Those of one node in one run. Nothing waits or raises; what is not there is not known."""

    def __init__(self, exp_root: Path, allowed: tuple[str, ...], name: str) -> None:
        self._root = exp_root
        self._allowed = allowed
        self._name = name
        self._changed = threading.Condition()
        self._told: tuple[Path, dict[str, Any]] | None = None
        self._wanted: tuple[Path, str] | None = None
        self._fullest: dict[Path, Memory] = {}
        self._stopping = False
        self._thread: threading.Thread | None = None

    def tell(self, attempt: int, host: str, memory: Memory) -> None:
        """The fullest GPU of this node, for the last rank's."""
        if memory.fullest is None:
            return
        value = {
            "kind": memory.kind,
            "used": memory.fullest,
            "total": memory.fullest_total,
            "rank": memory.fullest_rank,
        }
        with self._changed:
            self._told = self._folder(attempt) / _FILE.format(host=safe_name(host)), value
        self._go()

    def fullest(self, attempt: int, host: str) -> Memory | None:
        """Of the other nodes, as far as was seen; and look again."""
        folder = self._folder(attempt)
        with self._changed:
            self._wanted = folder, _FILE.format(host=safe_name(host))
        self._go()
        return self._fullest.get(folder)

    def close(self) -> None:
        """End the thread; one that hangs is not waited for."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _folder(self, attempt: int) -> Path:
        return self._root / "snapshot" / f"attempt-{attempt}"

    def _go(self) -> None:
        with self._changed:
            if self._thread is None and not self._stopping:
                name = f"rankside-neighbours-{self._name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no more threads; the next word tries again
                    self._thread = None
            self._changed.notify_all()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._told or self._wanted)
                told, self._told = self._told, None
                wanted, self._wanted = self._wanted, None
                stopping = self._stopping
            try:
                if told is not None:
                    self._write(*told)
                if wanted is not None:
                    self._read(*wanted)
            except OSError:  # a run's folder that takes nothing is told of by its log files
                pass
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, _EVERY)

    def _write(self, path: Path, value: dict[str, Any]) -> None:
        if path.parent.is_dir() and not files.outside(path, self._allowed):
            files.replace_json(path, value)

    def _read(self, folder: Path, mine: str) -> None:
        found = []
        for number, path in enumerate(folder.glob(_FILE.format(host="*"))):
            if path.name != mine and number < _MOST_NODES:
                found.append(_memory(files.read_json(path)))
        known = [memory for memory in found if memory is not None]
        if known:
            self._fullest[folder] = max(known, key=lambda memory: memory.fullest or 0)


def _memory(value: Any) -> Memory | None:
    """From another node's file, which may hold anything."""
    try:
        used, total = int(value["used"]), int(value["total"])
        return Memory(str(value["kind"]), fullest=used, fullest_total=total, fullest_rank=str(value["rank"]))
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
