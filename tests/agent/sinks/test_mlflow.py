"""What a user of MLflow sees of a run, on a real server."""

from __future__ import annotations

import json
import logging
import math

import pytest

from rankside.wire import Kind
from rankside_agent.sinks.mlflow import MLflow

pytest_plugins = ["mlflow_server"]


@pytest.mark.parametrize(
    ("config", "wanted"), [({}, False), ({"disable_mlflow": True}, False), ({"disable_mlflow": False}, True)]
)
def test_a_run_has_mlflow_where_its_parameters_say_so(config, wanted):
    assert MLflow.wanted(config) is wanted


def test_metrics_stand_at_their_steps_and_times(tracked):
    run, channel = tracked.run, tracked.open()
    times = []
    for step in (None, 5, None, 3, -2, 2**62):
        run.metrics(channel, step, loss=0.5)
        times.append(int(run.time * 1000))
    forwarder = tracked.deliver()
    rows = tracked.reader.rows("loss")
    assert [step for step, _, _ in rows] == [-2, 0, 3, 5, 5, 2**62]
    assert sorted(time for _, time, _ in rows) == times
    assert forwarder.cursor.mark.counts.points == 6


def test_a_refused_name_takes_nothing_with_it(tracked, caplog):
    caplog.set_level(logging.INFO)
    channel = tracked.open()
    for step in (1, 2):
        tracked.run.metrics(channel, step, **{"loss": 1.0, "mfu(%)": 30.8, "throughput(tps)": 8123})
    tracked.deliver()
    reader = tracked.reader
    assert reader.scalars("loss") == [(1, 1.0), (2, 1.0)]
    assert reader.scalars("mfu(%)") == [(1, 30.8), (2, 30.8)]
    assert reader.scalars("throughput(tps)") == [(1, 8123.0), (2, 8123.0)]
    assert sorted(reader.run.data.metrics) == ["loss", "mfu_pct-8ae227", "throughput_tps-924ed0"]
    assert caplog.text.count("is not legal in MLflow") == 2


def test_any_name_lands(tracked):
    names = ["", ".", "../x", "/abs", "a//b", "a,b", "tokens@s", "loss[0]", "x" * 251, "a:b", "é", "lm loss"]
    names += ["\ud800", "a\n", "損失", "x" * 250]
    tracked.run.metrics(tracked.open(), 1, **dict.fromkeys(names, 1.0))
    forwarder = tracked.deliver()
    data = tracked.reader.run.data
    assert len(data.metrics) == len(names) == forwarder.cursor.mark.counts.points
    originals = {value for key, value in data.tags.items() if key.startswith("rankside.name.")}
    assert originals | set(data.metrics) >= set(names) - {"\ud800"}
    assert "\\ud800" in originals


def test_nan_stays_and_infinities_are_told_apart_from_numbers(tracked, caplog):
    channel = tracked.open()
    values = (1.0, 1.0, 1.0, 1.0, math.nan, math.inf, -math.inf, 2.0)
    for step, value in enumerate(values):
        tracked.run.metrics(channel, step, loss=value, other=float(step))
    forwarder = tracked.deliver()
    reader = tracked.reader
    loss = [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, math.nan), (7, 2.0)]
    assert str(reader.scalars("loss")) == str(loss)
    assert reader.scalars("nonfinite/loss") == [(5, 1.0), (6, -1.0)]
    assert reader.scalars("other") == [(step, float(step)) for step in range(8)]
    assert reader.run.data.tags["rankside.nonfinite.loss"] == "+inf first at step 5"
    assert caplog.text.count("shown as nonfinite/loss") == 1
    assert "infinities" in forwarder.cursor.remark
    counts = forwarder.cursor.mark.counts
    assert (counts.points, counts.refused) == (14, 2)


def test_what_is_derived_is_never_a_plain_big_number_either(tracked, tmp_path):
    channel = tracked.open(config={"mlflow_upload_performance_metrics": True})
    for step, seconds in enumerate((1.0, math.inf, 1e306, 1e305, 1e305, math.nan)):
        tracked.run.metrics(channel, step, **{"iteration-time": seconds, "tflops": 1.7e308})
    tracked.ended()
    forwarder = tracked.deliver()
    reader = tracked.reader
    assert [step for step, _ in reader.scalars("perf/iteration_time_ms")] == [0, 3, 4, 5]
    assert reader.scalars("nonfinite/perf/iteration_time_ms") == [(1, 1.0), (2, 1.0)]
    assert all(value < 1.75e308 for value in reader.run.data.metrics.values() if not math.isnan(value))
    counts = forwarder.cursor.mark.counts
    assert (counts.points, counts.refused) == (11, 1)
    summary = reader.text("performance/summary.json", tmp_path)
    assert "Infinity" not in summary
    assert json.loads(summary)["perf/throughput_tflops_per_gpu"]["mean"] is None


