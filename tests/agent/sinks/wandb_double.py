"""A W&B server on 127.0.0.1, as far as its client and `wandb sync` speak with it, and readers of both ends.

A test module says `pytest_plugins = ["wandb_double"]`. Lines are kept by their offset, as the real server
does it: what comes again at the same place is there once. The faults are those that networks and servers
have; `fault` says which requests meet them.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import psutil
import pytest

from rankside_agent.sinks import wandb, wandb_run
from rankside_agent.sinks.forwarder import Forwarder
from rankside_agent.sinks.wandb_patience import Patience

KEY = "0123456789" * 4


class Kept:
    """A run as the server has it."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[int, str]] = {}
        self.config: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        self.uploaded: dict[str, bytes] = {}
        self.exit_code: int | None = None
        self.writes: list[tuple[int, int]] = []  # (offset, lines) of history, as they came

    def rows(self) -> list[dict[str, Any]]:
        """History in the order shown; a hole in it is a loss."""
        history = self.lines.get("wandb-history.jsonl", {})
        assert sorted(history) == list(range(len(history))), "a hole in the history"
        return [json.loads(history[at]) for at in sorted(history)]

    def summary(self) -> dict[str, Any]:
        """The newest."""
        found: dict[str, Any] = json.loads(self.lines["wandb-summary.json"][0])
        return found

    def scalars(self, tag: str) -> list[tuple[int, float]]:
        """(step, value) in the order shown."""
        return [(row["train_step"], row[tag]) for row in self.rows() if tag in row]

    def values(self) -> dict[str, Any]:
        """The configuration without what W&B itself keeps there."""
        return {name: each["value"] for name, each in self.config.items() if name != "_wandb"}


class WandbDouble:
    """The server. `fault(what)` gets "graphql:NAME", "stream:ID" or "upload:NAME" and may return:

    a status to answer with, "hang" (no answer at all), "drop" (done, but the answer is lost) or None.
    """

    def __init__(self) -> None:
        self.runs: dict[str, Kept] = {}
        self.deleted: set[str] = set()
        self.keys = {KEY}
        self.old = False  # whether it does not know all that we ask for
        self.fault: Callable[[str], int | str | None] = lambda _what: None
        self.asked: list[str] = []
        self.lock = threading.RLock()
        self.woken = threading.Event()  # ends what hangs
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, at the same port as before."""
        double = self

        class Bound(_Request):
            server_double = double

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

            def handle_error(self, request: Any, address: Any) -> None:
                """Clients that are killed in the middle are what this is for."""

        self.woken.clear()
        self._server = Quiet(("127.0.0.1", self.port), Bound)
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="wandb-double", daemon=True
        ).start()

    def stop(self) -> None:
        """Refuse connections."""
        self.woken.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def environ(self) -> dict[str, str]:
        """What a training's environment says about it."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}

    def only(self) -> Kept:
        """The one run there is."""
        (run,) = self.runs.values()
        return run


