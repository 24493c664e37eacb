"""A new database of MLflow's: whole or absent, whoever else makes one, and whenever its maker is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from rankside_agent.sinks import mlflow_database
from rankside_agent.sinks.forwarder import Forwarder
from rankside_agent.sinks.mlflow_place import database_file

# Processes as the sinks', forked once the library is there: each says what it made
MAKE = """
import json, os, sys
from pathlib import Path
from rankside_agent.sinks import mlflow_library
mlflow_library.load()
import mlflow.store.tracking.sqlalchemy_store
from rankside_agent.sinks.mlflow_client import Tracker

def make(uri, folder, exp_root):
    tracker = Tracker(Path(folder), exp_root, {"MLFLOW_TRACKING_URI": uri})
    print("made", tracker.call("create_experiment", Path(folder).name), flush=True)

def forked(go, *told):
    pid = os.fork()
    if pid == 0:
        try:
            os.read(go, 1)
            make(*told)
        finally:
            os._exit(0)
    return pid

for line in sys.stdin:
    go, started = os.pipe()
    pids = [forked(go, *told) for told in json.loads(line)]
    print(json.dumps(pids), flush=True)
    os.write(started, b"." * len(pids))
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(go)
    os.close(started)
    print("all ended", flush=True)
"""


class Makers:
    """Processes that make a database, and what they say."""

    def __init__(self):
        self._parent = subprocess.Popen(
            [sys.executable, "-c", MAKE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(self, uri, tmp_path, *names):
        """One of each name, together; their ids."""
        told = [(uri, str(tmp_path / name), str(tmp_path / "exp")) for name in names]
        self._parent.stdin.write(f"{json.dumps(told)}\n")
        self._parent.stdin.flush()
        return json.loads(self._parent.stdout.readline())

    def said(self):
        """What they said, once all have ended."""
        said = []
        for line in self._parent.stdout:
            if line == "all ended\n":
                return said
            said.append(line)
        raise AssertionError("their parent has ended")

    def close(self):
        self._parent.communicate(timeout=60)


@pytest.fixture(scope="module")
def makers():
    """To be forked from one process, which has MLflow already."""
    made = Makers()
    yield made
    made.close()


def experiments(path):
    with closing(sqlite3.connect(path)) as database:
        return sorted(name for (name,) in database.execute("SELECT name FROM experiments"))


def test_runs_that_begin_together_share_one_database(makers, tmp_path):
    path = tmp_path / "all.db"
    makers.start(f"sqlite:///{path}", tmp_path, "run-0", "run-1")
    assert [text.startswith("made ") for text in makers.said()] == [True] * 2
    assert experiments(path) == ["Default", "run-0", "run-1"]
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_a_process_that_is_killed_while_it_makes_one_leaves_none_or_a_whole_one(makers, tmp_path):
    path = tmp_path / "all.db"
    (first,) = makers.start(f"sqlite:///{path}", tmp_path, "run")
    growing = tmp_path / "run" / "sinks" / "mlflow-new.db"
    deadline = time.monotonic() + 60
    while not path.exists() and not (growing.exists() and growing.stat().st_size > 100_000):
        assert time.monotonic() < deadline
    os.kill(first, signal.SIGKILL)
    assert makers.said() == []
    assert not path.exists()
    makers.start(f"sqlite:///{path}", tmp_path, "run")
    assert [text.startswith("made ") for text in makers.said()] == [True]
    assert experiments(path) == ["Default", "run"]
    assert not growing.exists()


def test_one_that_is_there_is_left_alone(tmp_path):
    path = tmp_path / "old.db"
    path.write_bytes(b"")
    mlflow_database.make(f"sqlite:///{path}", tmp_path / "run" / "sinks", pytest.fail)
    mlflow_database.make(f"sqlite:///{tmp_path}/none/new.db", tmp_path / "run" / "sinks", pytest.fail)
    assert path.read_bytes() == b""


def test_another_that_came_first_is_not_replaced(tmp_path):
    path = tmp_path / "new.db"

    def create(uri):
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
            database.execute("CREATE TABLE ours (a)")
        path.write_bytes(b"theirs")

    mlflow_database.make(f"sqlite:///{path}", tmp_path / "run" / "sinks", create)
    assert path.read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == ["new.db", "run"]


@pytest.mark.parametrize(
    ("uri", "file"),
    [
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite+pysqlite:////a/b.db?timeout=5", "/a/b.db"),
        ("sqlite:///b.db", None),
        ("sqlite:///:memory:", None),
        ("sqlite://", None),
        ("sqlite:///file:/a/b.db?uri=true", None),
        ("postgresql://host/db", None),
        ("http://host:5000", None),
    ],
)
def test_only_a_file_with_an_absolute_path_is_made(uri, file):
    found = database_file(uri)
    assert (str(found) if found else None) == file


def test_one_that_is_deleted_in_mid_run_is_made_anew_at_the_next_try(make_run, monkeypatch, caplog):
    import mlflow_server

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = make_run()
    path = run.exp_root / "mlflow.db"
    channel = run.open()
    forwarder = Forwarder(run.path, "mlflow", jitter=lambda: -1.48)
    forwarder.hurry()
    for step in range(3):
        run.metrics(channel, step, loss=1.0)
    deadline = time.monotonic() + 150
    while not forwarder.drained:
        forwarder.round()
        assert time.monotonic() < deadline, forwarder.cursor.last_error
    path.unlink()
    for step in range(3, 6):
        run.metrics(channel, step, loss=1.0)
    forwarder.drained = False
    while not forwarder.drained:
        forwarder.round()
        assert time.monotonic() < deadline, forwarder.cursor.last_error
    reader = mlflow_server.MLflowReader(f"sqlite:///{path}", run.key)
    assert reader.scalars("loss") == [(3, 1.0), (4, 1.0), (5, 1.0)]
    assert forwarder.cursor.failures <= 2
    assert "was deleted or replaced" in caplog.text
    assert "INSERT" not in forwarder.cursor.last_error + caplog.text
