"""An MLflow server on this machine, and a door before it that answers late or never.

Separate from the set-ups because two parts ask for it: the cost of a call, and that of a training.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_START = 120.0  # seconds for it to answer; 10 to 30 on a quiet machine


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Its address. Raises ImportError where MLflow is not installed whole, RuntimeError where it ends."""
    import mlflow.server  # noqa: F401  mlflow-skinny has none

    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    arguments = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--host", "127.0.0.1"]
    arguments += ["--port", str(port), "--workers", "1", "--artifacts-destination", str(folder / "artifacts")]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *arguments],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, **quiet},
            start_new_session=True,
        )
    try:
        _await(process, address, folder / "server.log")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the server is a parent of workers
        process.wait()


def _await(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    raise RuntimeError(f"the MLflow server does not answer: {log.read_text()[-2000:]}")


@contextmanager
def door(address: str) -> Iterator[tuple[str, Door]]:
    """Another address of the same server, which can be made slow."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Through)
    server.daemon_threads = True
    opened = Door(address.removeprefix("http://"))
    server.door = opened  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, name="door", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", opened
    finally:
        server.shutdown()
        server.server_close()


class Door:
    """`delay`: seconds before each answer; None: no answer while it is so."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.delay: float | None = 0.0


class _Through(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        try:
            self._through(self.server.door)  # type: ignore[attr-defined]
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # one of the two has left; both know what to do

    def _through(self, door: Door) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        while door.delay is None:
            time.sleep(0.05)
        time.sleep(door.delay)
        connection = http.client.HTTPConnection(door.behind, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
