"""The reader that writes a run's log files: every record once, in order, whatever the disk does.

A *lane* is a set of files that have got equally far in the journal. Normally all are in one. A file that
cannot be written stays behind in a lane of its own, is tried again with growing pauses, catches up from the
journal, and joins the others again: neither its records nor anyone else's are lost or late because of it.

Exactly once: the checkpoint holds each lane's place and each file's length. After a crash the files are cut
back to it and the rest is written again. Separate from the journal because it may be slow, and that may not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rankside.identity import safe_name
from rankside.wire import Kind, unpack_plain
from rankside_agent import checkpoint as generations
from rankside_agent.journal import Entry, EntryType, Position, Reader, State
from rankside_agent.lines import Form, Locations, Thresholds, with_extras
from rankside_agent.logfile import LogFile, Mark, Rename, Rotation

_STEP_LEAST, _STEP_MOST = 128 << 10, 1 << 20  # bytes of journal in one step
_CHECKPOINT = 0.25  # seconds between checkpoints while there is work: what a crash makes us write again
_PAUSE_LEAST, _PAUSE_MOST = 0.25, 5.0  # seconds before a file that failed is tried again
_OPEN_FILES = 512  # more than this are closed and opened when needed


@dataclass
class Lane:
    """Files at one place of the journal. Files not seen yet belong to the foremost lane."""

    reader: Reader
    files: set[Path] = field(default_factory=set)
    not_before: float = 0.0
    pause: float = 0.0

    @property
    def position(self) -> Position:
        """How far its files hold the journal."""
        return self.reader.position


class Outlet(NamedTuple):
    """The lines of those files that take a record of one channel and level."""

    levels: tuple[list[str], ...]
    node: list[str] | None


class Pages(dict[Path, list[str]]):
    """Lines for each file of a lane, one string a record."""

    def __init__(self, wanted: Callable[[Path], bool]) -> None:
        super().__init__()
        self._wanted = wanted

    def outlet(self, channel: Channel, number: int) -> Outlet:
        """Where the channel's records of this level go."""
        paths = [channel.paths[name] for name in channel.threshold(number)]
        node = channel.paths.get("node") if paths else None
        levels = tuple(self._lines(path) for path in paths if self._wanted(path))
        return Outlet(levels, self._lines(node) if node is not None and self._wanted(node) else None)

    def _lines(self, path: Path) -> list[str]:
        return self.setdefault(path, [])


class Outlets(dict[int, Outlet]):
    """By level number, where one channel's records go: made once a step, then looked up without a call."""

    def __init__(self, pages: Pages, channel: Channel) -> None:
        super().__init__()
        self._pages, self._channel = pages, channel

    def __missing__(self, number: int) -> Outlet:
        found = self[number] = self._pages.outlet(self._channel, number)
        return found


