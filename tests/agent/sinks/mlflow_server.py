"""A real MLflow server for the tests, a proxy in front of it that misbehaves, and what a user reads back.

Separate from the fixtures of all sinks because it starts MLflow, once a session and only where it is asked
for: a test module says `pytest_plugins = ["mlflow_server"]`.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import math
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from rankside_agent.sinks import mlflow_library, mlflow_run
from rankside_agent.sinks.forwarder import Forwarder
from rankside_agent.sinks.mlflow import MLflow

PATIENCE = 120.0


class Server:
    """`mlflow server` on a sqlite database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        """Until it answers."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        environ.update(MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false", MLFLOW_DISABLE_TELEMETRY="true")
        store = ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"]
        files = ["--artifacts-destination", str(self.folder / "artifacts")]
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *store, *files, *where],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environ,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the MLflow server does not come up"
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """It and its workers."""
        if self.process is not None:
            os.killpg(self.process.pid, 9)
            self.process.wait(10)
            self.process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Proxy:
    """Passes requests on to a server, unless `trouble` says otherwise for those that match `only`.

    A number is answered as a status; "hang" never answers; "drop" passes the request on and drops the answer;
    "refuse:TEXT" refuses, as MLflow does, a request with TEXT in its body, "fail:TEXT" fails at it; "token:X"
    wants that bearer token; "say:TEXT" answers 200 with that text; "endless" never stops answering.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.trouble: int | str = 0
        self.only: Callable[[str, str], bool] = lambda _method, _path: True
        self.largest = 1 << 30  # bytes of a request; a larger one is 413, as from a web server
        self.requests: list[tuple[str, str, int]] = []  # method, path, answer (0: none)
        self.released = threading.Event()
        self.open: list[socket.socket] = []
        self._http: ThreadingHTTPServer | None = None
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> Proxy:
        """Take connections."""
        self.released.clear()
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        """From now on connections are refused, and those that are open are cut."""
        self.released.set()
        for each in self.open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.open.clear()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            proxy.open.append(self.connection)

        def log_message(self, *_: Any) -> None:
            pass

        def handle_any(self) -> None:
            path = self.path.partition("?")[0]
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status = self.misbehave(path, body)
            proxy.requests.append((self.command, path, status))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        def misbehave(self, path: str, body: bytes) -> int:
            trouble = proxy.trouble if proxy.only(self.command, path) else 0
            kind, _, detail = str(trouble).partition(":")
            if kind == "hang":
                proxy.released.wait(60)
                return self.drop()
            if kind == "endless":
                return self.endless()
            refusal = self.refusal(trouble, kind, detail.encode(), body)
            if refusal is not None:
                return self.answer(*refusal)
            answer = self.passed_on(body)
            return self.drop() if kind == "drop" else self.answer(*answer)

        def refusal(
            self, trouble: int | str, kind: str, detail: bytes, body: bytes
        ) -> tuple[int, bytes, dict[str, str]] | None:
            if len(body) > proxy.largest:
                return 413, b"<html>too large</html>", {}
            if kind == "token" and self.headers.get("Authorization") != f"Bearer {detail.decode()}":
                return 401, b"no such token", {}
            if kind == "refuse" and detail in body:
                text = b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "not this"}'
                return 400, text, {"Content-Type": "application/json"}
            if kind == "say":
                return 200, detail, {"Content-Type": "application/json"}
            if kind == "fail" and detail in body:
                return 500, b"ouch", {}
            return (
                (trouble, b"go away", {"Retry-After": "1"}) if isinstance(trouble, int) and trouble else None
            )

        def endless(self) -> int:
            self.send_response(200)
            self.end_headers()
            while proxy.trouble == "endless" and not proxy.released.is_set():
                self.wfile.write(b" " * (1 << 20))
            return self.drop()

        def drop(self) -> int:
            self.close_connection = True
            return 0

        def passed_on(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            headers["Content-Length"] = str(len(body))
            connection = http.client.HTTPConnection("127.0.0.1", proxy.server.port, timeout=60)
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            return answer.status, data, {"Content-Type": answer.headers.get("Content-Type", "text/plain")}

        def answer(self, status: int, data: bytes, headers: dict[str, str]) -> int:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return status

        def handle_one_request(self) -> None:
            with suppress(OSError):  # cut, or its client has given up
                super().handle_one_request()
                return
            self.close_connection = True

    return Handler


_HOP_BY_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}