def test_two_values_of_one_step_in_one_millisecond_keep_their_order(tracked):
    run, channel = tracked.run, tracked.open()
    for value in (3.0, 1.0, 2.0):
        run.time = 1_767_000_000.0
        run.metrics(channel, 7, loss=value)
    tracked.deliver()
    rows = sorted(tracked.reader.rows("loss"), key=lambda row: row[1])
    assert [value for _, _, value in rows] == [3.0, 1.0, 2.0]
    assert tracked.reader.run.data.metrics["loss"] == 2.0


def test_a_replay_from_the_beginning_doubles_nothing(tracked):
    run, channel = tracked.run, tracked.open()
    run.add(channel, (Kind.PARAMS, ({"lr": 0.1},)), (Kind.EVENT, ("checkpoint", {"path": "/x"})))
    for step, value in enumerate((1.0, math.nan, math.inf, 2.0)):
        run.metrics(channel, step, loss=value)
        run.metrics(channel, step, loss=value, again=1.0)
    tracked.deliver()
    before = tracked.reader.rows("loss"), tracked.reader.run.data
    (run.path / "sinks" / "mlflow.json").unlink()
    tracked.deliver()
    after = tracked.reader.rows("loss"), tracked.reader.run.data
    assert str(after[0]) == str(before[0])
    assert (after[1].params, after[1].tags) == (before[1].params, before[1].tags)
    assert len(before[0]) == 6


def test_a_new_attempt_continues_the_run_and_its_values_count(tracked):
    run = tracked.run
    first = tracked.open(attempt=1)
    for step in range(1, 61):
        run.metrics(first, step, loss=1.0)
    run.end(first, "killed")
    tracked.ended("killed")
    tracked.deliver()
    assert tracked.reader.run.info.status == "KILLED"
    tracked.told([])
    run.time -= 60.0  # the next node's clock is behind
    second = tracked.open(attempt=2)
    for step in range(51, 71):
        run.metrics(second, step, loss=2.0)
    for step in (49, 50, 51, 52):  # found in the dead rank's spool
        run.metrics(first, step, late=1.0)
    forwarder = tracked.deliver()
    reader = tracked.reader
    assert reader.scalars("loss") == [(s, 1.0) for s in range(1, 51)] + [(s, 2.0) for s in range(51, 71)]
    assert len(reader.rows("loss")) == 80
    assert reader.scalars("late") == [(49, 1.0), (50, 1.0)]
    assert reader.run.info.status == "RUNNING"
    tags = reader.run.data.tags
    assert tags["rankside.attempt"] == "2"
    assert tags["rankside.attempt_2.first_step"] == "51"
    assert forwarder.cursor.mark.counts.superseded == 2


def test_other_ranks_metrics_do_not_say_where_an_attempt_began(tracked):
    run, config = tracked.run, {"metrics.save_for_all_ranks": True}
    first = tracked.open(attempt=1, config=config)
    for step in range(10):
        run.metrics(first, step, loss=1.0)
    other, second = tracked.open(rank=3, attempt=2, config=config), tracked.open(attempt=2, config=config)
    run.metrics(other, 2, loss=9.0)
    run.metrics(second, 5, loss=2.0)
    run.metrics(other, 8, loss=9.0)
    run.metrics(second, None, eval=3.0)
    tracked.deliver()
    assert tracked.reader.run.data.tags["rankside.attempt_2.first_step"] == "5"
    assert tracked.reader.scalars("rank-3/loss") == [(2, 9.0), (8, 9.0)]
    assert tracked.reader.scalars("eval") == [(5, 3.0)]


