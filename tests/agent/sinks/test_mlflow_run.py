"""One experiment and one run, whoever else makes them at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid

import pytest

from rankside_agent.sinks import mlflow_run
from rankside_agent.sinks.mlflow_client import Tracker
from rankside_agent.sinks.mlflow_run import TrackerRun, experiment_name, run_name
from rankside_agent.sinks.translator import source_of

pytest_plugins = ["mlflow_server"]

# Processes as the sinks': forked once the library is there, and at once; each says which run it took.
MAKE = """
import os, sys
from pathlib import Path
from rankside_agent.sinks import mlflow_library
mlflow_library.load()
import mlflow.store.tracking.rest_store
from rankside_agent.sinks.mlflow_client import Tracker
from rankside_agent.sinks.mlflow_run import TrackerRun
from rankside_agent.sinks.translator import source_of
folder, experiment, *identities = sys.argv[1:]
for identity in identities:
    if os.fork() == 0:
        run = TrackerRun(Tracker(Path(folder), folder), identity, "", Path(folder))
        info = {"rank": 0, "world_size": 1, "role": "worker", "exp_name": experiment, "started": 1e9}
        run.source = source_of(info)
        for _ in range(5):
            try:
                os.write(1, f"{run.id}\\n".encode())
                break
            except ConnectionError as error:  # a busy database: the sink's loop tries again as well
                print(error, file=sys.stderr)
        os._exit(0)
for _ in identities:
    os.wait()
