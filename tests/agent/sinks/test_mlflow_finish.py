"""What is left to do when the ranks have ended: files, a summary, the status; and all of it once."""

from __future__ import annotations

import json
import time

import pytest

from rankside.wire import Kind
from rankside_agent.sinks import mlflow_uploads
from rankside_agent.sinks.base import Counts, Outcome, Run
from rankside_agent.sinks.mlflow import MLflow

pytest_plugins = ["mlflow_server"]

ALL = {"mlflow_upload_logs": True, "mlflow_upload_traces": True, "mlflow_upload_performance_metrics": True}


@pytest.mark.parametrize(
    ("status", "shown"), [("finished", "FINISHED"), ("failed", "FAILED"), ("killed", "KILLED")]
)
def test_the_status_is_told_when_the_ranks_have_ended_and_not_before(tracked, status, shown):
    channel = tracked.open()
    tracked.run.metrics(channel, 1, loss=1.0)
    tracked.run.end(channel, status)
    tracked.deliver()
    assert tracked.reader.run.info.status == "RUNNING"
    tracked.ended(status)
    tracked.deliver()
    assert tracked.reader.run.info.status == shown
    assert tracked.reader.run.info.end_time == int(tracked.run.time * 1000)


def test_a_node_that_no_longer_speaks_for_the_run_leaves_its_status_alone(tracked):
    tracked.run.metrics(tracked.open(), 1, loss=1.0)
    tracked.ended("finished")
    tracked.deliver()
    tracked.reader.client.set_terminated(tracked.reader.run.info.run_id, "FAILED")  # by the other node
    tracked.ended_elsewhere("finished", attempt=2)
    tracked.deliver()
    assert tracked.reader.run.info.status == "FAILED"


def test_logs_and_traces_are_uploaded_where_the_parameters_say_so(tracked, tmp_path):
    exp = tracked.run.exp_root
    files = {
        "logs/pretrain/rank-7/debug.log": "line",
        "logs/pretrain/rank-7/odd name #1?.log": "odd",
        "logs/empty.log": "",
        "logs/attempt-2/pretrain/rank-7/debug.log": "the neighbour's",
        "tensorboard/node.pt.trace.json": "{}",
        "profile_traces/iteration_10/rank0_trace.json": "{}",
        "memory_snapshot/iteration_1/rank0.bin": "x",
        "snapshot.pickle": "x",
        "checkpoints/iter_1/model.pt": "no trace",
        "notes.txt": "no trace",
    }
    for name, content in files.items():
        (exp / name).parent.mkdir(parents=True, exist_ok=True)
        (exp / name).write_text(content)
    (exp / "logs" / "secrets").symlink_to("/etc/hostname")
    first = tracked.open(config=ALL)
    tracked.open(config=ALL, attempt=2, log_root="logs/attempt-2")
    tracked.run.metrics(first, 1, loss=1.0)
    tracked.ended()
    tracked.ended(attempt=2, log_root="logs/attempt-2")
    tracked.deliver()
    assert tracked.reader.artifacts() == [
        "logs/empty.log",
        "logs/pretrain/rank-7/debug.log",
        "logs/pretrain/rank-7/odd name _1_-a1c94e.log",
        "traces/memory_snapshot/iteration_1/rank0.bin",
        "traces/profile_traces/iteration_10/rank0_trace.json",
        "traces/snapshot.pickle",
        "traces/tensorboard/node.pt.trace.json",
    ]
    assert tracked.reader.text("logs/pretrain/rank-7/debug.log", tmp_path) == "line"


def test_nothing_is_uploaded_without_a_word(tracked):
    (tracked.run.exp_root / "logs").mkdir(parents=True)
    (tracked.run.exp_root / "logs" / "a.log").write_text("line")
    tracked.run.metrics(tracked.open(), 1, loss=1.0)
    tracked.ended()
    tracked.deliver()
    assert tracked.reader.artifacts() == []