class _Request(BaseHTTPRequestHandler):
    server_double: WandbDouble
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self._body())
        if self.path.endswith("/graphql"):
            found = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
            name = asked.get("operationName") or (found[1] if found else "")
            variables = asked.get("variables") or {}
            if self.server_double.old and "sizeBytes" in asked["query"]:
                self._reply(400, {"errors": [{"message": "unknown field"}]})
                return
            self._serve(f"graphql:{name}", lambda: self._graphql(name, variables))
        else:
            place = re.fullmatch(r"/files/([^/]*)/([^/]*)/([^/]*)/file_stream", self.path)
            assert place, self.path
            self._serve(f"stream:{place[3]}", lambda: self._stream(place[3], asked))

    def do_PUT(self) -> None:
        _, _, run, name = unquote(self.path).split("/", 3)
        data = self._body()

        def keep() -> tuple[int, Any]:
            self.server_double.runs[run].uploaded[name] = data
            return 200, {}

        self._serve(f"upload:{name}", keep)

    def do_GET(self) -> None:
        self._reply(200, {})

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data

    def _serve(self, what: str, act: Callable[[], tuple[int, Any]]) -> None:
        double = self.server_double
        double.asked.append(what)
        fault = double.fault(what)
        if isinstance(fault, int):
            self._reply(fault, {"error": "on purpose", "errors": [{"message": "on purpose"}]})
        elif fault == "hang":
            double.woken.wait(120)
            self._cut()
        elif not what.startswith("upload") and not self._allowed():
            self._reply(401, {"errors": [{"message": "invalid API key"}]})
        else:
            with double.lock:
                status, value = act()
            self._cut() if fault == "drop" else self._reply(status, value)

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        return base64.b64decode(given).decode().partition(":")[2] in self.server_double.keys

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _reply(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, run_id: str, asked: dict[str, Any]) -> tuple[int, Any]:
        double = self.server_double
        if run_id in double.deleted or run_id not in double.runs:
            return 404, {"error": "run not found"}
        run = double.runs[run_id]
        for name, part in (asked.get("files") or {}).items():
            kept = run.lines.setdefault(name, {})
            for at, line in enumerate(part["content"], part["offset"]):
                kept[at] = line
            if name == "wandb-history.jsonl":
                run.writes.append((part["offset"], len(part["content"])))
        run.exit_code = asked.get("exitcode") if asked.get("complete") else None
        return 200, {"exitcode": None, "limits": {}}

    def _graphql(self, name: str, variables: dict[str, Any]) -> tuple[int, Any]:
        answer = getattr(self, f"_{name}", None)
        value = answer(variables) if answer else {}
        return value if isinstance(value, tuple) else (200, {"data": value})

    def _RunResumeStatus(self, asked: dict[str, Any]) -> Any:
        double = self.server_double
        run = double.runs.get(asked["name"]) if asked["name"] not in double.deleted else None
        model = {"id": "p1", "name": asked["project"], "entity": {"id": "e1", "name": "us"}, "bucket": None}
        if run is not None:
            model["bucket"] = self._bucket(asked["name"], run)
        return {"model": model}

    _RanksideRun = _RunResumeStatus

    def _bucket(self, run_id: str, run: Kept) -> dict[str, Any]:
        history = run.lines.get("wandb-history.jsonl", {})
        telemetry = run.config.get("_wandb", {}).get("value", {}).get("t", {})
        return {
            "id": run_id,
            "state": "running" if run.exit_code is None else "finished",
            "name": run_id,
            "displayName": run.facts.get("displayName"),
            "summaryMetrics": run.lines.get("wandb-summary.json", {}).get(0, "{}"),
            "logLineCount": 0,
            "historyLineCount": len(history),
            "eventsLineCount": 0,
            "historyTail": json.dumps([history[max(history)]] if history else []),
            "eventsTail": "[]",
            "config": json.dumps(run.config),
            "tags": [],
            "notes": "",
            "wandbConfig": json.dumps({"t": telemetry} if telemetry else {}),
            "files": {"edges": [{"node": {"name": n, "sizeBytes": len(d)}} for n, d in run.uploaded.items()]},
        }

    def _UpsertBucket(self, asked: dict[str, Any]) -> Any:
        double, run_id = self.server_double, asked["name"] or asked["id"]
        if run_id in double.deleted:
            text = f"run {run_id} was previously created and deleted; try a new run name"
            return 409, {"errors": [{"message": text}], "data": {"upsertBucket": None}}
        new = run_id not in double.runs
        run = double.runs.setdefault(run_id, Kept())
        run.config.update(json.loads(asked.get("config") or "{}"))
        run.facts.update(
            {name: value for name, value in asked.items() if value is not None and name != "config"}
        )
        project = {"id": "p1", "name": run.facts.get("project"), "entity": {"id": "e1", "name": "us"}}
        bucket = {
            **self._bucket(run_id, run),
            "description": "",
            "sweepName": "",
            "project": project,
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": new}}

    def _CreateRunFiles(self, asked: dict[str, Any]) -> Any:
        url = f"{self.server_double.url}/upload/{asked['run']}/"
        files = [{"name": name, "uploadUrl": url + quote(name)} for name in asked["files"]]
        return {"createRunFiles": {"runID": asked["run"], "uploadHeaders": [], "files": files}}

    def _Viewer(self, _asked: dict[str, Any]) -> Any:
        teams = {"edges": []}
        return {"viewer": {"id": "u1", "entity": "us", "username": "us", "flags": "{}", "teams": teams}}

    _RanksideAlive = _Viewer

    def _ServerInfo(self, _asked: dict[str, Any]) -> Any:
        version = {"max_cli_version": "9.9.9"}
        return {"serverInfo": {"cliVersionInfo": version, "latestLocalVersionInfo": None, "features": []}}


class WandbReader:
    """What lies in the offline folders of a run, read with W&B's own reader."""

    def __init__(self, exp_root: Path, beside: str = "") -> None:
        self.folder = exp_root / "wandb"
        self.beside = beside  # "attempt-2" for one beside a living attempt
        self.refresh()

    def refresh(self) -> WandbReader:
        """Read again."""
        self._records = [record for path in self.files() for record in inspect(path)]
        return self

    def files(self) -> list[Path]:
        """Transaction logs that somebody is to sync, in the order in which they are synced."""
        found = sorted(self.folder.glob("offline-run-*/run-*.wandb"))
        return [
            path
            for path in found
            if f"-{self.beside}." in path.name or not ("-attempt-" in path.name or self.beside)
        ]

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Of one kind."""
        return [record[kind] for record in self._records if record["type"] == kind]

    def rows(self) -> list[dict[str, Any]]:
        """History; each row has the number that it stands at."""
        rows = [record["item"] for record in self.records("history")]
        assert [row["_step"] for row in rows] == list(range(len(rows))), "rows are missing or doubled"
        return rows

    def scalars(self, tag: str) -> list[tuple[int, float]]:
        """(step, value) in the order shown."""
        return [(row["train_step"], _number(row[tag])) for row in self.rows() if tag in row]

    def config(self) -> dict[str, Any]:
        """As it stands in the end."""
        merged: dict[str, Any] = {}
        for record in self.records("config"):
            merged.update(record["update"])
        return merged


def inspect(path: Path) -> list[dict[str, Any]]:
    """The records of a transaction log, as `wandb leet inspect --json` shows them."""
    from wandb.util import get_core_path  # the command without the second that its start takes

    command = [
        get_core_path(),
        "leet",
        "inspect",
        "--no-observability",
        "--json",
        "--run-file",
        path,
        path.parent,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def sync(double: WandbDouble, *arguments: str | Path) -> str:
    """`wandb sync ...`, which must end well; what it said."""
    wandb = Path(sys.executable).with_name("wandb")
    environ = {**os.environ, **double.environ()}
    done = subprocess.run(
        [wandb, "sync", *arguments], env=environ, capture_output=True, text=True, timeout=120, cwd="/"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.stdout + done.stderr


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


class Tracked:
    """A run's folder, the server, and ways to forward from the one to the other."""

    def __init__(self, run: Any, double: WandbDouble) -> None:
        self.run = run
        self.double = double

    @property
    def reader(self) -> WandbReader:
        """Of what lies on the disk."""
        return WandbReader(self.run.exp_root)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """At the server."""
        return self.double.only().rows()

    def log(self, channel: int, steps: Any, **more: Any) -> None:
        """A metric whose value is its step."""
        for step in steps:
            self.run.metrics(channel, step, loss=float(step), **more)

    def log_until(self, forwarder: Forwarder, channel: int, step: int, true: Callable[[], Any]) -> int:
        """Train on from a step until something is true; the step after the last."""
        deadline = time.monotonic() + 60.0
        while not true():
            self.log(channel, [step])
            step += 1
            time.sleep(min(forwarder.round(), 0.1))
            assert time.monotonic() < deadline, forwarder.cursor.last_error
        return step

    def steps(self) -> list[int]:
        """At the server, of the loss."""
        return [step for step, _ in self.double.only().scalars("loss")]

    def forwarder(self) -> Forwarder:
        """The loop of a new process, here."""
        wandb._PATIENCE = Patience()
        return Forwarder(self.run.path, "wandb", make=lambda _name: wandb.Wandb)

    def deliver(self, forwarder: Forwarder | None = None, patience: float = 60.0) -> Forwarder:
        """Forward all there is, and the end of the run where run.json has it."""
        forwarder = forwarder or self.forwarder()
        forwarder.hurry()
        deadline = time.monotonic() + patience
        while not forwarder.drained or forwarder.provisional:
            time.sleep(min(forwarder.round(), 0.1))
            assert time.monotonic() < deadline, forwarder.cursor.last_error
        forwarder.close("done")
        return forwarder

    def round_until(self, forwarder: Forwarder, true: Callable[[], Any], patience: float = 60.0) -> None:
        """Rounds of the loop until something is true."""
        deadline = time.monotonic() + patience
        forwarder.round()
        while not true():
            time.sleep(min(forwarder.round(), 0.05))
            assert time.monotonic() < deadline, forwarder.cursor.last_error

    def ended(self, status: str = "finished", attempt: int = 1) -> None:
        """As the agent writes it into run.json once the ranks have left."""
        path = self.run.path / "run.json"
        facts = json.loads(path.read_bytes())
        attempts = [
            {"n": n, "status": status, "ended": 1.0, "log_root": "logs"} for n in range(1, attempt + 1)
        ]
        path.write_text(json.dumps({**facts, "attempts": attempts}))

    def ended_elsewhere(self, attempt: int) -> None:
        """The same where only rank 0 of it was on this node, and the last one, of 8, on another."""
        self.ended(attempt=attempt)
        path = self.run.path / "run.json"
        facts = json.loads(path.read_bytes())
        facts["attempts"][-1].update(world_size=8, ranks={"0": {"pid": 1, "host": "here"}})
        path.write_text(json.dumps(facts))
        place = self.run.exp_root / "snapshot" / f"attempt-{attempt}" / "ranks" / "worker-7.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text('{"host": "there"}')

    def start(self) -> subprocess.Popen[bytes]:
        """The sink's process."""
        process: subprocess.Popen[bytes] = self.run.start("wandb")
        return process

    def log_text(self) -> str:
        """Of the process."""
        return str((self.run.path / "sinks" / "wandb.log").read_text())

    def kill_core(self, process: subprocess.Popen[bytes]) -> None:
        """Kill W&B's own helper of a process."""
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name().startswith("wandb-core"):
                os.kill(child.pid, signal.SIGKILL)


@pytest.fixture
def double() -> Iterator[WandbDouble]:
    """The server."""
    made = WandbDouble()
    yield made
    made.stop()


@pytest.fixture
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No login, no setting and no variable of the machine's owner."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    yield
    wandb_run.leave()


@pytest.fixture
def offline(run: Any, double: WandbDouble, no_login: None) -> Tracked:
    """A run without a key."""
    return Tracked(run, double)


@pytest.fixture
def online(run: Any, double: WandbDouble, no_login: None, monkeypatch: pytest.MonkeyPatch) -> Tracked:
    """A run with a server."""
    for name, value in double.environ().items():
        monkeypatch.setenv(name, value)
    return Tracked(run, double)
