"""Finds ranks that are gone, and brings in what they left in their spools.

Separate from the receiver because it starts where messages end: with a lock that nobody holds any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rankside import wire
from rankside.identity import Hello
from rankside.spool import Leftover
from rankside_agent import files
from rankside_agent.progress import Channel
from rankside_agent.registry import Registry
from rankside_agent.runs import Run

_SCAN = 2.0  # seconds between searches for spools whose rank never spoke to us
_FORGET = 60.0  # seconds after its end in which a channel's last messages may still be on their way
_UNFINISHED = 60.0  # seconds after which a folder that names no channel is rubbish


class Recovery:
    """Owned by the agent's loop."""

    def __init__(
        self,
        registry: Registry,
        roots: Iterable[Path],
        remembered: Path,
        agent_id: str,
        lost_after: float,
        report: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._remembered = remembered  # a file: roots that ranks told of, for the next agent
        self._roots = {*map(str, roots), *(files.read_json(remembered) or [])}
        self._agent_id = agent_id
        self._lost_after = lost_after
        self._report = report
        self._scanned = float("-inf")
        self._underway: set[str] = set()

    def watch(self, _run: Run, channel: Channel) -> None:
        """A rank spoke to us: see whether its spool is in sight, and remember where such spools lie."""
        folder = Path(channel.hello.spool)
        channel.watched = folder.name == channel.hello.channel and self._names(folder, channel.hello)
        root = str(folder.parent)
        if channel.watched and root not in self._roots:
            self._roots.add(root)
            files.replace_json(self._remembered, sorted(self._roots)[-100:])

    @staticmethod
    def _names(folder: Path, hello: Hello) -> bool:
        try:
            return Hello.unpacked(wire.unpack(Leftover(folder).hello())).channel == hello.channel
        except (OSError, ValueError):
            return False

    def tick(self, now: float) -> None:
        """Twice a second: look at every living rank, now and then for strangers' leftovers."""
        for run, channel in self._registry.living():
            self._look(run, channel, now)
        for run in self._registry.runs.values():
            for channel in list(run.channels.values()):
                gone = channel.ended and now - channel.ended_at > _FORGET
                if gone and not Path(channel.hello.spool).exists():
                    run.forget(channel)
        if now - self._scanned > _SCAN:
            self._scanned = now
            self._scan()

    def sweep(self, run: Run) -> None:
        """Before a new attempt of a run begins: bring in what its last one left."""
        now = time.monotonic()
        for channel in run.living():
            self._look(run, channel, now)

    def _look(self, run: Run, channel: Channel, now: float) -> None:
        if channel.watched and self._recover(run, channel, Path(channel.hello.spool)):
            return
        silent = now - channel.progress.seen
        if silent > self._lost_after and not (channel.watched and Path(channel.hello.spool).exists()):
            run.end(channel, "lost")

    def _scan(self) -> None:
        for root in sorted(self._roots):
            try:
                folders = sorted(path for path in Path(root).iterdir() if path.is_dir())
            except OSError:
                continue
            for folder in folders:
                if folder.name not in self._underway:
                    self._try(folder)

    def _try(self, folder: Path) -> None:
        try:
            self._adopt(folder)
        except (OSError, ValueError) as error:
            if not isinstance(error, FileNotFoundError):
                self._report(f"spool {folder}: {error}")

    def _adopt(self, folder: Path) -> None:
        """Take on a spool that no living channel of ours claims."""
        leftover = Leftover(folder)
        page = leftover.take()
        if page is None:
            return  # its rank lives, and will speak to us
        owner = page.owner()
        page.close()
        if owner not in ("", self._agent_id):
            return  # another agent's journal has its beginning
        try:
            hello = Hello.unpacked(wire.unpack(leftover.hello()))
        except FileNotFoundError:
            if time.time() - folder.stat().st_mtime > _UNFINISHED:
                leftover.remove()
            return
        if hello.channel in self._registry.gone:
            leftover.remove()  # its goodbye was journaled, the answer never reached it
            return
        self._underway.add(folder.name)

        def then(run: Run, channel: Channel) -> None:
            self._underway.discard(folder.name)
            channel.watched = True
            self._recover(run, channel, folder)

        self._registry.open(hello, 1, then)

    def _recover(self, run: Run, channel: Channel, folder: Path) -> bool:
        """Read the rest of a dead rank's spool into the journal; False while it lives."""
        leftover = Leftover(folder)
        try:
            page = leftover.take()
        except FileNotFoundError:
            return False
        if page is None:
            return False
        try:
            self._take_in(run, channel, leftover)
            dropped = page.unannounced()
            if dropped:
                told = ", ".join(f"{count} {name}" for name, count in dropped.items())
                text = f"{sum(dropped.values())} records dropped, the spool was full: {told}"
                run.note(channel, 40, "ERROR", text)
                page.announce()
                channel.progress.announced_drops += sum(dropped.values())
            run.end(channel, "vanished")
            leftover.remove()
        except OSError as error:
            self._report(f"spool {folder}: {error}; trying again")
        finally:
            page.close()
        return True

    @staticmethod
    def _take_in(run: Run, channel: Channel, leftover: Leftover) -> None:
        held: list[bytes] = []
        size = 0
        expected = channel.last + 1
        for seq, _kind, frame in leftover.frames(channel.last):
            if seq != expected or size > wire.MAX_BATCH:
                _accept(run, channel, held)
                held, size = [], 0
            if seq > channel.last + 1 and not held:
                run.note(
                    channel, 40, "ERROR", f"{seq - channel.last - 1} records of the spool cannot be read"
                )
                channel.last = seq - 1
            held.append(frame)
            size += len(frame)
            expected = seq + 1
        _accept(run, channel, held)


def _accept(run: Run, channel: Channel, held: list[bytes]) -> None:
    if held:
        run.accept(channel, b"".join(held))