class MLflowReader:
    """What a user of MLflow sees of one run, read with MLflow's own client.

    Of a step that a later attempt has trained again the value with the newest time counts.
    """

    def __init__(self, uri: str, identity: str) -> None:
        mlflow_library.load()
        from mlflow import MlflowClient

        self.client: Any = MlflowClient(tracking_uri=uri)
        self.identity = identity

    def refresh(self) -> MLflowReader:
        """Forget what is known."""
        self.__dict__.pop("again", None)
        return self

    def runs(self) -> list[Any]:
        """All that are ours and not deleted."""
        ids = [each.experiment_id for each in self.client.search_experiments()]
        return list(self.client.search_runs(ids, f"tags.`rankside.run` = '{self.identity}'"))

    @property
    def run(self) -> Any:
        """The one run."""
        (found,) = self.runs()
        return self.client.get_run(found.info.run_id)

    def rows(self, tag: str) -> list[tuple[int, int, float]]:
        """(step, time in ms, value) of all that MLflow holds, in this order."""
        runs = self.runs()
        if not runs:
            return []
        key = self.legal(tag)
        found = self.client.get_metric_history(runs[0].info.run_id, key)
        return sorted((row.step, row.timestamp, row.value) for row in found)

    def scalars(self, tag: str) -> list[tuple[int, float]]:
        """(step, value), each step once where it was trained once; what is doubled is shown."""
        kept: list[tuple[int, float]] = []
        for step, _, value in self.rows(tag):
            if kept and kept[-1][0] == step and step >= self.again:
                kept.pop()
            kept.append((step, value))
        return kept

    @cached_property
    def again(self) -> float:
        """The first step that a later attempt has trained again."""
        tags = self.run.data.tags
        firsts = [key for key in tags if key.endswith(".first_step") and ".attempt_1." not in key]
        return min((int(tags[key]) for key in firsts), default=math.inf)

    def legal(self, tag: str) -> str:
        """The metric's name in MLflow, as the tags tell it."""
        if re.fullmatch(r"[a-z0-9 _/-]+", tag):
            return tag
        tags = self.run.data.tags
        prefix = "rankside.name."
        return next((k[len(prefix) :] for k, v in tags.items() if k.startswith(prefix) and v == tag), tag)

    def artifacts(self, path: str | None = None) -> list[str]:
        """The paths of all files."""
        found: list[str] = []
        for each in self.client.list_artifacts(self.run.info.run_id, path):
            found += self.artifacts(each.path) if each.is_dir else [each.path]
        return sorted(found)

    def text(self, artifact: str, folder: Path) -> str:
        """The content of an artifact."""
        run_id = self.run.info.run_id
        return Path(self.client.download_artifacts(run_id, artifact, str(folder))).read_text()


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class SharedServer(Server):
    """One server for all of pytest's workers: the first starts it, the last ends it.

    A worker that uses it holds a lock, which goes with it however it ends.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._known = folder / "process.json"
        self._users = (folder / "users").open("a")

    def join(self) -> SharedServer:
        """Use the one that runs, or start one."""
        with self._alone():
            fcntl.flock(self._users, fcntl.LOCK_SH)
            if (process := self._running()) is None:
                self.start()
                assert self.process is not None
                process = psutil.Process(self.process.pid)
                told = {"port": self.port, "pid": process.pid, "created": process.create_time()}
                self._known.write_text(json.dumps(told))
        self.port = json.loads(self._known.read_text())["port"]
        self.uri = f"http://127.0.0.1:{self.port}"
        return self

    def leave(self) -> None:
        """End it where nobody else uses it."""
        with self._alone(), suppress(BlockingIOError):
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (process := self._running()) is not None:
                os.killpg(process.pid, signal.SIGKILL)
            if self.process is not None:  # another worker's, else
                self.process.wait(10)
            self._known.unlink(missing_ok=True)
        self._users.close()

    def _running(self) -> psutil.Process | None:
        with suppress(OSError, psutil.NoSuchProcess):
            known = json.loads(self._known.read_text())
            found = psutil.Process(known["pid"])
            if found.create_time() == known["created"] and found.status() != psutil.STATUS_ZOMBIE:
                return found
        return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / "gate").open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests; they take experiments of their own."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mlflow-server"
    folder.mkdir(exist_ok=True)
    server = SharedServer(folder).join()
    yield server
    server.leave()


@pytest.fixture
def mlflow_proxy(mlflow_server: Server) -> Iterator[Proxy]:
    """A proxy of its own for each test."""
    proxy = Proxy(mlflow_server).start()
    yield proxy
    proxy.stop()


class Tracked:
    """A run's folder whose tracker is a server, and the sink's loop in this process."""

    def __init__(self, run: Any, uri: str, server: Server, name: str) -> None:
        self.run, self.name, self.server = run, name, server
        self.key = run.key
        self.uri = uri
        self.launch = {"argv": ["train.py", "--lr=1"], "cwd": str(run.exp_root), "environ": {}}
        run.exp_root.mkdir(parents=True, exist_ok=True)
        self.told([])

    def told(self, attempts: list[dict[str, Any]]) -> None:
        """What run.json says of the attempts."""
        facts = {"run_id": self.run.path.name, "key": self.key, "exp_root": str(self.run.exp_root)}
        (self.run.path / "run.json").write_text(json.dumps({**facts, "attempts": attempts}))

    def ended(self, status: str = "finished", attempt: int = 1, log_root: str = "logs") -> None:
        """The ranks of an attempt have ended."""
        known = json.loads((self.run.path / "run.json").read_text())["attempts"]
        ended = {"n": attempt, "status": status, "ended": self.run.time, "log_root": log_root}
        self.told([*known, ended])

    def ended_elsewhere(self, status: str, attempt: int) -> None:
        """The same where only rank 0 of it was on this node, and the last one, of 8, on another."""
        self.ended(status, attempt)
        known = json.loads((self.run.path / "run.json").read_text())["attempts"]
        known[-1].update(world_size=8, ranks={"0": {"pid": 1, "host": "here"}})
        self.told(known)
        place = self.run.exp_root / "snapshot" / f"attempt-{attempt}" / "ranks" / "worker-7.json"
        place.parent.mkdir(parents=True)
        place.write_text('{"host": "there"}')

    def open(self, rank: int = 7, config: dict[str, Any] | None = None, **more: Any) -> int:
        """A channel of a rank."""
        told = {
            "exp_name": self.name,
            "team": "team",
            "user": "user",
            "host": "node-1",
            "launch": self.launch,
        }
        found: int = self.run.open(rank=rank, config=config or {}, **{**told, **more})
        return found

    def forwarder(self) -> Forwarder:
        """One that does not wait long between tries."""
        found = Forwarder(self.run.path, "mlflow", make=lambda _name: MLflow, jitter=lambda: -1.48)
        found.hurry()
        return found

    def deliver(self, most_failures: int = 0) -> Forwarder:
        """Forward all there is, and see it done."""
        forwarder = self.forwarder()
        deadline = time.monotonic() + 60
        while not forwarder.drained:
            time.sleep(min(forwarder.round(), 0.05))
            assert forwarder.cursor.failures <= most_failures, forwarder.cursor.last_error
            assert time.monotonic() < deadline, forwarder.cursor.last_error
        forwarder.close("done")
        return forwarder

    def forget(self, run_id: str) -> None:
        """As `mlflow gc` does: the run leaves the database."""
        with sqlite3.connect(self.server.folder / "mlflow.db", timeout=10) as database:
            for table in ("metrics", "latest_metrics", "params", "tags", "runs"):
                database.execute(f"DELETE FROM {table} WHERE run_uuid = ?", (run_id,))

    @property
    def reader(self) -> MLflowReader:
        """What the server itself shows."""
        return MLflowReader(self.server.uri, self.key)


@pytest.fixture
def make_tracked(
    make_run: Callable[..., Any],
    mlflow_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Callable[..., Tracked]:
    """Makes a run whose tracker is the server, or what stands before it."""

    def make(proxy: Proxy | None = None) -> Tracked:
        uri = proxy.uri if proxy else mlflow_server.uri
        monkeypatch.setattr(mlflow_run, "SETTLE_SECONDS", 0.0)  # nobody else is there
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        return Tracked(make_run(), uri, mlflow_server, f"{request.node.name}-{uuid.uuid4().hex[:6]}"[-200:])

    return make


@pytest.fixture
def tracked(make_tracked: Callable[..., Tracked]) -> Tracked:
    """A run whose tracker is the server."""
    return make_tracked()


@pytest.fixture
def troubled(make_tracked: Callable[..., Tracked], mlflow_proxy: Proxy) -> Tracked:
    """A run whose tracker is behind the proxy."""
    return make_tracked(mlflow_proxy)
