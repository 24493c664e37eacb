"""A monitor that keeps what it is given: for the tests of programs that call rankside.

Separate from the monitor because only tests want it. The calls go the real way, into a spool in a temporary
folder; no agent is asked for, and none is started.

    with rankside.testing.recording(rank=3, world_size=4) as seen:
        train(steps=2)
    assert seen.metrics == [(1, {"lm loss": 9.1}), (2, {"lm loss": 8.7})]

A program that calls `rankside.init` itself is recorded, too, with its own status: it finds the rank and world
size that were given here, unless it names others; without, those that its environment says, else rank 0 of 1.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple

import rankside
from rankside import client, wire
from rankside.client import Monitor, Options
from rankside.identity import find_rank
from rankside.leftover import Leftover
from rankside.record import Log
from rankside.wire import Kind

__all__ = ["Recording", "recording"]

_ALONE: dict[str, Any] = {"rank": 0, "world_size": 1, "flush_seconds": 0}
_CHANGED = ("RANKSIDE_SPOOL_DIR", "RANKSIDE_ENDPOINT", "RANKSIDE_DISABLE", "RANK", "WORLD_SIZE")
_HELPERS = 10.0  # seconds for the helpers of captured output, which read to the end
_PARENTS = (Kind.CLOSE, Kind.MODULE)  # of a child or a helper they say nothing of the program


class _Said(NamedTuple):
    kind: Kind
    fields: Any
    own: bool  # by the recording's monitor, and not by one that the program began


class Recording:
    """What monitors were given so far, in the order of the calls. Fields are read anew each time.

    With `fds=True`, texts that were written to the descriptors are among the logs when they are whole lines.
    """

    def __init__(self, monitor: Monitor, spools: Path) -> None:
        self.monitor = monitor
        self._spools = spools
        self._kept: list[_Said] | None = None

    @property
    def logs(self) -> list[Log]:
        """Log lines: time, level_no, level, file, line, text; captured ones, too."""
        return [Log(*fields[:6]) for fields in self._of(Kind.LOG)]

    @property
    def texts(self) -> list[str]:
        """The texts of the log lines alone."""
        return [log.text for log in self.logs]

    @property
    def metrics(self) -> list[tuple[int | None, dict[str, Any]]]:
        """(step, values) of each call."""
        return [(step, values) for _, step, values in self._of(Kind.METRICS)]

    @property
    def throughput(self) -> list[tuple[int | None, dict[str, Any]]]:
        """(step, fields) of each sample."""
        return [(step, fields) for _, step, fields in self._of(Kind.THROUGHPUT)]

    @property
    def params(self) -> dict[str, Any]:
        """All parameters, masked as they would leave the process."""
        return {name: value for _, values in self._of(Kind.PARAMS) for name, value in values.items()}

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """(name, fields) of each event."""
        return [(name, fields) for _, name, fields in self._of(Kind.EVENT)]

    @property
    def artifacts(self) -> list[str]:
        """Paths."""
        return [path for _, path in self._of(Kind.ARTIFACT)]

    @property
    def modules(self) -> list[str]:
        """Names of the modules entered by `set_module`."""
        return [fields[1] for fields in self._of(Kind.MODULE)]

    @property
    def status(self) -> str | None:
        """How the training said it ended; None while it goes on."""
        said = [each for each in self._all() if each.kind is Kind.CLOSE]
        return str(min(said, key=lambda each: each.own).fields[1]) if said else None

    @property
    def lost(self) -> int:
        """Records for which there was no room: they are in none of the others. `spool_bytes` makes room."""
        untold = self._untold()
        while True:
            told = sum(sum(counts.values()) for _, counts in self._of(Kind.DROPPED))
            before, untold = untold, self._untold()
            if before == untold:  # else some of them were told while we read
                return told + untold

    def end(self, status: str) -> None:
        """Close what is open, and read for the last time: the folder is about to go."""
        for monitor in self._monitors():
            monitor._options = Options(monitor._options.endpoint, flush_seconds=0)
            monitor.close(status)
        deadline = time.monotonic() + _HELPERS
        while list(self._spools.glob("*/*.outputs")) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._kept = self._read()
        if self.lost:
            warnings.warn(
                f"{self.lost} records are not seen: see Recording.lost", RuntimeWarning, stacklevel=5
            )

    def _untold(self) -> int:
        return 0 if self._kept is not None else sum(_untold(each) for each in self._monitors())

    def _monitors(self) -> list[Monitor]:
        return [
            each
            for each in client._LIVING
            if each is self.monitor or self._spools in Path(each._hello.spool).parents
        ]

    def _of(self, kind: Kind) -> list[Any]:
        return [each.fields for each in self._all() if each.kind is kind]

    def _all(self) -> list[_Said]:
        return self._read() if self._kept is None else self._kept

    def _read(self) -> list[_Said]:
        outputs = sys.modules.get("rankside.outputs")
        if outputs is not None and self._kept is None:
            outputs.settle(_HELPERS)
        found = [self._of_channel(path.parent) for path in sorted(self._spools.glob("*/*/channel"))]
        return list(merge(*found, key=lambda said: said.fields[0]))

    def _of_channel(self, folder: Path) -> list[_Said]:
        left, size = Leftover(folder), wire.HEAD.size
        hello = wire.unpack(left.hello())
        kinds = set(Kind) - set(_PARENTS if hello["parent"] else ())
        own = hello["channel"] == self.monitor._hello.channel
        frames = [(Kind(kind), frame) for _, kind, frame in left.frames(0)]
        return [_Said(kind, wire.unpack(frame[size:]), own) for kind, frame in frames if kind in kinds]


@contextmanager
def recording(exp_name: str = "test", **given: Any) -> Iterator[Recording]:
    """Takes all that `rankside.init` does, rank 0 of 1 unless told; it is `rankside.current()` meanwhile.

    Raises ConfigError as `init` does. Not for several threads that do this at once.
    """
    folder = tempfile.mkdtemp(prefix="rankside-test-")
    before, environ = rankside._current, dict(os.environ)
    os.environ.update(RANKSIDE_SPOOL_DIR=f"{folder}/spool", RANKSIDE_ENDPOINT=f"ipc://{folder}/nobody.sock")
    os.environ.update(_ranks(given))
    os.environ.pop("RANKSIDE_DISABLE", None)
    client.agents = False
    try:
        monitor = rankside.init(exp_name, **{**_ALONE, "workspace": folder, **given})
        seen, status = Recording(monitor, Path(folder, "spool")), "finished"
        try:
            yield seen
        except BaseException as error:
            status = _status_of(error)
            raise
        finally:
            seen.end(status)
    finally:
        rankside._current, client.agents = before, True
        for name in _CHANGED:
            os.environ.pop(name, None)
            if name in environ:
                os.environ[name] = environ[name]
        shutil.rmtree(folder, ignore_errors=True)


def _ranks(given: dict[str, Any]) -> dict[str, str]:
    """What a launcher would say of the ranks that a recording names, or where no launcher says anything."""
    told = {name: given[name] for name in ("rank", "world_size") if given.get(name) is not None}
    if not told and find_rank().rank is not None:
        return {}
    rank = int(told.get("rank", 0))
    return {"RANK": str(rank), "WORLD_SIZE": str(int(told.get("world_size", rank + 1)))}


def _status_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "failed" if error.code else "finished"
    return "killed" if isinstance(error, KeyboardInterrupt) else "failed"


def _untold(monitor: Monitor) -> int:
    spool = monitor._spool
    return monitor.lost + (0 if spool is None else sum(spool._dropped) - sum(spool._announced))
