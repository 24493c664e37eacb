"""A tracker that is away, slow, broken or strange costs time and no points."""

from __future__ import annotations

import threading
import time

import pytest

from rankside.wire import Kind
from rankside_agent.sinks import answers, mlflow_suspects

pytest_plugins = ["mlflow_server"]

BATCH = "log-batch"


def step_until(forwarder, true, patience=60.0):
    """Rounds of the loop, until something is true."""
    deadline = time.monotonic() + patience
    forwarder.round()
    while not true():
        time.sleep(min(forwarder.round(), 0.05))
        assert time.monotonic() < deadline, forwarder.cursor.last_error


def waiting(forwarder):
    return forwarder.cursor.state == "waiting"


def test_a_tracker_that_is_absent_at_the_start_gets_everything_later(troubled, mlflow_proxy):
    mlflow_proxy.stop()
    channel = troubled.open()
    for step in range(100):
        troubled.run.metrics(channel, step, loss=float(step))
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.cursor.failures >= 2)
    assert "Away" in forwarder.cursor.last_error
    mlflow_proxy.start()
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.rows("loss")[-1][2] == 99.0
    assert len(troubled.reader.rows("loss")) == 100


@pytest.mark.parametrize("trouble", [429, 500, 503, 401, "drop"])
def test_whatever_it_answers_all_comes_once(troubled, mlflow_proxy, trouble, caplog):
    channel = troubled.open()
    forwarder = troubled.forwarder()
    for step in range(1500):
        troubled.run.metrics(channel, step, loss=float(step))
        if step == 500:
            step_until(forwarder, lambda: forwarder.drained)
            mlflow_proxy.trouble = trouble
        if step == 1000:
            step_until(forwarder, lambda: forwarder.cursor.failures >= 2)
            mlflow_proxy.trouble = 0
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.scalars("loss") == [(step, float(step)) for step in range(1500)]
    assert forwarder.cursor.mark.counts.points == 1500
    assert forwarder.cursor.mark.counts.refused == 0
    assert caplog.text.count("takes nothing now") == 1
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "text", ['{"error": "upstream unavailable", "code": 503}', "", "200 OK", "[]", "413 Client Error"]
)
def test_an_answer_of_status_200_that_is_not_mlflows_delivers_nothing(troubled, mlflow_proxy, text):
    channel = troubled.open()
    troubled.run.metrics(channel, 0, loss=0.0)
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.drained)
    mlflow_proxy.trouble = f"say:{text}"
    troubled.run.metrics(channel, 1, loss=1.0)
    step_until(forwarder, lambda: forwarder.cursor.failures >= 2)
    assert "no answer of MLflow's" in forwarder.cursor.last_error
    mlflow_proxy.trouble = 0
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.scalars("loss") == [(0, 0.0), (1, 1.0)]
    assert forwarder.cursor.mark.counts.refused == 0


def test_an_answer_without_an_end_is_given_up(troubled, mlflow_proxy, monkeypatch):
    monkeypatch.setattr(answers.read, "__defaults__", (8 << 20, 60.0))
    troubled.run.metrics(troubled.open(), 1, loss=1.0)
    mlflow_proxy.trouble = "endless"
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.cursor.failures)
    assert "more than 8 MiB" in forwarder.cursor.last_error
    mlflow_proxy.trouble = 0
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.scalars("loss") == [(1, 1.0)]


def test_a_tracker_that_never_answers_holds_a_call_up_for_its_time_limit(troubled, mlflow_proxy, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    channel = troubled.open()
    troubled.run.metrics(channel, 1, loss=1.0)
    forwarder = troubled.deliver()
    mlflow_proxy.trouble = "hang"
    troubled.run.metrics(channel, 2, loss=2.0)
    forwarder = troubled.forwarder()
    began = time.monotonic()
    step_until(forwarder, lambda: forwarder.cursor.failures >= 1)
    assert time.monotonic() - began < 10
    mlflow_proxy.trouble = 0
    mlflow_proxy.released.set()
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.scalars("loss") == [(1, 1.0), (2, 2.0)]


def test_a_lost_reply_to_the_runs_creation_leaves_one_run(troubled, mlflow_proxy):
    mlflow_proxy.trouble = "drop"
    mlflow_proxy.only = lambda method, path: (
        method == "POST" and path.endswith(("runs/create", "experiments/create"))
    )
    troubled.run.metrics(troubled.open(), 1, loss=1.0)
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.drained)
    assert forwarder.cursor.failures == 2
    assert troubled.reader.scalars("loss") == [(1, 1.0)]
    assert len(troubled.reader.runs()) == 1
    names = [each.name for each in troubled.reader.client.search_experiments()]
    assert names.count(troubled.name) == 1


