"""What an agent takes in: log records a second from the ranks' calls to the files and a durable checkpoint.

Separate from the caller's side because it is measured from outside: by the checkpoint, the files, and /proc.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from syslog import Syslog

from figures import Section, Value, median, spread
from samples import TEXT, sizes, yardstick
from usage import Usage, usage
from workplace import HERE, Process, Workplace, hear, say

_DEADLINE = 120.0  # seconds for one round
_LOOK = 0.005  # seconds between looks at the checkpoint
_SPOOL = 64 << 20  # the default
_BACKLOG_BYTES = 400  # of spool for a record, head included


@dataclass(frozen=True)
class Scene:
    """One row: how many ranks, where the log files are, whether all records wait before the agent begins."""

    title: str
    clients: int
    disk: bool
    backlog: bool = False


SCENES = (
    Scene("1 rank, files in memory", 1, disk=False),
    Scene("2 ranks, files in memory", 2, disk=False),
    Scene("1 rank, files on disk", 1, disk=True),
    Scene("2 ranks, files on disk", 2, disk=True),
    Scene("1 rank's backlog, files in memory", 1, disk=False, backlog=True),
    Scene("8 ranks' backlog, files in memory", 8, disk=False, backlog=True),
)


@dataclass
class Round:
    """What one flood came to."""

    records: int
    seconds: float
    before: Usage
    after: Usage
    clients_cpu: float
    packb: float  # seconds for one of the same record, the mean of before and after

    def rate(self) -> float:
        """Records a second, end to end."""
        return self.records / self.seconds

    def per_core(self) -> float:
        """Records for a second of the agent's CPU."""
        return self.records / (self.after.total - self.before.total)

    def packbs(self) -> float:
        """The agent's CPU for a record, in packbs: what a core that changes its speed leaves comparable."""
        return (self.after.total - self.before.total) / self.records / self.packb


@dataclass
class Stand:
    """A scene set up: an agent of its own, and its ranks, which wait."""

    scene: Scene
    place: Workplace
    name: str
    records: int  # in a round, of all ranks
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.agent = self.place.agent(f"flood-{self.name}")
        self.root = (self.place.disk if self.scene.disk else self.place.memory) / f"flood-{self.name}"
        spool = max(_SPOOL, 2 * self._each() * _BACKLOG_BYTES) if self.scene.backlog else _SPOOL
        self.ranks = [self._rank(number, spool) for number in range(self.scene.clients)]
        for rank in self.ranks:
            hear(rank)
        self.expected = self._await(self.scene.clients)

    def _each(self) -> int:
        return self.records // self.scene.clients

    def _rank(self, number: int, spool: int) -> Process:
        size = str(self.scene.clients)
        arguments = (str(HERE / "flood.py"), str(self.root), str(number), size, str(spool))
        return self.place.start(*arguments, environment=self.agent.environment)

    def flood(self) -> None:
        """One round. Raises RuntimeError where a record was dropped or is missing in the checkpoint."""
        os.sync()  # what earlier rounds left to the disk must not be written in this one
        if self.scene.backlog:
            self.agent.freeze()
        packb = yardstick()
        before = usage(self.agent.process.pid)
        for rank in self.ranks:
            say(rank, str(self._each()))
        began, told = self._begin()
        self.expected += self._each() * self.scene.clients
        self._await(self.expected)
        seconds = time.monotonic() - began
        after = usage(self.agent.process.pid)
        told = told or [json.loads(hear(rank)) for rank in self.ranks]
        if any(each["dropped"] for each in told):
            raise RuntimeError(f"{self.scene.title}: records were dropped")
        if not self.scene.backlog:
            seconds -= min(each["began"] for each in told) - began
        cpu = sum(each["cpu"] for each in told)
        packb = (packb + yardstick()) / 2
        self.rounds.append(Round(self._each() * self.scene.clients, seconds, before, after, cpu, packb))

    def _begin(self) -> tuple[float, list[dict[str, float]]]:
        """When it began; for a backlog, once all is in the spools, with what the ranks said."""
        if not self.scene.backlog:
            return time.monotonic(), []
        told = [json.loads(hear(rank)) for rank in self.ranks]
        began = time.monotonic()
        self.agent.thaw()
        return began, told

    def _await(self, records: int) -> int:
        """Until the checkpoint says that the files hold so many; returns how many."""
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline:
            for path in self.agent.state.glob("runs/*/cursors/logfiles.json"):
                try:
                    found = int(json.loads(path.read_bytes())["records"])
                except (OSError, ValueError):
                    continue
                if found >= records:
                    return found
            time.sleep(_LOOK)
        raise RuntimeError(f"{self.scene.title}: {records} records not in the files after {_DEADLINE:.0f} s")

    def check(self) -> None:
        """The files themselves: each record once in the rank's debug log, info log and the node log."""
        wanted = sum(each.records for each in self.rounds)
        for pattern in ("rank-*/debug*.log", "rank-*/info*.log", "node-*.log"):
            found = sum(_count(path) for path in self.root.glob(f"logs/*/{pattern}"))
            if found != wanted:
                raise RuntimeError(f"{self.scene.title}: {found} records in {pattern}, not {wanted}")

    def end(self) -> None:
        """Ranks, agent, files."""
        self.place.end(*self.ranks)
        self.place.end(self.agent.process)
        shutil.rmtree(self.root, ignore_errors=True)


