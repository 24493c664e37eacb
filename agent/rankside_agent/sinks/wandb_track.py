"""The way of one run into W&B: online, or on the local disk for as long as there is no server.

Separate from the sink, which may have several: an attempt beside a living one is a run of its own. Here it is
decided where rows go, what the other side already has, and what it lacks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.sinks import wandb_names, wandb_place, wandb_run, wandb_server
from rankside_agent.sinks.artifact_places import Places
from rankside_agent.sinks.base import Counts, Outcome, Run
from rankside_agent.sinks.points import Notice, Params, Point, Source
from rankside_agent.sinks.wandb_folder import LocalRun
from rankside_agent.sinks.wandb_known import Known
from rankside_agent.sinks.wandb_ledger import Ledger
from rankside_agent.sinks.wandb_patience import Patience
from rankside_agent.sinks.wandb_records import Identity
from rankside_agent.sinks.wandb_rows import Row, Rows
from rankside_agent.sinks.wandb_run import Gone, OnlineRun
from rankside_agent.sinks.wandb_server import Away

log = logging.getLogger(__name__)

MOST_WAITING = 1000  # rows, until they are handed on
FILL_SECONDS = 15.0  # of rows from the disk at a time: no call may take a minute
MOST_UPLOADS = 200
LARGEST_UPLOAD = 2 << 30
UPLOAD_SECONDS = 600.0  # for what is left at the end
MOST_IDS = 9
MOST_ENDS = 4
_EXIT_CODES = {"finished": 0, "killed": 255}


class Track:
    """One run. `name` is "" or "attempt-2"; `state` is what `state()` gave at the checkpoint, or empty."""

    def __init__(
        self, run: Run, name: str, state: Mapping[str, Any], counts: Counts, patience: Patience
    ) -> None:
        self.away = str(state.get("away", ""))  # why a stand-in takes the rows
        self._why = str(state.get("why", ""))  # it is offline for good, or as long as the user wants
        self._command = str(state.get("command", ""))  # that brings the rows to a server
        self._run = run
        self._name = name
        self._state = dict(state)
        self._counts = counts
        self._patience = patience
        self._sinks = run.folder / "sinks"
        self._base = Path(run.exp_root) / "wandb"
        self._ledger = Ledger(self._sinks / f"wandb{'-' if name else ''}{name}.ledger")
        self._rows = Rows(self._ledger, state.get("rows", {}), counts)
        self._confirmed = int(state.get("confirmed", -1))  # the newest row that the server has for sure
        self._uploads = [(str(path), str(at)) for path, at in state.get("uploads", ())]
        self._places = Places(state.get("places", {}))
        self._left_out = int(state.get("left_out", 0))  # artifacts
        self._left_out_why = str(state.get("left_out_why", ""))  # of the last
        self._identity: Identity | None = Identity(*state["identity"]) if state.get("identity") else None
        self._source: Source | None = None
        self._attempt = int(state.get("attempt", 0))
        self._origin_seen = 0  # the attempt whose git state is in the parameters
        self._waiting: list[Row] = []
        self._known: Known | None = None
        self._local: LocalRun | None = None
        self._online: OnlineRun | None = None

    @property
    def note(self) -> str:
        """What the operator should know: artifacts that are left out, and where rows are kept."""
        left = f"{self._left_out} artifacts left out: {self._left_out_why}" if self._left_out else ""
        return "\n".join(filter(None, (left, self._whereabouts)))

    @property
    def _whereabouts(self) -> str:
        """Where the rows are, if not at the server."""
        command = f"\n    {self._command}" if self._command else ""
        if self._online is not None:
            return ""
        if self.away:
            waits = f"its rows wait in the journal{', and for the command below' if command else ''}"
            return f"the server is away, {self._patience.words}; {waits}: {self.away}{command}"
        return f"{self._why}; once the run has ended:{command}" if self._why and command else ""

    def still_away(self, why: str) -> None:
        """The server was looked for once more."""
        self.away = why if self.away else ""

    def state(self) -> dict[str, Any]:
        """As of the last flush."""
        if self._local is None:
            return {**self._state, "away": self.away} if self._state else {}
        return {
            "identity": list(self._identity or ()),
            "rows": self._rows.state(),
            "local": self._local.state(),
            "confirmed": self._confirmed,
            "away": self.away,
            "why": self._why,
            "command": self._command,
            "attempt": self._attempt,
            "uploads": self._uploads,
            "places": self._places.plain(),
            "left_out": self._left_out,
            "left_out_why": self._left_out_why,
        }

    def take(self, point: Point) -> None:
        """Put a point where it belongs. Raises OSError, Away."""
        if point.source is not self._source:
            self._change(point.source)
        if isinstance(point, Params):
            self._configure(self._known_now().take(point.values, point.source.attempt))
            self._counts.points += 1
            return
        self._waiting += self._rows.take(point)
        if isinstance(point, Notice) and point.name == "artifact":
            self._save(Path(str(point.fields.get("path", ""))))
        if len(self._waiting) >= MOST_WAITING:
            self._hand_on()

    def flush(self) -> None:
        """Bring all to the server or to the disk, and see that it is there. Raises OSError, Away."""
        if self._local is None or self._known is None:
            return
        self._look_for_origin()
        self._waiting += self._rows.cut()
        self._hand_on()
        if self._online is None:
            self._local.flush()
        else:
            self._online.confirm()
            self._confirmed = self._online.held.last
            self._local.forget(self._confirmed)
            waiting = set(self._online.unsent())
            self._uploads = [each for each in self._uploads if each[1] in waiting]
        self._known.store()
        self._tell()

    def finish(self, outcome: Outcome) -> Iterator[None]:
        """Tell W&B how it ended, unless its newest attempt is another node's. Raises OSError, Away."""
        if self._identity is None or outcome.is_elsewhere(self._name):
            return
        status = outcome.attempts.get(self._attempt, outcome.status) if self._name else outcome.status
        if self._local is None:
            self._open(None)
        if self.away:
            raise Away(self.away)
        self._configure(self._known_now().note(status=status))
        self.flush()
        yield
        yield from self._wait_for_uploads()
        self._close_run(_EXIT_CODES.get(status, 1), status)

    def close(self) -> None:
        """Let go of the files; the client is left for all tracks at once."""
        if self._local is not None:
            self._local.close()
        self._ledger.close()

    def _change(self, source: Source) -> None:
        self._source = source
        if self._local is not None and source.attempt > self._attempt and self._attempt:
            self._look_again(self._local)
        if self._local is None:
            self._open(source)
        if not source.aside and source.attempt >= self._attempt:
            self._attempt = source.attempt
            about = {
                "run": self._run.run_id,
                "attempt": source.attempt,
                "host": source.host,
                "world_size": source.world_size,
                "module": source.module,
                "argv": source.launch.get("argv"),
                "cwd": source.launch.get("cwd"),
            }
            self._configure(self._known_now().note(**{n: v for n, v in about.items() if v not in (None, "")}))

    def _look_again(self, local: LocalRun) -> None:
        """Before a newer attempt's first row: the last rank may have been on another node meanwhile."""
        self.flush()
        if self._online is not None:
            if self._ledger.base(self._rows.points) is not None:
                return
            if self._online.alone():
                self._ledger.set_base(self._rows.points, self._rows.next, sure=True)
                return
            self._online.leave_open()
        local.close()
        self._state = self.state()
        self._local = self._online = None

    def _open(self, source: Source | None) -> None:
        """Find out what is here and there. After a failure the track is of no more use."""
        identity = self._identity
        if identity is None:
            assert source is not None
            identity = wandb_names.identity(source, self._run.key)
        self._identity = identity = identity._replace(id=self._ledger.id or identity.id)
        self._base = wandb_place.usable(self._base, self._sinks / "wandb-files", self._is_offline)
        mine = f"{self._run.key}{'-' if self._name else ''}{self._name}"
        self._known = Known(self._base / f".rankside-{mine}.json")
        started = source.started if source else time.time()
        config, labels = self._known.config, wandb_names.labels()
        self._local = LocalRun(self._base, identity, labels, config, started, self._state.get("local", {}))
        self._online = self._connected(MOST_IDS)
        self._number(self._local, source is not None and source.attempt > self._attempt)
        if self._online is None:
            self._stay_here(self._local)
        else:
            self._move(self._online, self._local)
        self._tell()

    def _is_offline(self) -> bool:
        return wandb_names.mode() == "offline" or wandb_server.login(self._run.folder) is None

    def _connected(self, tries: int) -> OnlineRun | None:
        """The run at the server, or None where a stand-in has to take its rows."""
        assert self._identity is not None
        self.away = self._why = ""
        if wandb_names.mode() == "offline":
            self._why = "offline, as WANDB_MODE says"
            return None
        login = wandb_server.login(self._run.folder)
        if login is None:
            self._why = "offline, for there is no API key (WANDB_API_KEY, or `wandb login`)"
            return None
        if not self._patience.due:
            self.away = self._patience.why or "the W&B server was not there a moment ago"
            return None
        try:
            online = OnlineRun(login, self._identity, self._sinks / "wandb-work" / (self._name or "run"))
        except Gone as gone:
            return self._renamed(gone, tries)
        except Away as error:
            log.warning("%s; going on offline", error)
            self.away = str(error)
            self._patience.failed(self.away)
            wandb_run.leave()
            return None
        self._patience.succeeded()
        log.info("online: %s", online.url)
        return online

    def _renamed(self, gone: Gone, tries: int) -> OnlineRun | None:
        """W&B never gives a deleted run's id again: go on under another one."""
        assert self._identity is not None
        stem, _, number = self._identity.id.rpartition("-r")
        stem, number = (stem, number) if stem and number.isdigit() else (self._identity.id, "1")
        fresh = self._identity._replace(id=f"{stem}-r{int(number) + 1}")
        wandb_run.leave()
        if tries <= 1:
            self.away = f"W&B takes none of {MOST_IDS} ids: {gone}"
            self._patience.failed(self.away)
            return None
        log.warning(
            "W&B does not take the id %s any more (%s); the run is %s now", self._identity.id, gone, fresh.id
        )
        self._ledger.set_id(fresh.id)
        self._identity, self._confirmed = fresh, -1
        if self._local is not None:
            self._local.become(fresh)
        return self._connected(tries - 1)

    def _number(self, local: LocalRun, begins: bool) -> None:
        """Where an attempt's first row of this node stands: behind all rows, whoever wrote them.

        It `begins` where none of its rows was handed on, unless the ledger says so: then a repetition is due.
        """
        at, online, rows = self._rows.points, self._online, self._rows
        base, here = self._ledger.base(at), max(local.last, local.synced)
        begins = begins or (at == 0 and rows.next == 0)
        if online is None:
            if begins and base is None:
                self._ledger.set_base(at, max(rows.next, here + 1, self._confirmed + 1), sure=False)
        elif begins and (base is None or (not self._ledger.sure(at) and online.last > here)):
            self._ledger.set_base(at, max(rows.next, here + 1, online.last + 1), sure=True)
        elif not online.held.ours and online.last >= rows.next:
            log.warning("somebody else has written to the run; our rows go on behind theirs")
            self._ledger.set_base(at, online.last + 1, sure=True)
        elif base is not None and not self._ledger.sure(at):
            self._ledger.set_base(at, base, sure=True)
        base = self._ledger.base(at)
        rows.next = rows.next if base is None else base

    def _stay_here(self, local: LocalRun) -> None:
        """Offline: the folder is to be synced, so it must not hold what the server has."""
        local.forget(self._confirmed)
        local.expose(offline=True)
        for path, name in self._uploads:
            local.save(Path(path), name)

    def _move(self, online: OnlineRun, local: LocalRun) -> None:
        """Online: bring there what is only here."""
        local.expose(offline=False)
        known = self._known_now()
        known.adopt(online.held.config)
        if online.version != known.version and known.config:
            online.configure(known.config, known.version)
        self._fill(online, local)
        for path, name in self._uploads:
            if Path(path).is_file():
                online.save(Path(path), name)

    def _fill(self, online: OnlineRun, local: LocalRun) -> None:
        """Rows of an earlier time without a server, which the journal may no longer have."""
        if local.folder is None or online.last + 1 >= self._rows.next or local.last <= online.last:
            return
        began, first = time.monotonic(), online.last + 1
        for found in local.found():
            if found.row is not None and found.row.number < self._rows.next:
                online.send([found.row])
            elif found.kind == "files" and local.folder is not None:
                self._uploads += [(str((local.folder / "files" / n).resolve()), n) for n in found.values]
            if time.monotonic() - began > FILL_SECONDS:
                online.confirm()
                raise Away(f"bringing rows from {local.folder} to the server: {online.last} are there")
        log.info("rows %d to %d came from %s", first, online.last, local.folder)

    def _hand_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._ledger.flush()
        self._put(waiting)

    def _put(self, rows: Iterable[Row]) -> None:
        if self._online is not None:
            self._online.send(rows)
        elif self._local is not None:
            for row in rows:
                self._local.write(row)

    def _configure(self, values: Mapping[str, Any]) -> None:
        if not values:
            return
        if self._online is not None:
            self._online.configure(values, self._known_now().version)
        elif self._local is not None:
            self._local.configure(values)

    def _save(self, path: Path) -> None:
        """An artifact; what it is worth is decided by whoever logged it."""
        try:
            size = path.stat().st_size
            if not path.is_file() or size > LARGEST_UPLOAD:
                raise ValueError(f"no file of at most {LARGEST_UPLOAD >> 30} GiB")
        except (OSError, ValueError) as error:
            log.warning("artifact %s is left out: %s", path, error)
            self._left_out, self._left_out_why = self._left_out + 1, f"{path}: {error}"
            self._counts.refused += 1
            return
        name = self._places.name(path, f"artifacts/{_below(path, Path(self._run.exp_root))}")
        if self._online is not None:
            self._online.save(path, name)
            self._uploads = [each for each in self._uploads if each[1] != name][-MOST_UPLOADS:]
            self._uploads.append((str(path), name))
        elif self._local is not None:
            self._local.save(path, name)

    def _look_for_origin(self) -> None:
        """The git state comes a moment after the attempt has begun."""
        if self._origin_seen == self._attempt or not self._attempt:
            return
        found = files.read_json(self._run.folder / "origin" / f"attempt-{self._attempt}.json")
        if isinstance(found, dict):
            self._origin_seen = self._attempt
            kept = {name: value for name, value in found.items() if name in _ORIGIN}
            self._configure(self._known_now().note(git=kept) if kept else {})

    def _wait_for_uploads(self) -> Iterator[None]:
        deadline = time.monotonic() + UPLOAD_SECONDS
        while self._online is not None and (left := self._online.unsent()):
            if time.monotonic() > deadline:
                log.error("%d files did not arrive at W&B: %s", len(left), ", ".join(left[:10]))
                break
            time.sleep(1.0)
            yield
        self._uploads = []

    def _close_run(self, exit_code: int, status: str) -> None:
        assert self._local is not None
        if self._online is not None:
            self._finish(self._online, exit_code, status)
            self._state, self._local, self._online = self.state(), None, None
        else:
            self._local.end(exit_code, {"rankside.status": status})
        self._tell()

    def _finish(self, online: OnlineRun, exit_code: int, status: str) -> None:
        try:
            online.finish(exit_code, status)
        except Away as error:
            self._patience.ends += 1
            if self._patience.ends < MOST_ENDS:
                raise
            log.warning(
                "%s; it is left at that", error
            )  # a few tries are enough for a word of no consequence

    def _known_now(self) -> Known:
        assert self._known is not None
        return self._known

    def _tell(self) -> None:
        here = self._local is not None and self._online is None
        self._command = self._local.command if here and self._local is not None else ""


_ORIGIN = frozenset(("commit", "branch", "repo_url", "dirty", "diff_stat", "captured"))


def _below(path: Path, root: Path) -> str:
    try:
        return str(path.relative_to(root))
    except ValueError:
        return path.name
