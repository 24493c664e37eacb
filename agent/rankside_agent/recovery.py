"""Finds ranks that are gone, and brings in what they left in their spools.

Separate from the receiver because it starts where messages end: with a lock that nobody holds any more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from loguru import logger

from rankside import wire
from rankside.identity import Hello
from rankside.leftover import Leftover
from rankside.output_folder import ENDING, OutputFolder
from rankside_agent import files
from rankside_agent.left_outputs import LeftOutputs
from rankside_agent.left_spools import Nameless, discard, hello_in, in_order, is_nameless, is_ours, last_first
from rankside_agent.progress import Channel
from rankside_agent.registry import Registry
from rankside_agent.runs import Run

_SCAN = 2.0  # seconds between searches for spools whose rank never spoke to us
_SWEEP = 0.2  # seconds, at least, between such searches when ranks of another start come: they come together
_FROZEN = 5.0  # seconds between two looks after which the agent itself must have been stopped
_FORGET = 60.0  # seconds after its end in which a channel's last messages may still be on their way
# Why records of a dead rank are missing
_UNREADABLE = "of the spool cannot be read"
_IN_MEMORY = "lost: the spool's disk had no room for them, and they were in the memory of the dead rank alone"


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
        outputs: LeftOutputs | None = None,
    ) -> None:
        self._registry = registry
        self._outputs = outputs or LeftOutputs("", report)
        self._remembered = remembered  # a file: roots that ranks told of, for the next agent
        told = files.read_json(remembered)
        self._roots = {*map(str, roots), *map(str, told if isinstance(told, list) else [])}
        self._agent_id = agent_id
        self._lost_after = lost_after
        self._report = report
        self._scanned = self._looked = float("-inf")
        self._underway: set[str] = set()
        self._scanning = False
        self._nameless = Nameless()

    def watch(self, _run: Run, channel: Channel) -> None:
        """A rank spoke to us: see whether its spool is in sight, and remember where such spools lie."""
        folder = Path(channel.hello.spool)
        channel.watched = is_ours(folder) and self._names(folder, channel.hello)
        root = str(folder.parent)
        if channel.watched and root not in self._roots:
            self._roots.add(root)
            files.replace_json(self._remembered, sorted(self._roots)[-100:])

    @staticmethod
    def _names(folder: Path, hello: Hello) -> bool:
        try:
            return hello_in(folder).channel == hello.channel
        except (OSError, ValueError):
            return False

    def tick(self, now: float) -> None:
        """Twice a second: look at every living rank, now and then for strangers' leftovers."""
        if now - self._looked > _FROZEN:  # it was us who were silent: their messages still wait in the socket
            for _, channel in self._registry.living():
                channel.progress.seen = now
            self._nameless.begin_again()
        self._looked = now
        for run, channel in sorted(self._registry.living(), key=lambda each: last_first(each[1].hello)):
            self._look(run, channel, now)
        for run in self._registry.runs.values():
            for channel in list(run.channels.values()):
                gone = channel.ended and now - channel.ended_at > _FORGET
                if gone and not os.path.exists(channel.hello.spool):
                    run.forget(channel)
        if now - self._scanned > _SCAN:
            self._scanned = now
            self._scan()

    def sweep(self, run: Run) -> None:
        """Before a new attempt of a run begins: bring in what its last one left."""
        now = time.monotonic()
        for channel in sorted(run.living(), key=lambda each: last_first(each.hello)):
            if not channel.watched:  # it has not spoken to us since we were started: it may be dead by now
                self.watch(run, channel)
            self._look(run, channel, now)
        if not self._scanning and now - self._scanned > _SWEEP:  # and what never got round to speaking to us
            self._scanned = now
            self._scan()

    def last_look(self) -> None:
        """Before the agent leaves: one that has died since the last search may never have spoken to us."""
        self._scanned = time.monotonic()
        self._scan()

    def _look(self, run: Run, channel: Channel, now: float) -> None:
        spool = Path(channel.hello.spool)
        try:
            if channel.watched and self._recover(run, channel, spool):
                return
            silent = now - channel.progress.seen
            if silent > self._lost_after and not (channel.watched and os.path.exists(spool)):
                run.end(channel, "lost")
        except Exception as error:  # noqa: BLE001  what a stranger put there must not cost the others their turn
            self._report(f"spool {spool}: {type(error).__name__}: {error}")

    def _scan(self) -> None:
        self._scanning = True  # what is found is opened by way of `sweep`
        try:
            self._scan_roots()
        finally:
            self._scanning = False

    def _scan_roots(self) -> None:
        # one whose last hello came out of a socket in between was opened for that, not for us
        self._underway = {name for name in self._underway if self._registry.find(name) is None}
        for root in sorted(self._roots):
            try:
                folders = [path for path in Path(root).iterdir() if is_ours(path)]
            except OSError:
                continue
            for folder in in_order(folders):
                if folder.name not in self._underway:
                    self._try(folder)

    def _try(self, folder: Path) -> None:
        try:
            if not self._outputs.look(folder, self._scanned):
                self._adopt(folder)
        except FileNotFoundError:
            pass  # its rank has just removed it, or is about to make it
        except Exception as error:  # noqa: BLE001  as in _look
            self._report(f"spool {folder}: {type(error).__name__}: {error}")

    def _adopt(self, folder: Path) -> None:
        """Take on a spool that no living channel of ours claims."""
        if is_nameless(folder):  # and is not locked here: its rank may be about to do that
            self._nameless.look(folder, self._scanned)
            return
        page = Leftover(folder).take()
        if page is None:
            return  # its rank lives, and will speak to us
        owner = page.owner()
        page.close()
        if owner not in ("", self._agent_id):
            return  # another agent's journal has its beginning
        hello = hello_in(folder)
        if hello.channel in self._registry.gone:
            discard(folder)  # its goodbye was journaled, the answer never reached it
            return

        def then(run: Run, channel: Channel) -> None:
            self._underway.discard(folder.name)
            if channel.watched and Path(channel.hello.spool) != folder:
                self._report(f"spool {folder}: {hello.channel} has another one, {channel.hello.spool}")
                return
            channel.watched = True
            self._recover(run, channel, folder)

        self._underway.add(folder.name)
        try:
            self._registry.open(hello, 1, then)
        except BaseException:
            self._underway.discard(folder.name)
            raise

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
            self._take_in(run, channel, leftover, page.last_in_memory())
            if page.last_in_memory() > channel.last:
                _miss(run, channel, page.last_in_memory(), _IN_MEMORY)
                page.in_memory(0)
            dropped = page.unannounced()
            if dropped:
                told = ", ".join(f"{count} {name}" for name, count in dropped.items())
                text = f"{sum(dropped.values())} records dropped, the spool was full: {told}"
                run.note(channel, 40, "ERROR", text)
                page.announce()
                channel.progress.announced_drops += sum(dropped.values())
            run.end(channel, "vanished")
            _note_taken(channel)
            discard(folder)
            who = f"rank {channel.hello.label}, pid {channel.hello.pid}"
            logger.info(f"run {run.folder.name}: {who} is gone; what it left is brought in")
        except OSError as error:
            self._report(f"spool {folder}: {error}; trying again")
        finally:
            page.close()
        return True

    @staticmethod
    def _take_in(run: Run, channel: Channel, leftover: Leftover, last_in_memory: int) -> None:
        held: list[bytes] = []
        size = 0
        expected = channel.last + 1
        for seq, _kind, frame in leftover.frames(channel.last):
            if seq != expected or size > wire.MAX_BATCH:
                _accept(run, channel, held)
                held, size = [], 0
            if seq > channel.last + 1 and not held:
                _miss(run, channel, seq - 1, _IN_MEMORY if seq <= last_in_memory + 1 else _UNREADABLE)
            held.append(frame)
            size += len(frame)
            expected = seq + 1
        _accept(run, channel, held)


def _miss(run: Run, channel: Channel, last: int, why: str) -> None:
    """Nothing up to `last` will come any more."""
    count = last - channel.last
    run.note(channel, 40, "ERROR", f"{count} records {why}")
    channel.progress.announced_drops += count
    channel.last = last


def _accept(run: Run, channel: Channel, held: list[bytes]) -> None:
    if held:
        run.accept(channel, b"".join(held))


def _note_taken(channel: Channel) -> None:
    """Of captured output, for the helper that goes on: which records of the one before are here."""
    folder = Path(channel.hello.outputs)
    if folder.name.endswith(ENDING) and is_ours(folder):
        with suppress(OSError):
            OutputFolder(folder).note_taken(channel.hello.channel, channel.last)