def test_performance_metrics_have_their_names_and_a_summary(tracked, tmp_path):
    channel = tracked.open(config=ALL)
    for step in (1, 2):
        tracked.run.add(channel, (Kind.THROUGHPUT, (step, {"elapsed_s": 0.25 * step, "tflops": 9.0})))
        tracked.run.metrics(channel, step, **{"throughput(tps)": 8000.0 * step})
        speed = {
            "throughput(tflops/sec/gpu)": 400.0 + step,
            "rocm_used_mem(GB)": 99.0,
            "rocm_mem_usage(%)": 50.0,
        }
        tracked.run.figures(channel, step, **speed)
        gpus = {f"system/rank-{rank}/gpu_use_percent": 10.0 * rank * step for rank in (1, 3)}
        tracked.run.figures(channel, None, **gpus)
        tracked.deliver()
    tracked.ended()
    tracked.deliver()
    reader = tracked.reader
    assert reader.scalars("perf/iteration_time_ms") == [(1, 250.0), (2, 500.0)]
    assert reader.scalars("perf/throughput_tflops_per_gpu") == [(1, 401.0), (2, 402.0)]
    assert reader.scalars("perf/tps_tokens_per_sec_per_gpu") == [(1, 8000.0), (2, 16000.0)]
    assert reader.scalars("perf/rocm_current_mem_gb") == [(1, 99.0), (2, 99.0)]
    assert reader.scalars("perf/rocm_mem_utilization_pct") == [(1, 50.0), (2, 50.0)]
    assert reader.scalars("perf/gpu_utilization_pct_rank3") == [(1, 30.0), (2, 60.0)]
    assert reader.scalars("perf/gpu_utilization_pct_avg") == [(1, 20.0), (2, 40.0)]
    assert reader.scalars("iteration-time") == [(1, 0.25), (2, 0.5)]
    summary = json.loads(reader.text("performance/summary.json", tmp_path))
    assert summary["perf/iteration_time_ms"] == {
        "count": 2,
        "mean": 375.0,
        "min": 250.0,
        "max": 500.0,
        "last": 500.0,
    }