def test_an_attempt_beside_a_living_one_is_a_run_of_its_own(tracked):
    run = tracked.run
    first, second = tracked.open(attempt=1), tracked.open(attempt=2, log_root="logs/attempt-2")
    for step in range(5):
        run.metrics(first, step, loss=1.0)
        run.metrics(second, step, loss=2.0)
    tracked.deliver()
    assert tracked.reader.scalars("loss") == [(step, 1.0) for step in range(5)]
    beside = tracked.reader
    beside.identity += "/attempt-2"
    assert beside.scalars("loss") == [(step, 2.0) for step in range(5)]
    assert beside.run.info.run_name == "team_user attempt-2"


def test_long_params_are_cut_with_a_mark_and_kept_whole(tracked, tmp_path):
    run, channel = tracked.run, tracked.open()
    values = {f"p{length}": "x" * length for length in (251, 501, 6001, 50_000)}
    run.add(channel, (Kind.PARAMS, ({**values, "optimizer": {"name": "adam", "betas": [0.9, 0.95]}},)))
    tracked.ended()
    tracked.deliver()
    params = tracked.reader.run.data.params
    assert params["p251"] == "x" * 251
    assert params["p501"] == "x" * 501
    for length in (6001, 50_000):
        assert len(params[f"p{length}"]) == 6000
        assert f"{length} characters" in params[f"p{length}"]
    assert params["optimizer.name"] == "adam"
    assert params["optimizer.betas"] == "[0.9, 0.95]"
    whole = json.loads(tracked.reader.text("params/attempt-1.json", tmp_path))
    assert {name: len(whole[name]) for name in values} == {f"p{n}": n for n in (251, 501, 6001, 50_000)}


def test_a_changed_param_is_recorded_and_the_rest_lands(tracked):
    run, first = tracked.run, tracked.open(attempt=1)
    run.add(first, (Kind.PARAMS, ({"world_size": 8, "lr": 0.1},)))
    tracked.deliver()
    second = tracked.open(attempt=2, world_size=8)
    run.add(second, (Kind.PARAMS, ({"world_size": 4, "lr": 0.1, "new": "yes"},)))
    forwarder = tracked.deliver()
    params = tracked.reader.run.data.params
    assert params == {"world_size": "8", "attempt_2.world_size": "4", "lr": "0.1", "new": "yes"}
    assert forwarder.cursor.mark.counts.refused == 0


def test_odd_params_and_names_cost_nobody_anything(tracked):
    odd = {"": 1, "a,b": None, "bytes": b"\xff", "deep": {"x": {"y": {"z": [1]}}}, "surrogate": "\ud800"}
    many = {f"p{n}": "é" * 6000 for n in range(150)}
    tracked.run.add(
        tracked.open(), (Kind.PARAMS, ({**odd, "empty": {}, "none": None},)), (Kind.PARAMS, (many,))
    )
    tracked.deliver()
    params = tracked.reader.run.data.params
    assert params["deep.x.y.z"] == "[1]"
    assert params["none"] == "None"
    assert params["surrogate"] == "\\ud800"
    assert len(params) == len(odd) + 2 + len(many)


def test_a_server_with_shorter_limits_gets_shorter_params(troubled, mlflow_proxy):
    mlflow_proxy.trouble = "refuse:" + "x" * 600
    channel = troubled.open()
    troubled.run.add(channel, (Kind.PARAMS, ({"long": "x" * 3000, "lr": 0.1},)))
    troubled.run.metrics(channel, 1, loss=1.0)
    troubled.deliver()
    assert len(troubled.reader.run.data.params["long"]) == 500
    assert troubled.reader.run.data.params["lr"] == "0.1"


def test_a_server_without_colons_gets_other_names(troubled, mlflow_proxy):
    mlflow_proxy.trouble = 'refuse:"key": "a:b"'
    channel = troubled.open()
    for step in range(3):
        troubled.run.metrics(channel, step, **{"loss": 1.0, "a:b": 2.0})
    forwarder = troubled.deliver()
    assert troubled.reader.scalars("a:b") == [(step, 2.0) for step in range(3)]
    assert troubled.reader.scalars("loss") == [(step, 1.0) for step in range(3)]
    assert forwarder.cursor.mark.counts.refused == 0


