"""The helper beside a rank whose descriptors are captured: passes on what they are given, and records it.

Separate, and a process of its own, because it must outlive the rank: the last words of a process that is
killed, or dies in C++, are read by somebody else or by nobody.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankside import client
from rankside.client import Monitor, Options
from rankside.file_room import free, has_room, reserve
from rankside.identity import Hello
from rankside.leftover import Leftover
from rankside.output_folder import AHEAD, STREAMS, OutputFolder, behind, unwritten
from rankside.output_marks import Marks
from rankside.output_passer import QUICK, SLOW, Passer, same_place
from rankside.output_reader import Reader
from rankside.output_recorder import Recorder
from rankside.printed_lines import LONGEST

BEHIND = 64 << 20  # bytes of a stream that wait for somebody who does not read them
GRACE = 30.0  # seconds after the rank's death in which what its children print is recorded
STUCK = 30.0  # seconds without progress after which a reader of the rank's output is not waited for
_AT_ONCE = 1 << 20  # bytes recorded before anything else is looked at
_FREE_AT = 256 << 10
_HEAD = 4 * LONGEST  # bytes of a long line that a successor needs
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGTTOU")


class Tail:
    """One capture, from its files to the spool and to the original descriptors."""

    def __init__(self, folder: OutputFolder, targets: dict[int, int]) -> None:
        self._folder, self._page = folder, folder.page()
        self._told = folder.told()
        self._fds = _opened(folder)
        marks = Marks(str(self._told["word"]))
        at = self._page.recorded(_has(folder))
        self._monitor = _monitor(folder, self._told)
        self._recorder: Recorder | None = Recorder(self._monitor, self._page, at)
        self._reader = Reader(self._fds, at, marks)
        self._said: list[str] = []
        self._passers = self._begin_passing({s: t for s, t in targets.items() if s in self._fds}, marks)
        self._reserved = dict.fromkeys(self._fds, 0)
        self._freed = dict.fromkeys(self._fds, 0)
        self._lost: dict[int, int] = {}
        self._alone_since: float | None = None
        self._complete = False

    def _begin_passing(self, targets: dict[int, int], marks: Marks) -> dict[int, Passer]:
        for stream in self._fds.keys() - targets.keys():
            self._page.pass_on(stream, 1 << 62)
        groups = [[stream] for stream in targets]
        if len(targets) == 2 and same_place(targets[0], targets[1]):
            groups = [[0, 1]]
        passers: dict[int, Passer] = {}
        for group in groups:
            fds, to = {s: self._fds[s] for s in group}, {s: targets[s] for s in group}
            earlier = {s: found for s in group if (found := self._earlier(to[s])) is not None}
            passer = Passer(self._page, fds, to, marks, self._said.append, earlier)
            passers.update(dict.fromkeys(group, passer))
        return passers

    def _earlier(self, target: int) -> Marks | None:
        """Of a capture of this very rank that `target` leads to: the process began anew with exec."""
        folder = behind(target)
        told = {} if folder is None else folder.told()
        same = told and _rank_of(told["hello"]) == _rank_of(self._told["hello"])
        return Marks(str(told["word"])) if same else None

    def run(self) -> None:
        """Until nobody can write any more and all is read."""
        pause = QUICK
        while True:
            final = all(unwritten(fd) for fd in self._fds.values())  # first: what is read after it is all
            moved = self._read(final)
            if final:
                for passer in self._passers.values():
                    passer.finish()
            self._tend()
            if final and not moved and self._all_read():
                break
            pause = QUICK if moved else min(pause * 1.5, SLOW)
            time.sleep(pause)
        self._leave()

    def _read(self, final: bool) -> bool:
        recorder, moved = self._recorder, False
        if recorder is None or not recorder.ready():
            return False if recorder is None else self._wait_for_room()
        before = {stream: source.at for stream, source in self._reader.sources.items()}
        since_look = 0
        when = {stream: os.fstat(fd).st_mtime for stream, fd in self._fds.items()}
        for piece in self._reader.pieces(final, _AT_ONCE):
            recorder.take(piece, when[piece.stream])
            moved, since_look = True, since_look + len(piece.data)
            if since_look > _AT_ONCE:  # the order of the streams may ask for a long stretch of one
                since_look = 0
                self._tend()
                if self._recorder is None:
                    return True
        for stream, source in self._reader.sources.items():
            if source.at < before[stream] and not moved:
                recorder.skip(stream, source.at)
        recorder.overdue()
        if recorder.module is not None:
            self._keep_module(*recorder.module)
            recorder.module = None
        while self._said:
            recorder.say(self._said.pop(0))
        return moved

    def _all_read(self) -> bool:
        return self._recorder is None or all(s.size() <= s.at for s in self._reader.sources.values())

    def _wait_for_room(self) -> bool:
        """Nothing can be recorded now. It waits in the files, up to a bound, and while they find room."""
        for stream, source in self._reader.sources.items():
            end = source.size()
            most = BEHIND if has_room(source.fd, AHEAD) else AHEAD // 4
            if end - source.at > most and self._recorder is not None:
                self._said.append(
                    f"{end - source.at} bytes of {STREAMS[stream]} are lost: no room for a spool"
                )
                source.seek(end)
                self._recorder.skip(stream, end)
        time.sleep(SLOW)
        return False

    def _keep_module(self, name: str, level: int | None) -> None:
        hello = {**self._told["hello"], "module": name}
        if level is not None:
            hello["config"] = {**hello.get("config", {}), "file_sink_level": level}
        self._told["hello"] = hello
        self._folder.tell(self._told)

    # -- room ----------------------------------------------------------------------------------------

    def _tend(self) -> None:
        for stream, fd in self._fds.items():
            size = os.fstat(fd).st_size
            self._limit(stream, size)
            try:
                self._free(stream, fd, size)  # first: it makes room
                if size + AHEAD // 2 > self._reserved[stream]:
                    reserve(fd, size, AHEAD)
                    self._reserved[stream] = size + AHEAD
            except OSError:  # a full disk: the room ahead is what it is
                pass
        if self._recorder is not None and not self._folder.rank_lives():
            self._alone_since = self._alone_since or time.monotonic()
            if time.monotonic() - self._alone_since > GRACE:
                self._end_recording()

    def _limit(self, stream: int, size: int) -> None:
        passer, passed = self._passers.get(stream), self._page.passed(stream)
        if passer is None or size - passed <= BEHIND:
            return
        at = self._reader.sources[stream].at if self._recorder is not None else size
        if at > passed:
            passer.skip(stream, at)
            if stream not in self._lost:
                self._said.append(
                    f"{STREAMS[stream]} is read by nobody: what it has not taken is not shown there"
                )
            self._lost[stream] = self._lost.get(stream, 0) + at - passed

    def _free(self, stream: int, fd: int, size: int) -> None:
        passed = min(self._page.passed(stream), size)
        safe, scanned = size, size
        if self._recorder is not None:
            safe, scanned = self._recorder.at[stream], self._reader.sources[stream].at
        end = min(safe, passed)
        if end - self._freed[stream] >= _FREE_AT:
            free(fd, self._freed[stream], end)
            self._freed[stream] = end
        inside = safe + _HEAD  # of a line that does not end
        if min(scanned, passed) - inside >= _FREE_AT:
            free(fd, inside, min(scanned, passed))

    # -- the end -------------------------------------------------------------------------------------

    def _leave(self) -> None:
        self._end_recording()
        deadline = time.monotonic() + STUCK
        before = self._passed()
        for passer in set(self._passers.values()):
            while not passer.join(0.1) and time.monotonic() < deadline:
                if self._passed() != before:
                    before, deadline = self._passed(), time.monotonic() + STUCK
        if self._complete:
            self._folder.remove()

    def _passed(self) -> list[int]:
        return [self._page.passed(stream) for stream in self._passers]

    def _end_recording(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        self._complete = recorder.ready()  # else the folder is left for an agent that has room
        if self._complete:
            recorder.finish({stream: source.at for stream, source in self._reader.sources.items()})
        self._monitor.close("finished")


def _rank_of(hello: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(hello.get(name) for name in ("exp_root", "role", "label", "host"))


def _opened(folder: OutputFolder) -> dict[int, int]:
    found = {}
    for stream in range(len(STREAMS)):
        try:
            found[stream] = folder.open_to_read(stream)
        except FileNotFoundError:
            continue
    return found


def _has(folder: OutputFolder) -> Any:
    """Whether a record of a reader before us is in its spool, or was taken from there by an agent."""

    def has(spool: str, seq: int) -> bool:
        if not spool:
            return False
        left = Leftover(Path(spool))
        deadline = time.monotonic() + 5.0
        while left.folder.exists() and time.monotonic() < deadline:
            try:
                page = left.take()
            except OSError:
                break
            if page is not None:
                try:
                    return max((number for number, _, _ in left.frames(0)), default=0) >= seq
                finally:
                    page.close()
            time.sleep(0.02)  # an agent is about to bring it in
        return (folder.taken(left.folder.name) or 0) >= seq

    return has


def _monitor(folder: OutputFolder, told: dict[str, Any]) -> Monitor:
    rank = Hello.unpacked(told["hello"])
    hello = replace(
        rank,
        channel=client.new_channel(rank.host, rank.label),
        parent=rank.parent or rank.channel,
        started=time.time(),
        spool="",
        outputs=str(folder.path),
    )
    return Monitor(hello, Options(told["endpoint"], int(told["spool_bytes"]), float(told["flush"])))


def main(path: str, alone: str, record_only: str = "") -> None:
    """Read a folder to its end, in the background; descriptor `alone` holds the lock of its only reader."""
    del alone  # open until we end
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    folder = OutputFolder(Path(path))
    targets = {} if record_only else {0: os.dup(1), 1: os.dup(2)}
    try:
        own = os.open(
            folder.path / "helper.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
    except FileNotFoundError:
        return  # somebody has removed it all
    for fd in (1, 2):  # or what we have to say would be shown as the rank's
        os.dup2(own, fd)
    if os.fork():
        os._exit(0)  # nobody's child: a training that waits for its own does not meet us
    Tail(folder, targets).run()
