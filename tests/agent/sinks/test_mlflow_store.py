"""Where the runs go when nobody says so, what cannot be used, and what the library is told."""

from __future__ import annotations

import json
import os
import stat

import pytest

from rankside.wire import Kind
from rankside_agent.sinks.mlflow_client import Tracker, may_read, prepare
from rankside_agent.sinks.mlflow_errors import Away, NoFolder
from rankside_agent.sinks.mlflow_place import absolute_uri, folder_of, tracking_uri

pytest_plugins = ["mlflow_server"]


@pytest.fixture
def nowhere(monkeypatch):
    """No tracker is named."""
    for name in ("MLFLOW_TRACKING_URI", "DATABRICKS_HOST", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environ", "uri"),
    [
        ({}, "sqlite:////exp/root/mlflow.db"),
        ({"DATABRICKS_HOST": "https://x.cloud"}, "databricks"),
        ({"DATABRICKS_HOST": "https://x.cloud", "MLFLOW_TRACKING_URI": "http://h:5000"}, "http://h:5000"),
        ({"MLFLOW_TRACKING_URI": " "}, "sqlite:////exp/root/mlflow.db"),
    ],
)
def test_where_the_runs_go(environ, uri):
    assert tracking_uri(environ, "/exp/root") == uri


@pytest.mark.parametrize(
    ("wished", "used"), [("3", "3"), ("120", "10"), ("", "10"), ("0", "10"), ("x", "10")]
)
def test_one_request_has_a_time_limit_and_is_not_repeated(tmp_path, wished, used):
    environ = {"MLFLOW_HTTP_REQUEST_TIMEOUT": wished, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "7"}
    prepare(environ, tmp_path, str(tmp_path))
    assert environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == used
    assert environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
    assert environ["MLFLOW_DISABLE_TELEMETRY"] == environ["DO_NOT_TRACK"] == "true"


def test_a_process_without_a_tracker_makes_a_database(run, nowhere, tmp_path):
    import mlflow_server

    channel = run.open(config={"mlflow_upload_logs": True})
    ended = [{"n": 1, "status": "failed", "ended": run.time, "log_root": "logs"}]
    facts = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**facts, "attempts": ended}))
    (run.exp_root / "logs").mkdir(parents=True)
    (run.exp_root / "logs" / "a.log").write_text("line")
    run.add(channel, (Kind.PARAMS, ({"lr": 0.1, "long": "x" * 7000},)))
    for step in range(10):
        run.metrics(channel, step, **{"loss": float(step), "mfu(%)": 1.0})
    run.finish(run.start("mlflow"), timeout=90)
    assert run.status("mlflow")["state"] == "done"
    reader = mlflow_server.MLflowReader(f"sqlite:///{run.exp_root}/mlflow.db", run.key)
    assert reader.scalars("loss") == [(step, float(step)) for step in range(10)]
    assert reader.run.data.params["lr"] == "0.1"
    assert reader.run.info.status == "FAILED"
    assert reader.run.info.artifact_uri.startswith(f"file://{run.exp_root}/mlartifacts/")
    assert reader.artifacts() == ["logs/a.log", "params/attempt-1.json"]
    assert sorted(each.name for each in run.path.iterdir()) == ["journal", "run.json", "sinks"]


@pytest.mark.parametrize("uri", ["file:./mlruns", "./mlruns", "file:///tmp/mlruns"])
def test_a_store_of_plain_files_is_refused_in_one_clear_message(make_tracked, monkeypatch, caplog, uri):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    tracked = make_tracked()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tracked.run.metrics(tracked.open(), 1, loss=1.0)
    forwarder = tracked.forwarder()
    while forwarder.cursor.failures < 3:
        forwarder.round()
    assert forwarder.cursor.state == "waiting"
    assert "MLFLOW_TRACKING_URI=sqlite:///" in forwarder.cursor.last_error
    assert len(caplog.records) == 1
    assert "Traceback" not in caplog.text


def test_names_that_a_store_of_plain_files_cannot_hold_are_refused_alone(make_tracked, monkeypatch, caplog):
    import mlflow_server

    tracked = make_tracked()
    uri = f"file:{tracked.run.exp_root}/mlruns"
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    channel = tracked.open()
    for step in (1, 2):
        tracked.run.metrics(channel, step, **{"loss": 1.0, "loss/val": 2.0, "acc": 3.0, "é" * 200: 4.0})
        tracked.deliver()
    reader = mlflow_server.MLflowReader(uri, tracked.key)
    assert reader.scalars("loss") == [(1, 1.0), (2, 1.0)]
    assert reader.scalars("acc") == [(1, 3.0), (2, 3.0)]
    assert tracked.run.status("mlflow")["refused"] == 4
    assert "metrics 'loss/val' is refused by the tracker" in caplog.text