def test_artifacts_of_the_training_keep_their_names_and_never_become_one(tracked, tmp_path, caplog):
    for name in ("a/report.html", "b/report.html", "folder/x/1.txt", "folder/2.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tracked.run.exp_root / "relative.txt").write_text("relative")
    run, channel = tracked.run, tracked.open()
    paths = ["a/report.html", "b/report.html", "folder", "missing.txt"]
    for path in [*(str(tmp_path / path) for path in paths), "relative.txt", "/dev/zero"]:
        run.add(channel, (Kind.ARTIFACT, (path,)))
    run.metrics(channel, 1, loss=1.0)
    tracked.ended()
    forwarder = tracked.deliver()
    found = tracked.reader.artifacts()
    assert {"report.html", "relative.txt", "folder/2.txt", "folder/x/1.txt"} < set(found)
    assert len(found) == 5
    assert tracked.reader.text("report.html", tmp_path) == "a/report.html"
    assert forwarder.cursor.mark.counts.refused == 2
    assert caplog.text.count("is left out") == 2
    assert tracked.reader.run.info.status == "FINISHED"


def test_a_finish_that_is_cut_off_goes_on_where_it_was(troubled, mlflow_proxy, monkeypatch):
    monkeypatch.setattr(mlflow_uploads, "_YIELD_SECONDS", 0.05)
    logs = troubled.run.exp_root / "logs"
    logs.mkdir(parents=True)
    for number in range(30):
        (logs / f"{number:02}.log").write_text(str(number))
    troubled.run.metrics(troubled.open(config=ALL), 1, loss=1.0)
    private = troubled.deliver().cursor.mark.private
    facts = Run(troubled.run.path.name, str(troubled.run.exp_root), troubled.run.path, troubled.key)
    outcome = Outcome("finished", 1, troubled.run.time)
    lives = 0
    while lives < 50:
        lives += 1
        sink = MLflow(facts, private, Counts())
        before = uploads(mlflow_proxy)
        done = True
        for _ in sink.finish(outcome):
            private = json.loads(json.dumps(sink.state()))
            if uploads(mlflow_proxy) >= before + 3:  # killed in the middle
                done = False
                break
        if done:
            break
    assert lives > 3
    assert len(troubled.reader.artifacts()) == 30
    assert uploads(mlflow_proxy) <= 30 + lives
    assert troubled.reader.run.info.status == "FINISHED"


def uploads(proxy):
    return sum(method == "PUT" for method, _, _ in proxy.requests)


def test_a_file_that_the_artifact_store_fails_at_keeps_neither_the_end_nor_the_others_back(
    troubled, mlflow_proxy
):
    mlflow_proxy.trouble = 500
    mlflow_proxy.only = lambda method, path: method == "PUT" and path.endswith("poison.log")
    logs = troubled.run.exp_root / "logs"
    logs.mkdir(parents=True)
    for name in ("good.log", "poison.log", "zebra.log"):
        (logs / name).write_text(name)
    troubled.run.metrics(troubled.open(config=ALL), 1, loss=1.0)
    troubled.ended()
    forwarder = tries(troubled, 5)
    assert "poison.log" in forwarder.cursor.last_error
    assert troubled.reader.artifacts() == ["logs/good.log", "logs/zebra.log"]
    assert troubled.reader.run.info.status == "FINISHED"
    mlflow_proxy.trouble = 0
    forwarder = troubled.deliver(most_failures=10)
    assert "logs/poison.log" in troubled.reader.artifacts()
    assert forwarder.cursor.mark.counts.refused == 0


def tries(troubled, number):
    """A sink that fails so many times."""
    forwarder = troubled.forwarder()
    while forwarder.cursor.failures < number:
        time.sleep(min(forwarder.round(), 0.05))
        assert not forwarder.drained
    forwarder.close("waiting")
    return forwarder


@pytest.mark.parametrize("trouble", [404, 403, 500, 503])
def test_a_store_that_is_away_at_the_end_costs_no_file(troubled, mlflow_proxy, tmp_path, trouble):
    mlflow_proxy.trouble = trouble
    mlflow_proxy.only = lambda method, path: method == "PUT" and "artifacts" in path
    exp = troubled.run.exp_root
    (exp / "logs").mkdir(parents=True)
    (exp / "logs" / "a.log").write_text("line")
    (exp / "model.txt").write_text("weights")
    channel = troubled.open(config=ALL)
    troubled.run.add(channel, (Kind.PARAMS, ({"huge": "x" * 50_000},)), (Kind.EVENT, ("tick", {"n": 1})))
    troubled.run.add(channel, (Kind.ARTIFACT, (str(exp / "model.txt"),)))
    troubled.run.metrics(channel, 1, loss=1.0)
    troubled.ended()
    forwarder = tries(troubled, 4)
    assert "artifacts wait for their store" in forwarder.cursor.last_error
    assert "artifacts wait for their store" in forwarder.cursor.remark
    assert troubled.reader.run.info.status == "FINISHED"
    mlflow_proxy.trouble = 0
    forwarder = troubled.deliver(most_failures=10)
    assert troubled.reader.artifacts() == [
        "events/attempt-1.jsonl",
        "logs/a.log",
        "model.txt",
        "params/attempt-1.json",
    ]
    assert troubled.reader.run.info.status == "FINISHED"
    assert (forwarder.cursor.mark.counts.refused, forwarder.cursor.remark) == (0, "")


def test_a_new_attempt_runs_again_although_files_of_the_last_still_wait(troubled, mlflow_proxy):
    mlflow_proxy.trouble = 503
    mlflow_proxy.only = lambda method, path: method == "PUT" and "artifacts" in path
    (troubled.run.exp_root / "a.txt").write_text("a")
    first = troubled.open()
    troubled.run.add(first, (Kind.ARTIFACT, ("a.txt",)))
    troubled.run.metrics(first, 1, loss=1.0)
    troubled.ended("failed")
    tries(troubled, 3)
    assert troubled.reader.run.info.status == "FAILED"
    troubled.told([])
    troubled.run.metrics(troubled.open(attempt=2), 2, loss=2.0)
    troubled.deliver(most_failures=3)
    assert troubled.reader.run.info.status == "RUNNING"


def test_hidden_files_are_no_logs(tracked):
    for name in ("logs/.writer-node", "logs/a.log", "logs/.hidden/b.log", "logs/x/.c.new"):
        (tracked.run.exp_root / name).parent.mkdir(parents=True, exist_ok=True)
        (tracked.run.exp_root / name).write_text(name)
    tracked.run.metrics(tracked.open(config=ALL), 1, loss=1.0)
    tracked.ended()
    tracked.deliver()
    assert tracked.reader.artifacts() == ["logs/a.log"]


def test_a_tracker_that_is_away_at_the_end_is_told_later(troubled, mlflow_proxy):
    logs = troubled.run.exp_root / "logs"
    logs.mkdir(parents=True)
    (logs / "a.log").write_text("line")
    channel = troubled.open(config=ALL)
    troubled.run.metrics(channel, 1, loss=1.0)
    troubled.deliver()
    troubled.ended()
    mlflow_proxy.stop()
    forwarder = troubled.forwarder()
    while forwarder.cursor.failures < 3:
        forwarder.round()
    mlflow_proxy.start()
    troubled.deliver(most_failures=10)
    assert troubled.reader.artifacts() == ["logs/a.log"]
    assert troubled.reader.run.info.status == "FINISHED"