"""


@pytest.fixture
def together(mlflow_server, tmp_path, tracked):
    """Runs a process for each identity at once; returns the runs that they took."""

    def together(identities):
        environ = {**os.environ, "MLFLOW_TRACKING_URI": mlflow_server.uri}
        command = [sys.executable, "-c", MAKE, str(tmp_path), tracked.name, *identities]
        done = subprocess.run(command, env=environ, text=True, capture_output=True, timeout=120)
        runs = done.stdout.split()
        assert len(runs) == len(identities), done.stderr
        return runs

    return together


def test_eight_at_once_make_one_experiment_and_never_use_the_default(together, tracked):
    name = tracked.name
    runs = together([f"{tracked.key}-{number}" for number in range(8)])
    client = tracked.reader.client
    assert len(set(runs)) == 8
    assert [each.name for each in client.search_experiments()].count(name) == 1
    ids = {client.get_run(run_id).info.experiment_id for run_id in runs}
    assert ids == {client.get_experiment_by_name(name).experiment_id}
    assert not client.search_runs(["0"])


def test_several_at_once_make_one_run(together, tracked):
    runs = together([tracked.key] * 4)
    assert len(set(runs)) == 1
    assert [run.info.run_id for run in tracked.reader.runs()] == runs[:1]


@pytest.fixture
def make(tracked, tmp_path):
    """A run of the tracker, as a sink would have it."""

    def make(run_id="", identity=tracked.key, **more):
        made = TrackerRun(Tracker(tmp_path, str(tmp_path)), identity, run_id, tmp_path)
        info = {"rank": 0, "world_size": 1, "role": "worker", "exp_name": tracked.name, "started": 1e9}
        made.source = source_of({**info, **more})
        return made

    return make


def test_it_is_found_again_by_all_who_mean_it(make):
    assert make().id == make().id
    assert make().id != make(identity=uuid.uuid4().hex).id


def test_of_two_the_one_with_points_stays_or_the_one_claimed_first(make, tracked):
    client, one = tracked.reader.client, make()
    experiment = client.get_run(one.id).info.experiment_id

    def duplicate(created):
        tags = {mlflow_run.IDENTITY: tracked.key, mlflow_run.CREATED: created}
        return client.create_run(experiment, tags=tags).info.run_id

    younger = duplicate("9999999999.0")
    assert make().id == one.id
    assert client.get_run(younger).info.lifecycle_stage == "deleted"
    older = duplicate("0000000001.0")
    client.set_tag(older, mlflow_run.CLAIMED, "0000000001.0")
    client.log_metric(one.id, "loss", 1.0)
    assert make().id == one.id
    assert client.get_run(older).info.lifecycle_stage == "deleted"
    assert client.get_run(older).data.tags[mlflow_run.DUPLICATE] == one.id
    late = duplicate("9999999999.0")
    make(one.id).settle()
    assert client.get_run(late).info.lifecycle_stage == "deleted"


def test_who_holds_a_deleted_duplicate_takes_the_other(make, tracked):
    client, one = tracked.reader.client, make()
    experiment = client.get_run(one.id).info.experiment_id
    other = client.create_run(experiment, tags={mlflow_run.IDENTITY: tracked.key}).info.run_id
    client.set_tag(other, mlflow_run.DUPLICATE, one.id)
    client.delete_run(other)
    assert make(other).id == one.id


def test_an_experiment_that_was_deleted_before_is_restored(make, tracked, caplog):
    client = tracked.reader.client
    client.delete_experiment(client.create_experiment(tracked.name))
    assert client.get_run(make().id).info.lifecycle_stage == "active"
    assert "is restored" in caplog.text


def test_runs_that_were_deleted_stay_deleted_when_their_experiment_is_restored(make, tracked, tmp_path):
    client, mine = tracked.reader.client, make()
    experiment = client.get_run(mine.id).info.experiment_id
    apart, beside = (client.create_run(experiment, run_name=name).info.run_id for name in ("apart", "beside"))
    client.delete_run(apart)
    client.delete_experiment(experiment)
    again = make(mine.id)
    assert again.id == mine.id
    stages = [client.get_run(each).info.lifecycle_stage for each in (mine.id, apart, beside)]
    assert stages == ["active", "deleted", "deleted"]
    assert not (tmp_path / "revived.json").exists()


def test_a_death_between_restoring_and_deleting_again_revives_nobody(make, tracked, tmp_path):
    client, mine = tracked.reader.client, make()
    experiment = client.get_run(mine.id).info.experiment_id
    apart = client.create_run(experiment).info.run_id
    (tmp_path / "revived.json").write_text(json.dumps([apart, mine.id, "0" * 32]))
    assert make(mine.id).id == mine.id
    assert client.get_run(apart).info.lifecycle_stage == "deleted"


def test_a_run_id_of_another_server_is_no_obstacle(make, tracked):
    assert make("0" * 32).id == tracked.reader.run.info.run_id


def test_a_run_that_had_ended_runs_again(make, tracked):
    run_id = make().id
    tracked.reader.client.set_terminated(run_id, "KILLED")
    _ = make(run_id).id
    assert tracked.reader.run.info.status == "RUNNING"


@pytest.mark.parametrize(
    ("told", "more", "names"),
    [
        ({}, {"exp_name": "llama", "team": "team", "user": "me"}, ("llama", "team_me")),
        ({}, {"exp_name": "", "user": "me"}, ("root", "me")),
        ({"mlflow_experiment_name": "e", "mlflow_run_name": "r"}, {"exp_name": "llama"}, ("e", "r")),
        ({}, {"exp_name": "x" * 900, "user": "\ud800"}, ("x" * 250, "\\ud800")),
        ({}, {"exp_name": "e", "user": "me", "log_root": "logs/attempt-3"}, ("e", "me attempt-3")),
    ],
)
def test_names_come_from_the_parameters_or_the_run(told, more, names):
    class Nowhere:
        exp_root = "/some/root"
        absolute_names = False

    source = source_of({"rank": 0, "world_size": 1, "role": "worker", "config": told, **more})
    assert (experiment_name(source, Nowhere()), run_name(source)) == names


def test_databricks_experiments_have_a_place_in_the_workspace():
    class Databricks:
        exp_root = "/some/root"
        absolute_names = True

    info = {"rank": 0, "world_size": 1, "role": "worker"}
    assert experiment_name(source_of({**info, "exp_name": "llama"}), Databricks()) == "/Shared/llama"
    config = {"mlflow_experiment_name": "/Users/me/llama"}
    assert experiment_name(source_of({**info, "config": config}), Databricks()) == "/Users/me/llama"