def test_a_database_needs_the_full_library(tmp_path):
    with pytest.raises(Away, match="pip install mlflow`"):
        Tracker(tmp_path, str(tmp_path), environ={}, installed=lambda _name: False)


def test_credentials_in_an_address_are_in_no_message(tmp_path):
    environ = {"MLFLOW_TRACKING_URI": "http://me:secret@127.0.0.1:1"}
    tracker = Tracker(tmp_path, str(tmp_path), environ=environ)
    with pytest.raises(Away) as caught:
        tracker.call("get_run", "0" * 32)
    assert "secret" not in str(caught.value)


SECRETS = ("p@ssw0rdX", "ssw0rdX", "secretZ", "sekret123")


@pytest.mark.parametrize(
    "uri",
    [
        "http://bob:p@ssw0rdX@127.0.0.1:1",
        "http://127.0.0.1:1/?token=secretZ",
        "http://127.0.0.1:1/x?a=b&api_key=secretZ",
        "https://p@ssw0rdX@127.0.0.1:1/p",
        "postgresql://bob:p@ssw0rdX@127.0.0.1:1/db?sslpassword=secretZ",
        "mssql+nope://bob:p@ssw0rdX@127.0.0.1/db",
        "nonsense://bob:p@ssw0rdX@127.0.0.1/?password=secretZ",
    ],
    ids=range(7),  # a name of a test is one of an experiment
)
def test_no_form_of_a_credential_in_an_address_is_told(make_tracked, monkeypatch, caplog, uri):
    tracked = make_tracked()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "sekret123")
    tracked.run.metrics(tracked.open(), 1, loss=1.0)
    forwarder = tracked.forwarder()
    while forwarder.cursor.failures < 2:
        forwarder.round()
    told = caplog.text + (tracked.run.path / "sinks" / "mlflow.json").read_text()
    assert not [secret for secret in SECRETS if secret in told]
    assert "Away" in forwarder.cursor.last_error
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("uri", "absolute"),
    [
        ("sqlite:///rel.db", "sqlite:////cwd/rel.db"),
        ("sqlite:///./a/../rel.db?timeout=5", "sqlite:////cwd/rel.db?timeout=5"),
        ("sqlite+pysqlite:///rel.db", "sqlite+pysqlite:////cwd/rel.db"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
        ("./mlruns", "/cwd/mlruns"),
        ("garbage", "/cwd/garbage"),
        ("../up", "/up"),
        ("file:./mlruns", "file:/cwd/mlruns"),
        ("file:mlruns", "file:/cwd/mlruns"),
        ("file:///abs", "file:///abs"),
        ("/abs/mlruns", "/abs/mlruns"),
        *((same, same) for same in ("databricks", "databricks://prof", "databricks-uc", "uc:foo")),
        *((same, same) for same in ("http://h:5000/a", "postgresql://u@h/d", "mysql+pymysql://h/d")),
    ],
)
def test_a_relative_address_is_the_trainings(uri, absolute):
    assert absolute_uri(uri, "/cwd", uri) == absolute
    if uri != absolute:
        with pytest.raises(NoFolder, match="absolute path"):
            absolute_uri(uri, "", uri)


@pytest.mark.parametrize("uri", ["127.0.0.1:5931", "localhost:5000", "h.example:80/x", "[::1]:5000"])
def test_an_address_without_a_scheme_is_answered_in_one_sentence(uri):
    with pytest.raises(Away, match="no scheme: write http://"):
        absolute_uri(uri, "/cwd", uri)


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true"])
def test_a_database_in_memory_is_none(uri):
    with pytest.raises(Away, match="in memory"):
        absolute_uri(uri, "/cwd", uri)


def test_in_a_replay_its_user_is_meant():
    told = {"PWD": "/home/me", "RANKSIDE_REPLAY": "PATH,MLFLOW_TRACKING_URI"}
    assert folder_of(told, "/train") == "/home/me"
    assert folder_of({"PWD": "/home/me"}, "/train") == "/train"