class LogFiles:
    """A run's log files. Not thread-safe: the run's writer thread owns it."""

    def __init__(
        self,
        journal: Path,
        checkpoint: Path,
        exp_root: Path,
        rotation: Rotation,
        report: Callable[[str], None],
        *,
        allowed: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take up where the checkpoint says, after cutting the files back to it. Raises OSError."""
        self._journal = journal
        self._checkpoint = checkpoint
        self._root = exp_root
        self._rotation = rotation
        self._allowed = allowed
        self._report = report
        self._now = clock
        # a step is written whole before the next rotation, so it must be small beside a small limit
        self._step_bytes = min(max(rotation.limit // 4, _STEP_LEAST), _STEP_MOST)
        self._files: dict[Path, LogFile] = {}
        self._channels: dict[tuple[int, str, str], Channel] = {}
        self._locations: dict[tuple[int, str], Locations] = {}
        self._before: list[tuple[int, str, int]] | None = (
            None  # widths of locations, before the step we are in
        )
        self._held: int | None = None  # records, likewise
        self._fresh = False  # a new inode that no checkpoint holds yet
        self._rooted = False  # the run's own folder was seen
        self._saved_at = 0.0
        self._dirty = False
        self.idle = False  # nothing was left to write at the last look
        self.lost = 0  # records that left the journal before a file could take them
        self.last_error = ""
        self.remark = ""  # for those who read the files: what may be wrong with them
        self._lanes = self._restore()

    # -- what the writer thread calls ----------------------------------------------------------------

    def advance(self) -> bool:
        """One step with each lane that may go on; True where something moved."""
        moved = False
        for lane in list(self._lanes):
            if lane.not_before <= self._now():
                moved = self._step(lane) or moved
        self._merge()
        self.idle = not moved and len(self._lanes) == 1
        if self._dirty and self._now() - self._saved_at >= _CHECKPOINT:
            self.save()
        return moved

    def save(self, renames: Iterable[Rename] = ()) -> None:
        """Make the place of every lane durable. Raises OSError."""
        self._saved_at = self._now()
        lanes = [
            {
                "position": list(lane.position),
                "files": {str(path): list(self._files[path].mark) for path in lane.files},
            }
            for lane in self._lanes
        ]
        moves = [[str(move.source), str(move.target), move.inode] for move in renames]
        value = {
            "lanes": lanes,
            "renames": moves,
            "lost": self.lost,
            "records": self.records,
            "widths": self._before if self._before is not None else self._widths(),
        }
        generations.save(self._checkpoint, value)
        self.durable = min(lane.position for lane in self._lanes)
        self._dirty = self._fresh = False

    @property
    def records(self) -> int:
        """Records of the journal that all healthy files hold: those of a step under way are not there yet."""
        return self._front.reader.state.records if self._held is None else self._held

    @property
    def behind(self) -> list[str]:
        """Files that cannot be written now."""
        return sorted(str(path) for lane in self._lanes if lane is not self._front for path in lane.files)

    @property
    def unsaved(self) -> bool:
        """Whether there is more in the files than in the checkpoint."""
        return self._dirty

    def waiting(self, end: Position) -> bool:
        """Whether anything before `end` is still to be written."""
        return any(lane.position < end for lane in self._lanes)

    def give_up_before(self, segment: int) -> None:
        """The journal must shrink: lanes further back skip to `segment`; what they skip is counted lost."""
        for lane in self._lanes:
            if lane.position.segment < segment:
                self.lost += self._skip_to(lane, segment)
        self._merge()
        self.save()

    def close(self) -> None:
        """Checkpoint and let go. Raises OSError."""
        try:
            self.save()
        finally:
            for lane in self._lanes:
                lane.reader.close()
            for file in self._files.values():
                file.close()

    # -- lanes ---------------------------------------------------------------------------------------

    @property
    def _front(self) -> Lane:
        return max(self._lanes, key=lambda lane: lane.position)

    def _step(self, lane: Lane) -> bool:
        before, held = lane.position, self.records
        entries = lane.reader.read(self._step_bytes)
        if not entries:
            self._dirty = self._dirty or lane.position != before  # into the next segment
            return False
        self._before, self._held = self._widths(), held
        try:
            pages = self._pages(entries, self._wanted_by(lane))
            failed = self._write(lane, pages, before)
        except BaseException:  # the checkpoint could not be written: nothing was appended yet
            lane.reader.go_back(before)
            raise
        finally:
            self._before = self._held = None
        if lane.reader.lost:
            self._report(f"the journal is damaged: {lane.reader.lost} records never reached the log files")
            self.lost, lane.reader.lost = self.lost + lane.reader.lost, 0
        if failed:
            self._split(lane, failed, before)
        else:
            lane.pause = 0.0
        self._dirty = True
        return True

    def _wanted_by(self, lane: Lane) -> Callable[[Path], bool]:
        """Its own files; for the foremost lane, all that are no other's."""
        if lane is not self._front:
            return lane.files.__contains__
        others = {path for other in self._lanes if other is not lane for path in other.files}
        return lambda path: path not in others

    def _split(self, lane: Lane, failed: set[Path], before: Position) -> None:
        """Files that failed stay at `before`; the others have gone on."""
        pause = min(max(lane.pause * 2, _PAUSE_LEAST), _PAUSE_MOST)
        lane.files -= failed
        lane.pause = 0.0
        behind = Lane(Reader(self._journal, before), failed, self._now() + pause, pause)
        self._lanes.append(behind)
        if not lane.files and lane is not self._front:
            self._drop(lane)

    def _merge(self) -> None:
        """Lanes at the same place are one lane."""
        by_place: dict[Position, Lane] = {}
        for lane in list(self._lanes):
            other = by_place.setdefault(lane.position, lane)
            if other is not lane:
                other.files |= lane.files
                other.not_before = max(other.not_before, lane.not_before)
                other.pause = max(other.pause, lane.pause)
                self._drop(lane)

    def _drop(self, lane: Lane) -> None:
        lane.reader.close()
        self._lanes.remove(lane)

    def _skip_to(self, lane: Lane, segment: int) -> int:
        """Pass over what lies before `segment`; returns how many records the lane's files will never hold."""
        before, wanted, lost = lane.position, self._wanted_by(lane), 0
        try:
            while lane.position.segment < segment:
                entries = lane.reader.read(_STEP_MOST)
                if not entries:
                    break
                for entry in entries:
                    if entry.after.segment < segment:  # what any file holds, the lowest of them holds too
                        lost += max(map(len, self._pages([entry], wanted).values()), default=0)
            lost += lane.reader.lost  # in segments that were gone already
            lane.reader.go_back(Position(segment, 0))
        except BaseException:
            lane.reader.go_back(before)
            raise
        return lost

    # -- files ---------------------------------------------------------------------------------------

    def _write(self, lane: Lane, pages: Pages, before: Position) -> set[Path]:
        """Write the pages; returns the files that could not take theirs. Raises OSError before any byte."""
        encoded = _encoded(pages)
        failed = self._make_ready(lane, encoded, before)
        for path, data in encoded.items():
            if path in failed:
                continue
            try:
                self._files[path].append(data, len(pages[path]))
            except OSError as error:
                self._failed(path, error)
                failed.add(path)
        return failed

    def _make_ready(self, lane: Lane, encoded: dict[Path, bytes], before: Position) -> set[Path]:
        """Open and rotate what is needed, with a checkpoint before the first byte goes to a new inode."""
        failed: set[Path] = set()
        renames = []
        self._close_some(len(encoded))
        for path, data in encoded.items():
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = LogFile(path, allowed=self._allowed)
            lane.files.add(path)
            if self._opened(file, failed) and self._rotation.due(file, len(data)):
                renames.append(self._rotation.plan(file))
        if renames:
            self._save_at(lane, before, renames)
        for move in renames:
            self._rotate(move, failed)
        if self._fresh:
            self._save_at(lane, before)
        return failed

    def _opened(self, file: LogFile, failed: set[Path]) -> bool:
        try:
            known = file.ready()
        except OSError as error:
            self._failed(file.path, error)
            failed.add(file.path)
            return False
        if not known:
            self._fresh = True
            self._look_at_root()
        return True

    def _look_at_root(self) -> None:
        """A file had to be made: perhaps because the run's folder is another one than it was."""
        if os.path.exists(self._root / "snapshot" / "key"):
            self._rooted = True
        elif self._rooted:
            self._rooted = False
            self._report(
                f"{self._root}: is not the folder it was, snapshot/key is gone from it (removed, or a mount "
                "that went away): log files are begun anew there"
            )

    def _rotate(self, move: Rename, failed: set[Path]) -> None:
        file = self._files[move.source]
        file.close()
        try:
            move.perform()
        except OSError as error:
            self._failed(file.path, error)  # it grows on under its name
        self._opened(file, failed)
        self._rotation.afterwards(move)

    def _save_at(self, lane: Lane, before: Position, renames: Iterable[Rename] = ()) -> None:
        """A checkpoint in the middle of a step: the lane's files still hold the journal up to `before`."""
        ahead, lane.reader = lane.reader, _At(before, lane.reader.state)  # type: ignore[assignment]
        try:
            self.save(renames)
        finally:
            lane.reader = ahead

    def _failed(self, path: Path, error: OSError) -> None:
        self.last_error = f"{path}: {error.strerror or error}"
        self._report(f"log file {self.last_error}; it is tried again, and nothing is lost meanwhile")

    def _close_some(self, needed: int) -> None:
        if len(self._files) > max(_OPEN_FILES, needed):
            for file in self._files.values():
                file.close()

    # -- the checkpoint ------------------------------------------------------------------------------

    def _restore(self) -> list[Lane]:
        found = generations.load(self._checkpoint, self._report) or {}
        self.lost = int(found.get("lost", 0))
        for number, name, width in found.get("widths", []):
            self._locations[number, name] = Locations(width)
        for source, target, inode in found.get("renames", []):
            try:
                Rename(Path(source), Path(target), inode).perform()
            except OSError as error:
                self._failed(Path(source), error)  # it grows on under its name
        lanes = []
        for saved in found.get("lanes", []):
            lane = Lane(Reader(self._journal, Position(*saved["position"])))
            for name, mark in saved["files"].items():
                self._adopt(lane, LogFile(Path(name), Mark(*mark), self._allowed))
            lanes.append(lane)
        if not lanes:
            self._doubt()
            lanes = [Lane(Reader(self._journal))]
        self.durable = min(lane.position for lane in lanes)
        return lanes

    def _doubt(self) -> None:
        """Without a checkpoint: a new run, or one whose files hold already what is now written again."""
        reader = Reader(self._journal)
        entries = reader.read()
        doubtful = any(self._is_written(entry.info) for entry in entries if entry.type == EntryType.OPEN)
        again = 0
        while doubtful and entries:
            again += sum(entry.records() for entry in entries)
            entries = reader.read()
        reader.close()
        if again:
            self.remark = (
                f"where the log files were is lost ({self._checkpoint} and the one before): {again} records "
                "of the journal are written again, and those that were written already stand twice"
            )
            self._report(self.remark)

    def _is_written(self, info: dict[str, Any]) -> bool:
        """Whether a file of this channel was written to since it began."""
        for path in paths(self._root / info["log_root"], info["module"], info).values():
            with suppress(OSError):
                found = path.stat()
                if found.st_size and found.st_mtime > info["opened"]:  # an empty one was made, and no more
                    return True
        return False

    def _adopt(self, lane: Lane, file: LogFile) -> None:
        self._files[file.path] = file
        lane.files.add(file.path)
        try:
            file.cut_to_mark()
            self._rotation.heal(file.path)
        except OSError as error:
            self._failed(file.path, error)

    # -- entries into lines --------------------------------------------------------------------------

    def _pages(self, entries: list[Entry], wanted: Callable[[Path], bool]) -> Pages:
        pages = Pages(wanted)
        for entry in entries:
            write = _ENTRIES.get(entry.type)
            if write is not None and entry.info:
                write(self, pages, self._channel(entry), entry)
        return pages

    def _widths(self) -> list[tuple[int, str, int]]:
        """How wide each channel's locations are: what is written again after a crash reads the same."""
        return [(*who, location.width) for who, location in self._locations.items()]

    def _channel(self, entry: Entry) -> Channel:
        # the name too: a number is used again after a restart, and lanes may be on both sides of that
        who = (entry.channel, entry.info["channel"])
        key = (*who, entry.info["module"])
        found = self._channels.get(key)
        if found is None:
            location = self._locations.setdefault(who, Locations())
            found = self._channels[key] = Channel(self._root, entry.info, location)
        return found

    def _on_end(self, _pages: Pages, _channel: Channel, entry: Entry) -> None:
        """Its process is gone; a run may see thousands of short-lived ones."""
        self._locations.pop((entry.channel, entry.info["channel"]), None)
        for key in [key for key in self._channels if key[0] == entry.channel]:
            del self._channels[key]

    def _on_open(self, pages: Pages, channel: Channel, entry: Entry) -> None:
        info = entry.info
        if info["attempt"] > 1 and not info["parent"]:
            who = f"rank {info['label']} of {info['world_size']}, pid {info['pid']} on {info['host']}"
            text = f"======== attempt {info['attempt']}: {who} ========"
            self._line(Outlets(pages, channel), channel, (info["opened"], 20, "INFO", "rankside", 0, text))

    def _on_note(self, pages: Pages, channel: Channel, entry: Entry) -> None:
        at, number, level, text = entry.value()
        self._line(Outlets(pages, channel), channel, (at, number, level, "rankside", 0, text))

    def _on_lines(self, pages: Pages, channel: Channel, entry: Entry) -> None:
        value = entry.value()
        for text in value["texts"]:
            self._line(Outlets(pages, channel), channel, (value["time"], 20, "INFO", "rankside", 0, text))

    def _on_batch(self, pages: Pages, channel: Channel, entry: Entry) -> None:
        outlets = Outlets(pages, channel)
        for seq, kind, body in entry.frames():
            try:
                fields = unpack_plain(body)
                self._line(outlets, channel, fields if kind == _LOG else _REMARKS[kind](fields))
            except Exception as error:  # noqa: BLE001  a stranger's record must not stop the others
                text = f"record {seq} cannot be read: {type(error).__name__}: {error}"
                self._line(outlets, channel, (0, 40, "ERROR", "rankside", 0, text))

    @staticmethod
    def _line(outlets: Outlets, channel: Channel, fields: Any) -> None:
        at, number, level, file, line, text, *extras = fields
        levels, node = outlets[number]
        if not levels and node is None:
            channel.form.pass_over(file, line)
            return
        level_line, node_line = channel.form(at, level, file, line, text)
        if extras and node is not None:
            node_line = with_extras(node_line, extras[0])  # before any line is taken: it may be a stranger's
        for lines in levels:
            lines.append(level_line)
        if node is not None:
            node.append(node_line)


class Channel:
    """How and where one channel's records of one module are written."""

    def __init__(self, exp_root: Path, info: dict[str, Any], location: Locations) -> None:
        self.form = Form(info, location)
        self.threshold = Thresholds(int(info["file_level"]))
        self.paths = paths(exp_root / info["log_root"], info["module"], info)


def _event(fields: Any) -> tuple[Any, ...]:
    at, name, values = fields
    told = " ".join([f"event {name}", *(f"{key}={value}" for key, value in values.items())])
    return at, 20, "INFO", "rankside", 0, told


def _dropped(fields: Any) -> tuple[Any, ...]:
    at, counts = fields
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    return (
        at,
        40,
        "ERROR",
        "rankside",
        0,
        f"{sum(counts.values())} records dropped, the spool was full: {told}",
    )


# Records that are no log lines and yet show in the log
_LOG = int(Kind.LOG)
_REMARKS: dict[int, Callable[[Any], tuple[Any, ...]]] = {Kind.EVENT: _event, Kind.DROPPED: _dropped}
_ENTRIES: dict[int, Callable[[LogFiles, Pages, Channel, Entry], None]] = {
    EntryType.OPEN: LogFiles._on_open,
    EntryType.NOTE: LogFiles._on_note,
    EntryType.LINE: LogFiles._on_lines,
    EntryType.BATCH: LogFiles._on_batch,
    EntryType.END: LogFiles._on_end,
}


class _At(NamedTuple):
    """Stands in for a reader while a checkpoint is taken at an earlier place."""

    position: Position
    state: State


def paths(log_root: Path, module: str, info: dict[str, Any]) -> dict[str, Path]:
    """The level files by name, and "node" for workers' aggregated log."""
    names = ("debug", "info", "warning", "error")
    if info["role"] == "master":
        return {name: log_root / "master" / f"master-{name}.log" for name in names}
    folder = log_root / safe_name(module)
    rank = folder / f"rank-{safe_name(str(info['label']))}"
    return {
        **{name: rank / f"{name}.log" for name in names},
        "node": folder / f"node-{safe_name(info['host'])}.log",
    }


def _encoded(pages: Pages) -> dict[Path, bytes]:
    """What each file gets. Most often debug.log and info.log get the same, which is then made once."""
    found: dict[Path, bytes] = {}
    before: list[str] = []
    data = b""
    for path, lines in pages.items():
        if lines and lines != before:
            before, data = lines, _bytes(lines)
        if lines:
            found[path] = data
    return found


def _bytes(lines: list[str]) -> bytes:
    text = "".join(lines)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")  # lone surrogates: the file stays UTF-8