def measure(place: Workplace, records: int, rounds: int) -> Section:
    """All scenes are set up, then their rounds take turns."""
    stands: list[Stand | Syslog] = [
        Stand(scene, place, str(number), records) for number, scene in enumerate(SCENES)
    ]
    if not Syslog.missing():
        stands.append(Syslog(place, records, Round))
    for _ in range(rounds):
        for stand in stands:
            stand.flood()
    for stand in stands:
        stand.check()
        stand.end()
    return _section(stands, records)


def _section(stands: list[Stand | Syslog], records: int) -> Section:
    notes = [
        f"{records:,} records a round, {sizes()}; from the first call to a checkpoint that holds all of them,"
        " which are then counted in the files",
        "each record goes to the journal, its rank's debug.log and info.log, and the node log;"
        " the journal is on disk, the spools are in memory",
        "backlog: the agent is frozen until all records wait in the spools, so ranks take next to no CPU",
        "a core: records for each second of CPU that the agent itself used; x packb: that CPU for a record,"
        " against one packb of the same record, measured before and after each round",
        "receiver: socket, checks, journal; writer: journal into files; CPU seconds for a million records",
        "rsyslog: tcp into the same three files, without acknowledgement, journal or checkpoint"
        + (": left out, not installed" if Syslog.missing() else ""),
    ]
    columns = (
        "scene",
        "records/s",
        "rounds",
        "a core",
        "x packb",
        "receiver",
        "writer",
        "zmq",
        "ranks",
        "RSS MB",
    )
    section = Section("agent, end to end", notes, columns)
    section.rows = [_row(stand) for stand in stands]
    return section


def _row(stand: Stand | Syslog) -> dict[str, Value]:
    rounds = stand.rounds
    rates = [each.rate() for each in rounds]
    memory = [rounds[0].before.rss, *(each.after.rss for each in rounds)]

    def per_million(part: str) -> float:
        spent = [getattr(each.after, part) - getattr(each.before, part) for each in rounds]
        return median(cpu * 1e6 / each.records for cpu, each in zip(spent, rounds, strict=True))

    return {
        "scene": stand.scene.title,
        "records/s": median(rates),
        "rounds": spread(rates),
        "a core": median(each.per_core() for each in rounds),
        "x packb": median(each.packbs() for each in rounds),
        "receiver": per_million("main"),
        "writer": per_million("others"),
        "zmq": per_million("zmq"),
        "ranks": median(each.clients_cpu * 1e6 / each.records for each in rounds),
        "RSS MB": " ".join(f"{size / 1e6:.0f}" for size in memory),
    }


def _count(path: Path) -> int:
    return path.read_bytes().count(TEXT.encode())