def test_a_relative_database_lies_where_the_training_was_started(make_tracked, monkeypatch, tmp_path):
    import mlflow_server

    tracked = make_tracked()
    monkeypatch.chdir(tracked.run.path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///rel.db")
    cwd = tmp_path / "training"
    cwd.mkdir()
    tracked.launch["cwd"] = str(cwd)
    tracked.run.metrics(tracked.open(), 1, loss=1.0)
    tracked.deliver()
    tracked.run.metrics(tracked.open(), 2, loss=2.0)
    tracked.ended()
    tracked.deliver()  # from its state, before any point
    reader = mlflow_server.MLflowReader(f"sqlite:///{cwd}/rel.db", tracked.key)
    assert reader.scalars("loss") == [(1, 1.0), (2, 2.0)]
    assert reader.run.info.status == "FINISHED"
    assert not list(tracked.run.path.rglob("*.db"))
    assert not list(tracked.run.path.rglob("mlruns"))


def test_a_relative_database_of_nobody_knows_where_is_refused(make_tracked, monkeypatch):
    tracked = make_tracked()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///rel.db")
    del tracked.launch["cwd"]
    tracked.run.metrics(tracked.open(), 1, loss=1.0)
    forwarder = tracked.forwarder()
    while forwarder.cursor.failures < 2:
        forwarder.round()
    assert "sqlite:///rel.db is relative" in forwarder.cursor.last_error


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("postgresql://bob@127.0.0.1:1/db", "pip install psycopg"),
        ("mysql://bob@127.0.0.1:1/db", "pip install mysqlclient"),
        ("sqlite:////proc/x.db", "unable to open database file"),
        ("127.0.0.1:5931", "has no scheme"),
    ],
)
def test_an_address_of_no_use_is_told_at_once_and_in_one_line(
    make_tracked, monkeypatch, caplog, capfd, uri, told
):
    tracked = make_tracked()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tracked.run.metrics(tracked.open(), 1, loss=1.0)
    forwarder = tracked.forwarder()
    forwarder.round()
    assert "will be retried" not in capfd.readouterr().err  # by MLflow itself, for 100 seconds
    assert told in forwarder.cursor.last_error
    assert "Traceback" not in caplog.text


def test_what_ranks_told_is_used_and_nothing_but_trackers_variables(tmp_path):
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks" / "environ.json").write_text('{"MLFLOW_TRACKING_URI": "http://h", "LD_PRELOAD": "x"}')
    environ = {"MLFLOW_TRACKING_URI": "http://old"}
    prepare(environ, tmp_path, str(tmp_path))
    assert environ["MLFLOW_TRACKING_URI"] == "http://h"
    assert "LD_PRELOAD" not in environ


def test_a_tokens_file_that_is_not_there_is_waited_for(tmp_path):
    environ = {"MLFLOW_TRACKING_TOKEN": f"@{tmp_path}/token"}
    with pytest.raises(Away, match="MLFLOW_TRACKING_TOKEN"):
        prepare(environ, tmp_path, str(tmp_path))
    (tmp_path / "token").write_text("first")
    prepare(environ, tmp_path, str(tmp_path))
    assert environ["MLFLOW_TRACKING_TOKEN"] == "first"
    (tmp_path / "token").write_text("second")
    prepare(environ, tmp_path, str(tmp_path))
    assert environ["MLFLOW_TRACKING_TOKEN"] == "second"
    environ["MLFLOW_TRACKING_TOKEN"] = "another"
    prepare(environ, tmp_path, str(tmp_path))
    assert environ["MLFLOW_TRACKING_TOKEN"] == "another"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_an_agent_that_is_root_reads_no_others_file_for_a_training(tmp_path):
    exp, file = tmp_path / "exp", tmp_path / "shadow"
    exp.mkdir()
    os.chown(exp, 1000, 1000)
    file.write_text("secret")
    file.chmod(0o600)
    assert not may_read(file.stat(), str(exp))
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks" / "environ.json").write_text(f'{{"MLFLOW_TRACKING_TOKEN": "@{file}"}}')
    with pytest.raises(Away, match="not the training's"):
        prepare({}, tmp_path, str(exp))
    file.chmod(0o600 | stat.S_IROTH)
    assert may_read(file.stat(), str(exp))
    file.chmod(0o600)
    os.chown(file, 1000, 1000)
    assert may_read(file.stat(), str(exp))
