"""Append records to segment files before any reader sees them, and before the rank is told they are safe.

Separate because it is the only thing on the hot path: every output reads from here with a cursor of its own.
A run has two journals of this form, `logs` and `points` (what trackers need, kept long).

    segment file    {number:08d}.seg, entries one after another; the first is HEADER
    entry           payload length u32 | crc32 u32 | type u8 | channel u32 | payload
    HEADER          msgpack {records, channels: {index: {info, last, ended, sample, resume}}}: all that
                    readers must know of what came before, so that older segments can go
    OPEN, END, NOTE, MODULE, LINE, FIGURES      msgpack
    SILENT          nothing
    BATCH           first u64, last u64, count u32, then `count` frames as they came from the rank
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from rankside import wire
from rankside_agent import limits

SEGMENT_BYTES = 16 << 20
_ENTRY = struct.Struct("<IIBI")
_BATCH = struct.Struct("<QQI")


class EntryType(IntEnum):
    """What an entry is; the number is on disk."""

    HEADER = 0
    OPEN = 1
    BATCH = 2
    END = 3
    NOTE = 4
    MODULE = 5
    LINE = 6
    FIGURES = 7
    SILENT = 8


_ANSWERS = frozenset((EntryType.LINE, EntryType.FIGURES))


class Position(NamedTuple):
    """A place between two entries."""

    segment: int
    offset: int


class Entry(NamedTuple):
    """One entry; `info` is what its channel was when it was written, `after` where the next begins."""

    type: int
    channel: int
    payload: bytes
    after: Position
    info: dict[str, Any]

    def value(self) -> Any:
        """The content of every type but BATCH and SILENT."""
        return wire.unpack(self.payload)

    def records(self) -> int:
        """How many a BATCH holds, else 0."""
        return int(_BATCH.unpack_from(self.payload)[2]) if self.type == EntryType.BATCH else 0

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """(sequence, kind, packed body) of each record of a BATCH."""
        payload, head, unpack = self.payload, wire.HEAD.size, wire.HEAD.unpack_from
        start = _BATCH.size + head  # their checksums were looked at when they came; the entry has its own
        while start <= len(payload):
            length, _, seq, kind = unpack(payload, start - head)
            yield seq, kind, payload[start : start + length]
            start += length + head


@dataclass
class ChannelState:
    """What a journal knows of a channel: `info` as opened, the last sequence number stored, its end.

    `sample` is the sequence number of the last one that the agent has answered here with a line or figures of
    its own, `resume` what it must know to go on with the next.
    """

    info: dict[str, Any]
    last: int = 0
    ended: dict[str, Any] | None = None
    sample: int = 0
    resume: dict[str, Any] = field(default_factory=dict)


@dataclass
class State:
    """Channels and counts as of some place in a journal; both sides replay entries into one."""

    records: int = 0
    channels: dict[int, ChannelState] = field(default_factory=dict)

    def header(self) -> bytes:
        """The payload of a HEADER entry."""
        channels = {i: vars(channel) for i, channel in self.channels.items()}
        return wire.pack({"records": self.records, "channels": channels})

    @classmethod
    def of_header(cls, payload: bytes) -> State:
        """From a HEADER entry."""
        found = wire.unpack(payload)
        channels = {int(i): ChannelState(**channel) for i, channel in found["channels"].items()}
        return cls(found["records"], channels)

    def apply(self, kind: int, channel: int, payload: bytes) -> None:
        """Take in one entry."""
        if kind == EntryType.OPEN:
            info = wire.unpack(payload)
            self.channels[channel] = ChannelState(info, int(info.get("last", 0)))
        elif kind == EntryType.BATCH and channel in self.channels:
            _, last, count = _BATCH.unpack_from(payload)
            self.channels[channel].last = max(last, self.channels[channel].last)
            self.records += count
        elif kind == EntryType.MODULE and channel in self.channels:
            known = self.channels[channel]
            known.info = {**known.info, **wire.unpack(payload)}  # anew: earlier entries keep theirs
        elif kind == EntryType.END and channel in self.channels:
            self.channels[channel].ended = wire.unpack(payload)
        elif kind in _ANSWERS and channel in self.channels:
            value = wire.unpack(payload)
            self.channels[channel].sample = max(int(value["sample"]), self.channels[channel].sample)
            self.channels[channel].resume = value.get("resume") or self.channels[channel].resume


class Journal:
    """The writing side; one process at a time."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open or create. A torn tail is cut off; only the newest segment is read. Raises OSError."""
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._most = limits.file_bytes()
        folder.mkdir(parents=True, exist_ok=True)
        self.state = State()
        self._fd = -1
        self._torn = False  # half an entry lies at the end
        numbers = segments(folder)
        self._highest = numbers[-1] if numbers else 0
        while numbers and not self._resume(numbers[-1]):
            numbers.pop()  # cut inside its header: the machine died while it was begun
        if not numbers:
            self._begin(self._highest + 1)

    @property
    def end(self) -> Position:
        """Behind the newest entry."""
        return Position(self._number, self._size)

    def intact(self) -> bool:
        """Whether the newest segment lies where a reader finds it."""
        return os.path.exists(_path(self.folder, self._number))

    def begin_again(self) -> None:
        """Somebody removed the folder: readers go on with what they hold open, then in a new segment here.

        A reader that begins anew, after a kill, finds the segment's content where it was. Raises OSError, and
        has then begun nothing.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path, held = _path(self.folder, self._number), os.pread(self._fd, self._size, 0)
        copy = path.with_suffix(".held")
        try:
            copy.write_bytes(held)
            self._begin(self._highest + 1)
        except OSError:
            copy.unlink(missing_ok=True)
            raise
        os.rename(copy, path)

    def open_channel(self, channel: int, info: dict[str, Any]) -> None:
        """A channel begins; `info["last"]` is the sequence number before its first record."""
        self._append(EntryType.OPEN, channel, wire.pack(info))

    def batch(self, channel: int, first: int, last: int, count: int, frames: bytes) -> None:
        """Records of one channel. Raises OSError on a full disk; the journal is then as it was."""
        self._append(EntryType.BATCH, channel, _BATCH.pack(first, last, count) + frames)

    def note(self, channel: int, time: float, level_no: int, level: str, text: str) -> None:
        """A line of the agent's own, for the channel's log."""
        self._append(EntryType.NOTE, channel, wire.pack((time, level_no, level, text)))

    def lines(self, channel: int, sample: int, time: float, texts: Sequence[str]) -> None:
        """Lines that the agent made of a rank's sample, by its sequence number; not a second time."""
        if texts and sample > self.state.channels[channel].sample:
            value = {"sample": sample, "time": time, "texts": texts}
            self._append(EntryType.LINE, channel, wire.pack(value))

    def figures(self, channel: int, value: Mapping[str, Any]) -> None:
        """Numbers of the agent's own: {"sample", "time", "step", "values", "resume"}.

        With `sample`, the sequence number of the one that they answer, they are not stored a second time; 0
        where they answer none.
        """
        sample = int(value["sample"])
        if not sample or sample > self.state.channels[channel].sample:
            self._append(EntryType.FIGURES, channel, wire.pack(value))

    def silent(self, channel: int) -> None:
        """The channel's rank has sent all it has, and has said nothing while others did."""
        self._append(EntryType.SILENT, channel, b"")

    def module(self, channel: int, name: str, file_level: int | None = None) -> None:
        """The channel's records from here on belong to another module; its files may hold other levels."""
        level = {} if file_level is None else {"file_level": file_level}
        self._append(EntryType.MODULE, channel, wire.pack({"module": name, **level}))

    def end_channel(self, channel: int, info: dict[str, Any]) -> None:
        """A channel's last entry: {"time", "status", "how", ...}."""
        self._append(EntryType.END, channel, wire.pack(info))

    def forget(self, channel: int) -> None:
        """An ended channel whose spool is gone cannot come back; the next header leaves it out."""
        self.state.channels.pop(channel, None)

    def drop_before(self, segment: int) -> int:
        """Delete segments older than `segment`; returns how many."""
        old = [number for number in segments(self.folder) if number < min(segment, self._number)]
        for number in old:
            _path(self.folder, number).unlink(missing_ok=True)
        return len(old)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, kind: int, channel: int, payload: bytes) -> None:
        if self._torn:
            self._cut()
        data = _entry(kind, channel, payload)
        full = self._size > self._header and self._size + len(data) > self._most
        if self._size >= max(self._segment_bytes, 4 * self._header) or self._final or full:
            self._begin(self._highest + 1)
        self._write(data)
        self.state.apply(kind, channel, payload)

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes written", str(self.folder))
        except OSError:
            self._torn = True  # until it is cut, which may fail too
            self._cut()
            raise
        self._size += len(data)

    def _cut(self) -> None:
        """Back to the last whole entry."""
        os.ftruncate(self._fd, self._size)
        self._torn = False

    def _begin(self, number: int) -> None:
        path = _path(self.folder, number)
        header = _entry(EntryType.HEADER, 0, self.state.header())
        fresh = path.with_suffix(".new")
        fd = os.open(fresh, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if os.write(fd, header) != len(header):
                raise OSError(errno.ENOSPC, "no room for a header", str(fresh))
            os.rename(fresh, path)  # a segment is there with its header or not at all
        except OSError:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        before, self._fd = self._fd, fd
        self._number = self._highest = number
        self._size = self._header = len(header)
        self._final = False
        if before >= 0:
            os.close(before)

    def _resume(self, number: int) -> bool:
        path = _path(self.folder, number)
        data = path.read_bytes()
        entries = _entries(data, 0)
        first = next(entries, None)
        if first is None or first[0] != EntryType.HEADER:
            path.unlink()
            return False
        self.state, self._header = State.of_header(first[2]), first[3]
        end = self._header
        for kind, channel, payload, after in entries:
            self.state.apply(kind, channel, payload)
            end = after
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        if end != len(data):
            os.ftruncate(self._fd, end)
        self._number, self._size = number, end
        # A lost write may have cut it, even between two entries, where a reader was already further on:
        # only a segment of its own keeps the places of what follows apart from those that were
        self._final = True
        return True


class Reader:
    """The reading side: any number of them, in any process, beside a living writer.

    `state` is what the journal knew at `position`; `skipped` counts segments that were gone or unreadable,
    `lost` the records in them, as far as the next header tells.
    """

    def __init__(self, folder: Path, position: Position | None = None) -> None:
        self._folder = folder
        self._fd = -1
        self.skipped = self.lost = 0
        self.state = State()
        self._at = 0  # where the next read begins, in the open segment
        self.position = position or Position(0, 0)
        self._sought = self._headed = False  # whether at `position`, and whether `state` is what it should be
        with suppress(OSError):  # no descriptor is free, say: the first read tries again, and raises
            self._seek()

    def read(self, most: int = 1 << 20) -> list[Entry]:
        """The next whole entries, about `most` bytes; empty where there is nothing new yet.

        Raises OSError, and has then lost nothing: the next call goes on where this one began.
        """
        if not self._sought:
            self._seek()
        found: list[Entry] = []
        taken = 0
        while taken < most or not found:
            try:
                more = self._take(self._bytes(most), found, most - taken)
            except OSError:
                if found:
                    break  # the next call meets it again
                raise
            taken += more
            if not more and (found or not self._next_segment()):
                break
        return found

    def go_back(self, position: Position) -> None:
        """Read again from `position`, which this reader has passed. Cannot fail: the next read goes there."""
        if position.segment != self.position.segment:
            self.close()  # else it is kept: somebody may have removed it
        self.position, self._sought, self.lost = position, False, 0

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, data: bytes, found: list[Entry], most: int) -> int:
        """Move over the whole entries in `data`, about `most` bytes; returns how many bytes."""
        start, segment, state = self._at, self.position.segment, self.state
        for kind, channel, payload, end in _entries(data, 0):
            self._at = start + end
            self.position = Position(segment, self._at)
            if kind == EntryType.HEADER:
                state = self._begun(State.of_header(payload))
            else:
                state.apply(kind, channel, payload)
                known = state.channels.get(channel)
                found.append(Entry(kind, channel, payload, self.position, known.info if known else {}))
            if end >= most:
                break
        return self._at - start

    def _begun(self, state: State) -> State:
        """Into a segment; what its header counts more than we saw, we have missed."""
        if self._headed:
            self.lost += max(0, state.records - self.state.records)
        self.state, self._headed = state, True
        return state

    def _bytes(self, most: int) -> bytes:
        if self._fd < 0:
            return b""
        data = os.pread(self._fd, max(most, _ENTRY.size), self._at)
        if len(data) >= _ENTRY.size:
            whole = _ENTRY.size + _ENTRY.unpack_from(data)[0]
            if len(data) < whole <= os.fstat(self._fd).st_size - self._at:
                data = os.pread(self._fd, whole, self._at)
        return data

    def _next_segment(self) -> bool:
        """Go on to the next segment, once it exists: this one is then final."""
        here = self.position.segment
        later = [number for number in segments(self._folder) if number > here]
        if not later:
            return False
        damaged = False
        if self._fd >= 0 and os.fstat(self._fd).st_size > self._at:
            if next(_entries(self._bytes(1 << 16), 0), None):
                return True  # written between our last look and the birth of the next segment
            damaged = True  # on disk: what follows in it cannot be found
        if not self._enter(later[0]):
            return False
        self.skipped += damaged + (later[0] - here - 1 if here else 0)
        return True

    def _enter(self, number: int) -> bool:
        try:
            fd = os.open(_path(self._folder, number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self.close()
        self._fd, self._at, self.position = fd, 0, Position(number, 0)
        return True

    def _seek(self) -> None:
        target = self.position
        try:
            self._go_to(target)
        except OSError:
            self.close()
            self.position = target
            raise
        self._sought = True

    def _go_to(self, target: Position) -> None:
        """By way of its segment's start: the header and what was opened since make `state`."""
        self.state, self._headed = State(), False
        if self._fd >= 0:
            self._at, self.position = 0, Position(target.segment, 0)
            self._take_until(target.offset)
            return
        numbers = segments(self._folder)
        # without a segment of that number the next; where all are older, it is another journal, begun anew
        number = next((each for each in numbers if each >= target.segment), numbers[0] if numbers else 0)
        if not number or not self._enter(number):
            self.position = Position(0, 0)
        elif number == target.segment:
            self._take_until(target.offset)
        elif target.segment:
            self.skipped += max(0, number - target.segment)

    def _take_until(self, offset: int) -> None:
        """To no other segment: this one may have been cut meanwhile."""
        while self._at < offset:
            left = offset - self._at
            if not self._take(self._bytes(min(1 << 20, left)), [], left):
                break


def segments(folder: Path) -> list[int]:
    """Numbers of the segment files, ascending."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".seg") and name[:-4].isdecimal())


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.seg"


def _entry(kind: int, channel: int, payload: bytes) -> bytes:
    check = crc32(payload, _seed(kind, channel))
    return _ENTRY.pack(len(payload), check, kind, channel) + payload


def _seed(kind: int, channel: int) -> int:
    """Where the checksum starts. Inverted: zeros, which a lost write leaves behind, are then no entry."""
    return ~(kind << 24 ^ channel) & 0xFFFFFFFF


def _entries(data: bytes, start: int) -> Iterator[tuple[int, int, bytes, int]]:
    """(type, channel, payload, end) up to the first entry that is torn or not there."""
    while start + _ENTRY.size <= len(data):
        length, check, kind, channel = _ENTRY.unpack_from(data, start)
        end = start + _ENTRY.size + length
        if end > len(data):
            return
        payload = data[start + _ENTRY.size : end]
        if crc32(payload, _seed(kind, channel)) != check:
            return
        yield kind, channel, payload, end
        start = end
