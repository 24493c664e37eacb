"""A run on the local disk: the rows that no server has, each once, whatever died in between.

Separate because W&B's offline mode begins another folder with each process, loses what was not flushed, and
does not notice a full disk. Here one folder is gone on with until somebody has synced it, over kills and
attempts; rows that are there are left out, a torn end is cut. Its name says what is to become of it:

    offline-run-*    is to be brought to a server with `wandb sync`, once: a second time would double its rows
    replaced-run-*   is on its way to the server without the user's help, and of no use to `wandb sync`
"""

from __future__ import annotations

import glob
import logging
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankside_agent.sinks import wandb_records
from rankside_agent.sinks.wandb_log import TransactionLog, records
from rankside_agent.sinks.wandb_records import Found, Identity, Labels
from rankside_agent.sinks.wandb_rows import Row

log = logging.getLogger(__name__)

_OFFLINE, _REPLACED, _FRESH = "offline-", "replaced-", "fresh-"


class LocalRun:
    """The newest folder of a run below `base`. `state` is what `state()` gave at the checkpoint, or empty.

    `config` is the run's, kept up by the caller: every folder begins with all of it.
    """

    def __init__(
        self,
        base: Path,
        identity: Identity,
        labels: Labels,
        config: Mapping[str, Any],
        started: float,
        state: Mapping[str, Any],
    ) -> None:
        """Reads what is there; writes nothing yet. Raises OSError."""
        self._base = base
        self._identity = identity
        self._labels = labels
        self._config = config
        self.started = float(state.get("started", started))
        self.folder: Path | None = None
        self.first = self.last = -1  # the numbers of its rows; -1 without any
        self.synced = -1  # the newest row that a user has brought to a server
        self._ended: int | None = None  # the exit code that the file ends with
        self._size = 0  # up to which it is whole, without an end
        self._summary: dict[str, Any] = {}
        self._log: TransactionLog | None = None
        self._find(state)

    @property
    def path(self) -> Path:
        """The transaction log. Only where there is a folder."""
        assert self.folder is not None
        return self.folder / f"run-{self._identity.id}.wandb"

    @property
    def command(self) -> str:
        """What brings it to a server, for a shell."""
        return f"wandb sync {shlex.quote(str(self.folder))}" if self.folder else ""

    def state(self) -> dict[str, Any]:
        """As of the last flush."""
        return {
            "folder": _stem(self.folder) if self.folder else "",
            "size": self._log.size if self._log else self._size,
            "first": self.first,
            "last": self.last,
            "started": self.started,
        }

    def write(self, row: Row) -> None:
        """Append a row, unless it is there. Raises OSError."""
        if row.number <= self.last:
            return
        self._opened().add(wandb_records.history(row, self._runtime(row)))
        self.last = row.number
        self.first = row.number if self.first < 0 else self.first
        self._summary.update(row.values, _step=row.number)

    def configure(self, values: Mapping[str, Any]) -> None:
        """Write parameters. Raises OSError."""
        self._opened().add(wandb_records.config(values))

    def save(self, path: Path, name: str) -> None:
        """A file that belongs to the run, as a link. Raises OSError."""
        opened = self._opened()
        link = self.path.parent / "files" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        opened.add(wandb_records.file(name))

    def flush(self) -> None:
        """Bring all to the disk. Raises OSError."""
        if self._log is None:
            return
        if self._summary:
            self._log.add(wandb_records.summary(self._summary))
            self._summary.clear()
        self._log.flush()

    def end(self, exit_code: int, summary: Mapping[str, Any]) -> None:
        """The run is over, for now. Raises OSError."""
        if self._ended == exit_code and self._log is None:
            return
        opened = self._opened()
        opened.add(wandb_records.summary(summary))
        self.flush()
        whole = opened.size
        opened.add(wandb_records.end(exit_code))
        opened.flush()
        opened.close()
        self._log, self._size, self._ended = None, whole, exit_code

    def expose(self, offline: bool) -> None:
        """Say by its name whether somebody is to sync it. Raises OSError."""
        prefix = _OFFLINE if offline else _REPLACED
        if self.folder is None or self.folder.name.startswith(prefix):
            return
        renamed = self._base / (prefix + _stem(self.folder))
        os.rename(self.folder, renamed)
        self.folder = renamed
        if self._log is not None:
            self._log.path = self.path

    def found(self) -> Iterator[Found]:
        """All that the file holds. Raises OSError."""
        if self.folder is not None:
            for _, data in records(self.path):
                yield wandb_records.read(data)

    def forget(self, last: int) -> None:
        """Drop the rows up to this number: a server has them. Raises OSError."""
        if self.folder is None or last < self.first:
            return
        if last >= self.last:
            self.discard()
        else:
            self._rewrite(self._identity, last)

    def discard(self) -> None:
        """Delete the folder. Raises OSError."""
        self.close()
        if self.folder is not None:
            self.expose(offline=False)  # what is half deleted must not be synced
            shutil.rmtree(self.folder)
            self._nothing()

    def become(self, identity: Identity) -> None:
        """Give the run another id. Raises OSError."""
        self._rewrite(identity, -1)

    def close(self) -> None:
        """Let go of the file."""
        if self._log is not None:
            self._log.close()
            self._size = self._log.size
            self._log = None

    def _rewrite(self, identity: Identity, last: int) -> None:
        """Copy the folder under the new name, without the rows up to `last`."""
        self.close()
        old, self._identity = self.folder, identity
        if old is None:
            return
        source = self.path.parent / next(old.glob("run-*.wandb")).name
        fresh = self._base / f"{_FRESH}{time.time_ns()}"
        fresh.mkdir()
        copy = TransactionLog(fresh / f"run-{identity.id}.wandb", 0)
        for _, data in records(source):
            row = wandb_records.read(data).row
            if row is None or row.number > last:
                copy.add(wandb_records.renamed(data, identity))
        copy.flush()
        copy.close()
        if (old / "files").exists():
            os.rename(old / "files", fresh / "files")
        stamp = "-".join(_stem(old).split("-")[:2])
        shutil.rmtree(old)
        os.rename(fresh, self._base / f"{_OFFLINE}{stamp}-{identity.id}")
        self._find({})

    def _nothing(self) -> None:
        self.folder, self._size, self._ended, self.first, self.last = None, 0, None, -1, -1
        self._summary.clear()

    def _find(self, state: Mapping[str, Any]) -> None:
        self._nothing()
        name = f"run-{self._identity.id}.wandb"
        paths = self._base.glob(f"*run-*-{glob.escape(self._identity.id)}/{name}")
        mine = [path.parent for path in paths if path.parent.name.startswith((_OFFLINE, _REPLACED))]
        newest = max(mine, key=_stem, default=None)
        if newest is None:
            return
        if (newest / f"{name}.synced").exists():
            rows = (wandb_records.read(data).row for _, data in records(newest / name))
            self.synced = max((row.number for row in rows if row is not None), default=-1)
            return
        self.folder = newest
        size = self.path.stat().st_size
        if state.get("folder") == _stem(newest) and 0 < int(state.get("size", 0)) <= size:
            self._size, self.first, self.last = int(state["size"]), int(state["first"]), int(state["last"])
        self._read()

    def _read(self) -> None:
        for end, data in records(self.path, self._size):
            found = wandb_records.read(data)
            if found.kind == "exit":
                self._ended = int(found.values["exit_code"])
                continue  # what follows takes its place
            self._size, self._ended = end, None
            if found.row is not None:
                self.last = found.row.number
                self.first = self.last if self.first < 0 else self.first
            elif found.kind == "run":
                self.started = float(found.values["started"])

    def _opened(self) -> TransactionLog:
        if self._log is None:
            if self.folder is None:
                self._begin()
            self._log = TransactionLog(self.path, self._size)
            self._ended = None
            if not self._size:
                for record in wandb_records.beginning(self._identity, self._labels, self.started):
                    self._log.add(record)
                self._log.add(wandb_records.config(self._config))
        return self._log

    def _begin(self) -> None:
        now = time.time()
        while True:
            stem = f"run-{time.strftime('%Y%m%d_%H%M%S', time.gmtime(now))}-{self._identity.id}"
            if not any((self._base / (prefix + stem)).exists() for prefix in (_OFFLINE, _REPLACED)):
                break
            now += 1
        self.folder = self._base / (_OFFLINE + stem)
        (self.folder / "files").mkdir(parents=True)

    def _runtime(self, row: Row) -> float:
        return max(0.0, float(row.values.get("_timestamp", self.started)) - self.started)


def _stem(folder: Path) -> str:
    return folder.name.removeprefix(_OFFLINE).removeprefix(_REPLACED)
