"""One run on this node: its journals, channels and attempts, and the readers that hang on them.

Separate from the receiver because a run outlives connections, agents and ranks: all of it is on disk.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from rankside import launch, wire
from rankside.identity import Hello, safe_name
from rankside.settings import file_level
from rankside.wire import Kind
from rankside_agent import checkpoint, facts, files, limits, origin, sinks
from rankside_agent.attempts import Claim, Claims
from rankside_agent.config import Settings
from rankside_agent.gauges import Seen
from rankside_agent.journal import ChannelState, Journal, Position, segments
from rankside_agent.logfile import Rotation
from rankside_agent.logfiles import LogFiles
from rankside_agent.progress import Channel
from rankside_agent.silence import PATIENCE, Silence
from rankside_agent.sinks import tracker_environ
from rankside_agent.sinks.supervisor import Supervisor
from rankside_agent.snapshot.writer import Snapshots
from rankside_agent.training.answers import Answers, Poll, unanswered
from rankside_agent.training.neighbours import Neighbours
from rankside_agent.writer import Writer

# Which journal a record goes to; an event is both a line to read and a point for the trackers
_LOGS = frozenset((Kind.LOG, Kind.EVENT, Kind.DROPPED))
_HANGS = 2.0  # seconds that the writer may take to let the journal's oldest go
_LOOKS = 4  # at a writer that does not answer, before it is told
_HIGHEST_LEVEL = 1000
_LONGEST_NAME = 4096  # characters of a module's name, as in a hello
_FOR_TRACKERS_ONLY: dict[int, str] = {
    Kind.METRICS: "metrics",
    Kind.THROUGHPUT: "throughput samples",
    Kind.PARAMS: "params",
    Kind.ARTIFACT: "artifacts",
}
_POINTS = frozenset((Kind.METRICS, Kind.THROUGHPUT, Kind.PARAMS, Kind.EVENT, Kind.ARTIFACT))


class Gap(ValueError):
    """A batch that begins behind the next sequence number: something before it is still on its way."""


class Unknown(RuntimeError):
    """A folder that holds neither a whole run.json nor a journal that tells whose it is."""


class Run:
    """Owned by the agent's loop; every method is quick, apart from the disk the journal lies on."""

    def __init__(
        self, folder: Path, settings: Settings, report: Callable[[str], None], poll: Poll = unanswered
    ) -> None:
        """Open journals, start the readers; `poll` asks for the node's GPUs. Raises OSError, Unknown."""
        self.folder = folder
        self._settings = settings
        self._tell = report
        found = facts.read(folder)  # before anything else is opened: this is what may fail again and again
        self.logs = Journal(folder / "journal" / "logs", settings.segment_bytes)
        self.points = Journal(folder / "journal" / "points", settings.segment_bytes)
        self.facts = found or self._facts_of_journals()
        self.exp_root = Path(self.facts["exp_root"])
        self.channels = {
            state.info["channel"]: _channel(i, state) for i, state in self.logs.state.channels.items()
        }
        self._next_index = max([*self.logs.state.channels, *self.points.state.channels, 0]) + 1
        self._neighbours = Neighbours(self.exp_root, settings.allowed_roots, folder.name)
        self._snapshots = Snapshots(self.exp_root, settings.allowed_roots, folder, self._report)
        devices, lent = self.facts.setdefault("devices", {}), self.facts.setdefault("lent", {})
        poll = self._snapshots.overhear(poll)
        self.answers = Answers(
            self.logs, self.points, self.living, devices, lent, poll, self.save, self._neighbours
        )
        for channel in self.living():
            self.answers.recover(channel)
            self._snapshots.begin(channel, self.points.state.channels.get(channel.index))
        self._silence = Silence()
        self.claims = Claims(self.exp_root, settings.allowed_roots, folder.name)
        self.writer = Writer(self._log_files, self._report, folder.name)
        self.sinks: dict[str, Supervisor] = {}
        self.unusable: dict[str, str] = {}  # trackers that cannot be loaded, and why
        if found is None:
            self._begin_sinks_again()
        self._over_since: float | None = None  # when the journal went over its limit
        self._told: dict[str, Position] = {}  # where the points ended when a sink was told to drain
        self._hung = 0  # looks at which the writer did not answer
        self.last_end = time.monotonic()
        self._changed = True
        self._warned_of: set[str] = set()  # channels whose forked children's metrics were told of

    def _report(self, text: str) -> None:
        self._tell(f"run {self.folder.name}: {text}")

    def _facts_of_journals(self) -> dict[str, Any]:
        known = {state.info["channel"]: state for state in self.points.state.channels.values()}
        known |= {state.info["channel"]: state for state in self.logs.state.channels.values()}
        made = facts.rebuilt(self.folder.name, known.values())
        if made is None:
            self.logs.close()
            self.points.close()
            raise Unknown("run.json is lost or damaged, and its journals name no run")
        self._report("run.json was lost or damaged; it is made anew from the journal")
        return made

    def _begin_sinks_again(self) -> None:
        speaking = [channel.hello for channel in self.channels.values() if channel.speaks]
        wanted = {name for hello in speaking for name in self._wanted_sinks(hello)}
        self.facts["sinks"] = sorted(wanted)
        self.save()

    def _log_files(self) -> LogFiles:
        rotation = Rotation(
            min(self._settings.rotation_bytes, limits.file_bytes()),
            self._settings.keep_rotated,
            self._settings.gzip_rotated,
        )
        (self.folder / "cursors").mkdir(exist_ok=True)
        return LogFiles(
            self.logs.folder,
            self.folder / "cursors" / "logfiles.json",
            self.exp_root,
            rotation,
            self._report,
            allowed=self._settings.allowed_roots,
        )

    # -- channels ------------------------------------------------------------------------------------

    def living(self) -> list[Channel]:
        """Channels whose process has not ended."""
        return [channel for channel in self.channels.values() if not channel.ended]

    def open_channel(self, hello: Hello, claim: Claim, first: int) -> Channel:
        """Begin a channel in both journals. Raises OSError; nothing is then begun."""
        attempt = claim.attempt or self._local_attempt(hello)
        info = {
            **hello.packed(),
            "environ": {},  # holds secrets; _note_attempt puts it where they may lie
            "config": {} if hello.parent else hello.config,
            "attempt": attempt,
            "log_root": self._log_root(attempt, claim.contended),
            "file_level": file_level(hello.config),
            "opened": time.time(),
            "last": first - 1,
        }
        index = self._next_index
        channel = Channel(index, hello, attempt, first - 1)
        self.facts["key"] = claim.key or self.facts.get("key", "")
        self._note_attempt(channel, info["log_root"])  # first: a known channel is not looked at again
        self.points.open_channel(index, info)
        self.logs.open_channel(index, {**info, "launch": {}})  # log files have no use for it
        told = launch.prefixes_of(hello.config) if channel.speaks else ()
        if text := tracker_environ.ignored(hello.launch.get("environ") or {}, told):
            self.note(channel, 30, "WARNING", text)
        self._next_index += 1
        self.channels[hello.channel] = channel
        self._snapshots.begin(channel, self.points.state.channels.get(index))
        self.writer.wake()
        return channel

    def _local_attempt(self, hello: Hello) -> int:
        """As far as this node knows: a child's is its parent's, else the same start's, else a new one."""
        parent = self.channels.get(hello.parent or "")
        if parent is not None:
            return parent.attempt
        attempts = self.facts["attempts"]
        if hello.parent and attempts:
            return int(attempts[-1]["n"])
        return self.same_start(hello) or self.known_attempts() + 1

    def same_start(self, hello: Hello) -> int:
        """The newest attempt, if it is of the same start and has a place for this rank; 0 for none."""
        attempt = (self.facts["attempts"] or [None])[-1]
        if attempt is None or attempt["job"] != hello.job:
            return 0
        place = attempt["ranks"].get(hello.label)  # its own, perhaps: a full disk was in the way of the rest
        free = place is None or (place["pid"], place["host"]) == (hello.pid, hello.host)
        return int(attempt["n"]) if free else 0

    def known_attempts(self) -> int:
        """The highest attempt seen on this node."""
        return max((int(attempt["n"]) for attempt in self.facts["attempts"]), default=0)

    def _log_root(self, attempt: int, contended: bool) -> str:
        """`logs`; a folder of its own for an attempt that begins while an earlier one still writes there."""
        known = self._attempt(attempt)
        if known is not None:
            return str(known["log_root"])
        taken = contended or any(
            channel.attempt != attempt and not channel.hello.parent and self._writes_in_logs(channel)
            for channel in self.living()
        )
        return f"logs/attempt-{attempt}" if taken else "logs"

    def _writes_in_logs(self, channel: Channel) -> bool:
        known = self._attempt(channel.attempt)
        return known is not None and known["log_root"] == "logs"

    def _attempt(self, number: int) -> dict[str, Any] | None:
        found = [attempt for attempt in self.facts["attempts"] if attempt["n"] == number]
        return found[0] if found else None

    def _note_attempt(self, channel: Channel, log_root: str) -> None:
        hello = channel.hello
        known = self._attempt(channel.attempt)
        if known is None:
            known = {
                "n": channel.attempt,
                "job": hello.job,
                "started": time.time(),
                "ended": None,
                "status": "running",
                "world_size": hello.world_size,
                "log_root": log_root,
                "ranks": {},
            }
            self.facts["attempts"].append(known)
        known["ended"], known["status"] = None, "running"
        if not hello.parent:
            known["ranks"][hello.label] = {"pid": hello.pid, "host": hello.host}
        if hello.module not in self.facts["modules"]:
            self.facts["modules"].append(hello.module)
        self.facts.update(module=hello.module, world_size=hello.world_size)
        if channel.speaks:
            self._prepare_sinks(channel)
        self.save()

    def _prepare_sinks(self, channel: Channel) -> None:
        """What the trackers must know of the rank that speaks for the run."""
        hello = channel.hello
        self.facts["sinks"] = sorted({*self.facts["sinks"], *self._wanted_sinks(hello)})
        cwd = hello.launch.get("cwd")
        if isinstance(cwd, str) and cwd:
            origin.begin(cwd, self.folder / "origin" / f"attempt-{channel.attempt}.json")
        try:
            if tracker_environ.store(
                self.folder, hello.environ, channel.attempt, launch.prefixes_of(hello.config)
            ):
                for supervisor in self.sinks.values():
                    supervisor.renew()
        except OSError as error:
            self._report(f"the trackers' environment cannot be kept: {error}")
        channel.hello = replace(hello, environ={})  # secrets have no more business in here

    def _wanted_sinks(self, hello: Hello) -> list[str]:
        wanted = []
        for name in sinks.SINKS:
            try:
                if sinks.load(name).wanted(hello.config):
                    wanted.append(name)
                self.unusable.pop(name, None)
            except Exception as error:  # noqa: BLE001  a tracker's package that is missing or broken
                self.unusable[name] = f"{type(error).__name__}: {error}"
                self._report(f"sink {name}: cannot be used: {self.unusable[name]}")
        return wanted

    # -- records -------------------------------------------------------------------------------------

    def accept(self, channel: Channel, data: bytes) -> int:
        """Take in a batch; returns the last sequence number now on disk.

        Raises BadFrame, Gap where something is missing before it, and OSError where the disk is full.
        """
        logs = wire.only_logs(data)
        if logs is not None and logs[0] == channel.last + 1:
            return self._store_logs(channel, data, *logs)
        found = wire.batch(data)
        if found[0].seq > channel.last + 1:
            raise Gap(f"{found[0].seq} after {channel.last}")
        fresh = [frame for frame in found if frame.seq > channel.last]
        goodbye = next((at for at, frame in enumerate(fresh) if frame.kind == Kind.CLOSE), len(fresh))
        self._store_all(channel, data, fresh[:goodbye])
        if goodbye < len(fresh):  # ended before its number counts as stored: a crash between must not lose it
            channel.status = _said(data, fresh[goodbye], "killed")[:20]
            self.end(channel, "clean")
            self._store_all(channel, data, fresh[goodbye:])
        self.writer.wake()
        return channel.last

    def _store_logs(self, channel: Channel, data: bytes, first: int, last: int) -> int:
        """Nearly all batches: nothing in them concerns anyone but the log files."""
        self.logs.batch(channel.index, first, last, last - first + 1, data)
        channel.last = last
        channel.progress.counts["log"] += last - first + 1
        self.writer.wake()
        return last

    def _store_all(self, channel: Channel, data: bytes, fresh: list[wire.Frame]) -> None:
        start = 0
        for at, frame in enumerate(fresh):
            if frame.kind == Kind.MODULE:
                self._store(channel, data, fresh[start:at])
                self._enter_module(channel, data, frame)
                start = at + 1
        self._store(channel, data, fresh[start:])

    def _store(self, channel: Channel, data: bytes, found: list[wire.Frame]) -> None:
        if not found:
            return
        first, last = found[0].seq, found[-1].seq
        known = self.points.state.channels.get(channel.index)
        seen = known.last if known else 0
        points = [frame for frame in found if frame.kind in _POINTS and frame.seq > seen]
        self.answers.expect(channel, {frame.kind for frame in points})
        place = self.points.end
        if points:  # before the logs: their journal is the one that says how far the channel is
            self.points.batch(channel.index, first, last, len(points), _join(data, points))
        logs = [frame for frame in found if frame.kind in _LOGS]
        self.logs.batch(channel.index, first, last, len(logs), _join(data, logs))
        channel.last = last
        self._look(channel, data, found, place)
        if points and channel.hello.parent and channel.hello.parent not in self._warned_of:
            self._warn_of_child(channel, {frame.kind for frame in points})
        self.answers.tick(time.monotonic())

    def _warn_of_child(self, channel: Channel, kinds: set[int]) -> None:
        """Once for the children of a process: a data loader forks new ones each epoch."""
        told = sorted(_FOR_TRACKERS_ONLY[kind] for kind in kinds & _FOR_TRACKERS_ONLY.keys())
        if told:
            self._warned_of.add(channel.hello.parent or "")
            hello = channel.hello
            self.note(
                channel,
                30,
                "WARNING",
                f"{', '.join(told)} of a forked child (pid {hello.pid}) go to no tracker, nor do others of "
                f"rank {hello.label}'s children: hand them to the process that called init",
            )

    def _look(self, channel: Channel, data: bytes, found: list[wire.Frame], place: Position) -> None:
        progress = channel.progress
        for frame in found:
            if frame.kind == Kind.LOG:
                progress.counts["log"] += 1
                continue
            fields, warning = progress.take(frame.kind, wire.body(data, frame))
            if fields is not None:
                warning = warning or self._answer(channel, frame, fields, place)
            if warning:
                self.logs.note(channel.index, time.time(), 30, "WARNING", warning)

    def _answer(self, channel: Channel, frame: wire.Frame, fields: Any, place: Position) -> str:
        try:
            self.answers.take(channel, frame.seq, frame.kind, fields, place)
        except Exception as error:  # noqa: BLE001  a stranger's record: it may hold anything
            return f"a {Kind(frame.kind).name.lower()} record cannot be used: {error}"
        return ""

    def _enter_module(self, channel: Channel, data: bytes, frame: wire.Frame) -> None:
        name = _said(data, frame, channel.hello.module)
        self.points.module(channel.index, name)
        self.logs.module(channel.index, name, _said_level(data, frame))
        self.logs.batch(channel.index, frame.seq, frame.seq, 0, b"")
        channel.last = frame.seq
        channel.hello = replace(channel.hello, module=name)
        if name not in self.facts["modules"]:
            self.facts["modules"].append(name)
        self.facts["module"] = name
        self.save()

    def note(self, channel: Channel, level_no: int, level: str, text: str) -> None:
        """A line of the agent's in the rank's log."""
        self.logs.note(channel.index, time.time(), level_no, level, text)

    def end(self, channel: Channel, how: str) -> None:
        """The channel's process is gone: "clean" with a goodbye, "vanished" without, "lost" out of sight."""
        if channel.ended:
            return
        status = channel.status or "killed"
        if how != "clean" and not channel.hello.parent:  # workers of a data loader leave so every time
            who = f"rank {channel.hello.label} (pid {channel.hello.pid} on {channel.hello.host})"
            step = "" if channel.progress.step is None else f", last step {channel.progress.step}"
            self.note(channel, 30, "WARNING", f"{who} ended without a goodbye: {how}{step}")
        self.answers.end(channel)
        info = {"time": time.time(), "status": status, "how": how}
        self.points.end_channel(channel.index, info)
        self.logs.end_channel(channel.index, info)
        channel.ended, channel.status, channel.how = True, status, how
        channel.ended_at = self.last_end = time.monotonic()
        self._end_attempt(channel)
        self.writer.wake()

    def _end_attempt(self, channel: Channel) -> None:
        known = self._attempt(channel.attempt)
        mine = [other for other in self.channels.values() if other.attempt == channel.attempt]
        if known is not None:
            if not channel.hello.parent and channel.hello.label in known["ranks"]:
                known["ranks"][channel.hello.label]["status"] = channel.status
            if all(other.ended for other in mine):
                said = [rank.get("status", "killed") for rank in known["ranks"].values()]
                worst = [status for status in ("failed", "killed", "finished") if status in said]
                known["ended"], known["status"] = time.time(), worst[0] if worst else "finished"
        self.save()

    def wants_system(self) -> bool:
        """Whether a tracker would show the node's figures."""
        return bool(self.facts["sinks"]) and any(channel.speaks for channel in self.living())

    def system(self, at: float, seen: Seen | None, host: dict[str, float]) -> None:
        """The node's figures, from the agent's gauges."""
        self._snapshots.saw(seen)
        try:
            self.answers.system(at, seen, host)
        except OSError as error:  # a full disk: there will be others
            self._report(f"figures of the node are left out: {error}")

    def revive(self, channel: Channel) -> None:
        """A rank that was taken for lost has spoken again."""
        channel.ended, channel.status, channel.how = False, "", ""
        known = self._attempt(channel.attempt)
        if known is not None:
            known["ended"], known["status"] = None, "running"
        self.save()

    def miss(self, channel: Channel, last: int) -> None:
        """The rank has nothing up to `last` any more, and neither has the journal: a lost disk, say."""
        count = last - channel.last
        self.note(channel, 40, "ERROR", f"{count} records are missing: the journal that held them is gone")
        channel.last = last
        self.writer.wake()

    def cleared(self) -> bool:
        """Whether no rank left a spool that is still to be looked at."""
        return not any(os.path.exists(channel.hello.spool) for channel in self.channels.values())

    def forget(self, channel: Channel) -> None:
        """An ended channel whose spool is gone never comes back."""
        self.channels.pop(channel.hello.channel, None)
        self.logs.forget(channel.index)
        self.points.forget(channel.index)

    # -- readers -------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Twice a second: watch the sinks, and let go of journal that every reader has passed."""
        if not (self.logs.intact() and self.points.intact()):
            self._remake()
        self._watch_sinks(now)
        self._pass_on_remark()
        self.answers.tick(now)
        for channel in self._silence.found(now, self.channels.values()):
            self.points.silent(channel.index)
            self.answers.silent(channel, PATIENCE)
        self.logs.drop_before(self.writer.durable().segment)
        self._limit_journal(now)

    def _watch_sinks(self, now: float) -> None:
        for name in self.facts["sinks"]:
            supervisor = self.sinks.get(name)
            if supervisor is None or (supervisor.done() and self.living()):
                self._told.pop(name, None)
                self.sinks[name] = supervisor = Supervisor(self.folder, name)
                supervisor.start()
            starts = supervisor.starts
            supervisor.tick(now)
            if supervisor.starts > max(starts, 1):
                log = self.folder / "sinks" / f"{name}.log"
                self._report(f"sink {name} ended ({supervisor.last_exit}) and was started again; see {log}")

    def _pass_on_remark(self) -> None:
        """What the writer of the files has to say to their readers, or cannot."""
        self._hung = self._hung + 1 if self.writer.hangs() else 0
        if self._hung > _LOOKS:  # else it may have been the agent that stood still
            self._report(f"log files: {self.exp_root} does not answer; they wait for it, and nothing is lost")
        written = self.writer.files
        if written is not None and written.remark and self.channels:
            text, written.remark = written.remark, ""
            self.note(next(reversed(self.channels.values())), 30, "WARNING", text)

    def _remake(self) -> None:
        """Somebody removed its folder while it lives. Raises OSError."""
        self._report(f"{self.folder}: was removed; it is made anew, and readers go on with what they hold")
        for name in ("cursors", "sinks"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for journal in (self.logs, self.points):
            if not journal.intact():
                journal.begin_again()
        self.save()
        self.writer.wake()

    def _limit_journal(self, now: float) -> None:
        held = self.logs.end.segment - max(self.writer.durable().segment, 1)
        most = max(2, self._settings.journal_limit_bytes // self._settings.segment_bytes)
        if held <= most:
            self._over_since = None
        elif self.writer.files is not None:
            self._over_since = self._over_since or now
            oldest = self.logs.end.segment - most
            self._report(
                f"{held} journal segments wait for files that cannot be written; the oldest are given up"
            )
            self.writer.give_up_before(oldest)
            hangs = now - self._over_since > _HANGS  # and cannot; what it missed it counts when it goes on
            if hangs and held > most * 5 // 4 + 4:
                self.logs.drop_before(oldest)

    def ended(self) -> bool:
        """Whether no process of it lives."""
        return not self.living()

    def finish(self) -> bool:
        """Let the readers drain; True once they have. Called again until then.

        The log files first: a tracker that is to get them gets them whole.
        """
        if not self.writer.caught_up(self.logs.end):
            return False
        for name, supervisor in list(self.sinks.items()):
            supervisor.stop(drain=True)
            if self._told.setdefault(name, self.points.end) != self.points.end and supervisor.done():
                del self.sinks[name], self._told[name]  # an attempt came and went since: begin again
        return len(self.sinks) == len(self.facts["sinks"]) and all(s.done() for s in self.sinks.values())

    def drain(self) -> None:
        """Let the sinks come to their end, also those of ranks that came after the last look."""
        self._watch_sinks(time.monotonic())
        for supervisor in self.sinks.values():
            supervisor.stop(drain=True)

    def close(self, seconds: float) -> None:
        """Stop the readers, wherever they are: they go on from their cursors."""
        deadline = time.monotonic() + seconds
        for supervisor in self.sinks.values():
            supervisor.stop(drain=True)
        self.writer.stop(seconds)
        self.writer.join(seconds + 0.5)
        while time.monotonic() < deadline and not all(s.done() for s in self.sinks.values()):
            for supervisor in self.sinks.values():
                supervisor.tick(time.monotonic())
            time.sleep(0.05)
        for supervisor in self.sinks.values():
            supervisor.kill()
        self.claims.stop()
        self._snapshots.close()
        self._neighbours.close()
        self.save()
        self.logs.close()
        self.points.close()

    def retire(self, done: Path) -> None:
        """Move to the finished runs: the points stay for a replay, the logs are in their files."""
        self.close(1.0)
        tracker_environ.forget_secrets(self.folder)
        target = done / self.folder.name
        shutil.rmtree(target, ignore_errors=True)
        done.mkdir(parents=True, exist_ok=True)
        self.folder.rename(target)
        logs = target / "journal" / "logs"
        for number in segments(logs):  # the oldest first: a crash in between leaves what the checkpoint names
            (logs / f"{number:08d}.seg").unlink(missing_ok=True)
        shutil.rmtree(logs, ignore_errors=True)
        checkpoint.forget(target / "cursors" / "logfiles.json")

    def save(self) -> None:
        """run.json, for status, tail and sinks. A full disk leaves the old one."""
        self.facts["updated"] = time.time()
        try:
            files.replace_json(self.folder / "run.json", self.facts)
        except OSError as error:
            self._report(f"run.json: {error}")


def run_id(hello: Hello) -> str:
    """The run's folder name: readable, and different for every exp_root."""
    root = hello.exp_root.encode("utf-8", "surrogatepass")
    return f"{safe_name(hello.exp_name)[:80]}-{sha256(root).hexdigest()[:10]}"


def begin(folder: Path, hello: Hello) -> None:
    """Make a run's folder. Raises OSError."""
    (folder / "sinks").mkdir(parents=True, exist_ok=True)
    files.replace_json(folder / "run.json", facts.first(folder.name, vars(hello)))


def _channel(index: int, state: ChannelState) -> Channel:
    hello = Hello.unpacked(state.info)
    ended = state.ended or {}
    status, how = ended.get("status", ""), ended.get("how", "")
    return Channel(index, hello, state.info["attempt"], state.last, ended=bool(ended), status=status, how=how)


def _said(data: bytes, frame: wire.Frame, otherwise: str) -> str:
    """The word in a MODULE or CLOSE record; a stranger may have put anything there."""
    try:
        return str(wire.unpack(wire.body(data, frame))[1])[:_LONGEST_NAME]
    except (ValueError, TypeError, LookupError):
        return otherwise


def _said_level(data: bytes, frame: wire.Frame) -> int | None:
    """The level in a MODULE record, if its client gave one."""
    try:
        level = wire.unpack(wire.body(data, frame))[2]
    except (ValueError, TypeError, LookupError):
        return None
    return level if isinstance(level, int) and 0 <= level <= _HIGHEST_LEVEL else None


def _join(data: bytes, found: list[wire.Frame]) -> bytes:
    """The bytes of some frames of a batch; one slice where they lie together."""
    if not found:
        return b""
    if found[-1].seq - found[0].seq + 1 == len(found):
        return data[found[0].start : found[-1].end]
    return b"".join(data[frame.start : frame.end] for frame in found)
