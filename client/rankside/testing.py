"""A monitor that keeps what it is given: for the tests of programs that call rankside.

Separate from the monitor because only tests want it. The calls go the real way, into a spool in a temporary
folder; no agent is asked for, and none is started.

    with rankside.testing.recording(rank=3, world_size=4) as seen:
        train(steps=2)
    assert seen.metrics == [(1, {"lm loss": 9.1}), (2, {"lm loss": 8.7})]
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rankside
from rankside import wire
from rankside.client import Monitor
from rankside.leftover import Leftover
from rankside.record import Log
from rankside.wire import Kind

__all__ = ["Recording", "recording"]

_ALONE: dict[str, Any] = {"rank": 0, "world_size": 1, "flush_seconds": 0}


class Recording:
    """What a monitor was given so far, in the order of the calls. Fields are read anew each time."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._kept: list[tuple[Kind, Any]] | None = None

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
        said = self._of(Kind.CLOSE)
        return str(said[-1][1]) if said else None

    def keep(self) -> None:
        """Read what is there for the last time: the folder is about to go."""
        self._kept = self._read()

    def _of(self, kind: Kind) -> list[Any]:
        return [fields for found, fields in self._kept or self._read() if found is kind]

    def _read(self) -> list[tuple[Kind, Any]]:
        folder = Leftover(Path(self.monitor._hello.spool))
        size = wire.HEAD.size
        return [(Kind(kind), wire.unpack(frame[size:])) for _, kind, frame in folder.frames(0)]


@contextmanager
def recording(exp_name: str = "test", **given: Any) -> Iterator[Recording]:
    """Takes all that `rankside.init` does, rank 0 of 1 unless told; it is `rankside.current()` meanwhile.

    Raises ConfigError as `init` does. Not for several threads that do this at once.
    """
    folder = tempfile.mkdtemp(prefix="rankside-test-")
    before, environ = rankside._current, dict(os.environ)
    os.environ.update(RANKSIDE_SPOOL_DIR=f"{folder}/spool", RANKSIDE_ENDPOINT=f"ipc://{folder}/nobody.sock")
    os.environ.pop("RANKSIDE_DISABLE", None)
    try:
        seen = Recording(rankside.init(exp_name, **{**_ALONE, "workspace": folder, **given}))
        try:
            yield seen
        finally:
            seen.monitor.close()
            seen.keep()
    finally:
        rankside._current = before
        for name in ("RANKSIDE_SPOOL_DIR", "RANKSIDE_ENDPOINT", "RANKSIDE_DISABLE"):
            os.environ.pop(name, None)
            if name in environ:
                os.environ[name] = environ[name]
        shutil.rmtree(folder, ignore_errors=True)