def test_what_is_refused_for_good_is_left_out_alone(troubled, mlflow_proxy, caplog):
    mlflow_proxy.trouble = "refuse:poison"
    channel = troubled.open()
    for step in range(50):
        troubled.run.metrics(channel, step, **{"loss": 1.0, "poison": 2.0, "other": 3.0})
    troubled.run.add(channel, (Kind.PARAMS, ({"a": "poison", "lr": 0.1},)))
    forwarder = troubled.deliver()
    counts = forwarder.cursor.mark.counts
    assert counts.refused == 51
    assert counts.points == 101
    assert len(troubled.reader.rows("loss")) == len(troubled.reader.rows("other")) == 50
    assert troubled.reader.run.data.params == {"lr": "0.1"}
    assert caplog.text.count("is refused by the tracker") == 2


def test_the_environment_is_params_and_the_origin_is_tags(tracked, tmp_path):
    tracked.launch["environ"] = {"NCCL_DEBUG": "INFO", "PATH": "/bin"}
    run, channel = tracked.run, tracked.open()
    run.metrics(channel, 1, loss=1.0)
    tracked.deliver()
    data = tracked.reader.run.data
    assert data.params == {"env__NCCL_DEBUG": "INFO", "env__PATH": "/bin"}
    assert data.tags["mlflow.source.name"] == "train.py"
    assert data.tags["mlflow.user"] == "user"
    assert data.tags["rankside.host"] == "node-1"
    assert data.tags["rankside.world_size"] == "8"
    assert data.tags["rankside.exp_root"] == str(run.exp_root)
    assert tracked.reader.run.info.run_name == "team_user"
    assert "mlflow.source.git.commit" not in data.tags
    git = {
        "commit": "abc",
        "branch": "main",
        "repo_url": "https://host/x.git",
        "dirty": True,
        "status": [" M a"],
    }
    (run.path / "origin").mkdir()
    (run.path / "origin" / "attempt-1.json").write_text(json.dumps(git))
    run.metrics(channel, 2, loss=1.0)
    tracked.ended()
    tracked.deliver()
    tags = tracked.reader.run.data.tags
    assert tags["mlflow.source.git.commit"] == "abc"
    assert tags["mlflow.source.git.branch"] == "main"
    assert tags["mlflow.source.git.repoURL"] == "https://host/x.git"
    assert tags["mlflow.source.git.dirty"] == "True"
    assert json.loads(tracked.reader.text("system/git_metadata.json", tmp_path)) == git


def test_a_param_that_is_called_as_a_variable_is_beside_it(tracked):
    tracked.launch["environ"] = {"PATH": "/bin"}
    channel = tracked.open()
    mine = {"env__PATH": "clash", "env": {"PATH": 1}, "param.env__PATH": "odd", "param.lr": 1}
    tracked.run.add(channel, (Kind.PARAMS, (mine,)))
    tracked.deliver()
    assert tracked.reader.run.data.params == {
        "env__PATH": "/bin",
        "param.env__PATH": "clash",
        "param.param.env__PATH": "odd",
        "env.PATH": "1",
        "param.lr": "1",
    }


def test_events_are_tags_and_lines(tracked, tmp_path):
    run, channel = tracked.run, tracked.open()
    for step in (100, 200):
        run.metrics(channel, step, loss=1.0)
        run.add(channel, (Kind.EVENT, ("checkpoint", {"path": f"/ckpt/{step}"})))
        tracked.deliver()
    (run.path / "sinks" / "mlflow.json").unlink()  # all comes again
    tracked.ended()
    tracked.deliver()
    assert json.loads(tracked.reader.run.data.tags["rankside.event.checkpoint"]) == {"path": "/ckpt/200"}
    lines = tracked.reader.text("events/attempt-1.jsonl", tmp_path).splitlines()
    assert [json.loads(line)["path"] for line in lines] == ["/ckpt/100", "/ckpt/200"]


def test_parameters_name_the_experiment_and_the_run(tracked):
    config = {"mlflow_experiment_name": f"other {tracked.key}", "mlflow_run_name": "mine"}
    tracked.run.metrics(tracked.open(config=config), 1, loss=1.0)
    tracked.deliver()
    run = tracked.reader.run
    assert run.info.run_name == "mine"
    assert tracked.reader.client.get_experiment(run.info.experiment_id).name == f"other {tracked.key}"


def test_3_000_values_of_one_record_arrive_whole(tracked):
    tracked.run.metrics(tracked.open(), 1, **{f"name {number}": float(number) for number in range(3_000)})
    forwarder = tracked.deliver()
    assert forwarder.cursor.mark.counts.points == 3_000
    assert len(tracked.reader.run.data.metrics) == 3_000