def test_a_token_is_read_again_from_its_file(troubled, mlflow_proxy, monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("old\n")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", f"@{token}")
    mlflow_proxy.trouble = "token:old"
    channel = troubled.open()
    troubled.run.metrics(channel, 1, loss=1.0)
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.drained)
    mlflow_proxy.trouble = "token:new"
    troubled.run.metrics(channel, 2, loss=2.0)
    step_until(forwarder, lambda: waiting(forwarder))
    assert "new" not in forwarder.cursor.last_error
    token.write_text("new\n")
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.scalars("loss") == [(1, 1.0), (2, 2.0)]


def test_a_token_that_a_rank_told_meanwhile_is_used(troubled, mlflow_proxy, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "old")
    mlflow_proxy.trouble = "token:new"
    troubled.run.metrics(troubled.open(), 1, loss=1.0)
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: waiting(forwarder))
    (troubled.run.path / "sinks" / "environ.json").write_text('{"MLFLOW_TRACKING_TOKEN": "new", "PATH": "/"}')
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.scalars("loss") == [(1, 1.0)]


def test_a_run_that_is_deleted_while_the_training_goes_on_is_restored(tracked, caplog):
    channel = tracked.open()
    tracked.run.metrics(channel, 1, loss=1.0)
    tracked.deliver()
    run_id = tracked.reader.run.info.run_id
    forwarder = tracked.forwarder()
    tracked.reader.client.delete_run(run_id)
    tracked.run.metrics(channel, 2, loss=2.0)
    step_until(forwarder, lambda: forwarder.drained)
    tracked.reader.client.delete_run(run_id)
    tracked.run.metrics(channel, 3, loss=3.0)
    step_until(forwarder, lambda: forwarder.drained)
    assert tracked.reader.run.info.run_id == run_id
    assert tracked.reader.scalars("loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert forwarder.cursor.failures == 0
    assert "is restored" in caplog.text


def test_an_experiment_that_is_deleted_while_the_training_goes_on_is_restored(tracked):
    channel = tracked.open()
    tracked.run.metrics(channel, 1, loss=1.0)
    tracked.deliver()
    tracked.reader.client.delete_experiment(tracked.reader.run.info.experiment_id)
    tracked.run.metrics(channel, 2, loss=2.0)
    tracked.deliver()
    assert tracked.reader.scalars("loss") == [(1, 1.0), (2, 2.0)]


def test_a_run_that_is_gone_for_good_is_made_anew(tracked):
    channel = tracked.open()
    tracked.run.metrics(channel, 1, loss=1.0)
    forwarder = tracked.forwarder()
    step_until(forwarder, lambda: forwarder.drained)
    run_id = tracked.reader.run.info.run_id
    tracked.forget(run_id)
    tracked.run.metrics(channel, 2, loss=2.0)
    step_until(forwarder, lambda: forwarder.drained)
    assert tracked.reader.run.info.run_id != run_id
    assert tracked.reader.scalars("loss") == [(2, 2.0)]


def test_a_request_that_is_too_large_for_something_on_the_way_is_halved(troubled, mlflow_proxy):
    largest = 20_000
    mlflow_proxy.largest = largest
    channel = troubled.open()
    for step in range(1000):
        troubled.run.metrics(channel, step, loss=float(step))
    troubled.deliver()
    assert len(troubled.reader.rows("loss")) == 1000


def test_what_the_server_always_fails_at_is_left_out_at_last(troubled, mlflow_proxy, monkeypatch):
    monkeypatch.setattr(mlflow_suspects, "SECONDS", 0.0)
    monkeypatch.setattr(mlflow_suspects, "TIMES", 3)
    mlflow_proxy.trouble = "fail:poison"
    channel = troubled.open()
    for step in range(10):
        troubled.run.metrics(channel, step, loss=1.0)
        troubled.run.add(channel, (Kind.EVENT, (f"e{step}", {"x": "poison" if step == 5 else "good"})))
    forwarder = troubled.deliver(most_failures=20)
    assert forwarder.cursor.failures == mlflow_suspects.LOOKED_INTO - 1 + mlflow_suspects.TIMES - 1
    tags = troubled.reader.run.data.tags
    assert [f"rankside.event.e{step}" in tags for step in range(10)] == [step != 5 for step in range(10)]
    assert len(troubled.reader.rows("loss")) == 10
    assert forwarder.cursor.mark.counts.refused == 1


def test_a_server_that_fails_at_everything_is_waited_for(troubled, mlflow_proxy):
    mlflow_proxy.trouble = 500
    mlflow_proxy.only = lambda method, _path: method == "POST"
    for step in range(10):
        troubled.run.metrics(troubled.open(), step, loss=1.0)
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.cursor.failures > 2 * mlflow_suspects.LOOKED_INTO)
    mlflow_proxy.trouble = 0
    step_until(forwarder, lambda: forwarder.drained)
    assert len(troubled.reader.rows("loss")) == 10
    assert forwarder.cursor.mark.counts.refused == 0


