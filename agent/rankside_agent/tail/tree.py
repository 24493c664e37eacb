"""Find the logs of a run, and find them again while it grows: new ranks, modules, hosts and attempts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rankside_agent.tail import choice, folder, line
from rankside_agent.tail.assembly import Kind
from rankside_agent.tail.choice import Question
from rankside_agent.tail.filters import Ranks
from rankside_agent.tail.folder import MASTER, NODE, RANK, Folder
from rankside_agent.tail.line import Head, Parse
from rankside_agent.tail.log import Log
from rankside_agent.tail.record import Source

_ATTEMPT = re.compile(r"attempt-\d+", re.ASCII)
_TRIES, _PAUSE = 3, 0.05  # network file systems fail for a moment

T = TypeVar("T")


class Tree:
    """The folders asked about. Each log is found once; which source a folder is read from never changes."""

    def __init__(
        self,
        places: Iterable[Path],
        say: Callable[[str], None],
        *,
        level: int = 0,
        ranks: Ranks | None = None,
        modules: frozenset[str] = frozenset(),
        look: Callable[[Path, str], Folder] = folder.look,
    ) -> None:
        """`places`: a run's folder, its logs, or a module's folder; they need not exist yet."""
        self._places = list(dict.fromkeys(places))
        self._say = say
        self._level = level
        self._ranks = ranks
        self._modules = modules
        self._look_at = look
        self._sources: dict[Path, str] = {}
        self._found: set[tuple[Path, str]] = set()
        self._first = True
        self._met: set[Path] = set()
        self.matched = False  # whether what is asked about exists, though it may have no logs yet

    def folders(self) -> list[Folder]:
        """All modules' folders there are, also those not asked for."""
        found: dict[str, Folder] = {}
        for place in self._places:
            for each in self._modules_in(place):
                found.setdefault(os.path.realpath(each.path), each)  # links may lead to a folder twice
        return list(found.values())

    def scan(self) -> list[Log]:
        """The logs that were not there at the last scan."""
        logs = []
        for each in self.folders():
            if (self._modules and each.module not in self._modules) or not self._settled(each):
                continue
            source = self._sources.setdefault(each.path, choice.choose(each, self._question(each)).source)
            logs += [log for log in self._logs(each, source) if (log.folder, log.stem) not in self._found]
        self._found |= {(log.folder, log.stem) for log in logs}
        self._first = False
        return logs

    def _question(self, each: Folder) -> Question:
        wanted = self._ranks
        return Question(self._level, wanted is not None and any(label not in wanted for label in each.ranks))

    def _settled(self, each: Folder) -> bool:
        """A run that starts just now may have its rank folders a moment before its node log."""
        known = self._first or each.has_node or each.path in self._met
        self._met.add(each.path)
        return known

    def _logs(self, each: Folder, source: str) -> Iterator[Log]:
        if each.masters:
            yield from self._master_log(each)
        if source == "node":
            self.matched = True
            for stem in each.nodes:
                yield self._log(each, each.path, stem, line.node_line, host=stem.removeprefix(NODE))
            return
        for label in each.ranks:
            path = each.path / f"{RANK}{label}"
            if self._ranks is not None and label not in self._ranks:
                continue
            self.matched = True
            if (path, "") in self._found:
                continue
            present = self._tried(folder.stems, path) or set()
            chosen = folder.level_file(present, self._level, lazy=bool(each.nodes))
            if chosen is not None:
                self._found.add((path, ""))  # its folder need not be listed again
                yield self._log(each, path, chosen, line.level_line, label=label)

    def _master_log(self, each: Folder) -> Iterator[Log]:
        self.matched = True
        present = {stem.removeprefix(MASTER) for stem in each.masters}
        stem = folder.level_file(present, self._level, lazy=False)
        if stem is not None:
            yield self._log(each, each.path, MASTER + stem, line.master_line, label="master")

    def _log(
        self, each: Folder, path: Path, stem: str, parse: Parse, *, label: str = "?", host: str | None = None
    ) -> Log:
        blank = Head("", "", label, "?", "", "", "")
        return Log(path, stem, Kind(parse, Source(each.label, each.module, host), blank), self._say)

    def _modules_in(self, place: Path) -> Iterator[Folder]:
        if itself := self._look(place, _label(place)):
            yield itself
        else:
            logs = place / "logs"
            yield from self._below(logs if logs.is_dir() else place, _label(place, only_attempt=True))

    def _below(self, root: Path, before: str) -> Iterator[Folder]:
        for path in self._tried(folder.subfolders, root) or ():
            if _ATTEMPT.fullmatch(path.name) and not before:  # one level only: links may lead in a circle
                yield from self._below(path, f"{path.name}/")
            elif found := self._look(path, before + path.name):
                yield found

    def _look(self, path: Path, label: str) -> Folder | None:
        return self._tried(lambda path: self._look_at(path, label), path)

    def _tried(self, what: Callable[[Path], T], path: Path) -> T | None:
        for attempt in range(_TRIES):
            try:
                return what(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                if attempt == _TRIES - 1:
                    self._say(f"{path} cannot be listed: {error.strerror or error}")
                else:
                    time.sleep(_PAUSE)
        return None


def _label(place: Path, *, only_attempt: bool = False) -> str:
    if only_attempt:
        return f"{place.name}/" if _ATTEMPT.fullmatch(place.name) else ""
    parent = place.parent.name
    return f"{parent}/{place.name}" if _ATTEMPT.fullmatch(parent) else place.name