def test_metrics_that_alone_the_server_fails_at_come_later(troubled, mlflow_proxy):
    channel = troubled.open()
    troubled.run.metrics(channel, 0, loss=0.0)
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.drained)
    mlflow_proxy.trouble = 'fail:"metrics": [{'
    for step in range(1, 300):
        troubled.run.metrics(channel, step, loss=float(step), other=1.0)
        troubled.run.add(channel, (Kind.EVENT, (f"e{step % 3}", {"step": step})))
    step_until(forwarder, lambda: forwarder.cursor.failures > 3 * mlflow_suspects.LOOKED_INTO)
    mlflow_proxy.trouble = 0
    step_until(forwarder, lambda: forwarder.drained)
    assert troubled.reader.scalars("loss") == [(step, float(step)) for step in range(300)]
    assert forwarder.cursor.mark.counts.refused == 0


def test_files_never_hold_the_metrics_up(troubled, mlflow_proxy, tmp_path):
    mlflow_proxy.trouble = "hang"
    mlflow_proxy.only = lambda method, _path: method == "PUT"
    file = tmp_path / "large.bin"
    file.write_bytes(b"x" * 1000)
    channel = troubled.open()
    troubled.run.add(channel, (Kind.ARTIFACT, (str(file),)))
    for step in range(50):
        troubled.run.metrics(channel, step, loss=1.0)
    forwarder = troubled.forwarder()
    step_until(forwarder, lambda: forwarder.drained)
    assert len(troubled.reader.rows("loss")) == 50
    assert not troubled.reader.artifacts()
    mlflow_proxy.trouble = 0
    mlflow_proxy.released.set()
    troubled.ended()
    troubled.deliver()
    assert "large.bin" in troubled.reader.artifacts()


def test_a_dead_server_that_comes_back_gets_the_rest(tmp_path, make_tracked, monkeypatch, mlflow_proxy):
    """The connection is cut in mid-stream, in whatever request is on its way."""
    troubled = make_tracked(mlflow_proxy)
    channel = troubled.open()
    for step in range(3000):
        troubled.run.metrics(channel, step, loss=float(step))
    forwarder = troubled.forwarder()
    flapping = threading.Thread(target=flap, args=(mlflow_proxy,))
    flapping.start()
    step_until(forwarder, lambda: forwarder.drained)
    flapping.join()
    assert troubled.reader.scalars("loss") == [(step, float(step)) for step in range(3000)]


def flap(proxy):
    for _ in range(3):
        seen = len(proxy.requests)
        deadline = time.monotonic() + 5
        while len(proxy.requests) == seen and time.monotonic() < deadline:
            time.sleep(0.01)
        proxy.stop()
        time.sleep(0.2)
        proxy.start()
