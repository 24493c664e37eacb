"""The trackers' variables of a training: who may read them, and for how long."""

from __future__ import annotations

import os
import stat
import time

from rankside_agent.sinks import tracker_environ
from rankside_agent.sinks.supervisor import Supervisor

TRAINING = {"WANDB_API_KEY": "0123456789abcdef0123", "MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"}


def test_only_the_agents_user_may_read_them(run):
    before = os.umask(0)
    try:
        tracker_environ.store(run.path, TRAINING)
    finally:
        os.umask(before)
    assert stat.S_IMODE(tracker_environ.path(run.path).stat().st_mode) == 0o600
    assert tracker_environ.load(run.path) == TRAINING


def test_only_a_trackers_variables_are_taken(run):
    tracker_environ.store(run.path, {**TRAINING, "LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil"})
    assert tracker_environ.load(run.path) == TRAINING


def test_ranks_of_one_attempt_add_to_each_other(run):
    tracker_environ.store(run.path, TRAINING)
    assert not tracker_environ.store(run.path, {"WANDB_API_KEY": "new"}, 1, ["WANDB_"])
    assert not tracker_environ.store(run.path, {})
    assert tracker_environ.load(run.path) == {**TRAINING, "WANDB_API_KEY": "new"}


def test_what_a_newer_attempt_no_longer_sets_counts_no_more(run):
    tracker_environ.store(run.path, {**TRAINING, "WANDB_DISABLED": "true"}, 1, ["WANDB_", "MLFLOW_"])
    assert tracker_environ.store(run.path, {"WANDB_MODE": "offline"}, 2, ["WANDB_"])
    of_mlflow = {
        "MLFLOW_TRACKING_URI": TRAINING["MLFLOW_TRACKING_URI"]
    }  # which that attempt has not turned on
    assert tracker_environ.load(run.path) == {"WANDB_MODE": "offline", **of_mlflow}
    assert not tracker_environ.store(run.path, TRAINING, 1, ["WANDB_"])  # a word of the older that is late
    assert tracker_environ.load(run.path) == {"WANDB_MODE": "offline", **of_mlflow}


def test_a_process_with_an_older_environment_is_replaced(run, until):
    told = run.path / "told"
    command = ["sh", "-c", f"echo $WANDB_MODE >> {told}; cat"]
    tracker_environ.store(run.path, {"WANDB_MODE": "offline"})
    supervisor = Supervisor(run.path, "wandb", command=command, jitter=lambda: -1.0)
    supervisor.start()
    until(lambda: told.exists() and told.read_text() == "offline\n")
    tracker_environ.store(run.path, {"WANDB_MODE": "online"}, 2, ["WANDB_"])
    supervisor.renew()

    def both():
        supervisor.tick(time.monotonic())
        return told.read_text() == "offline\nonline\n"

    until(both)
    supervisor.kill()


def test_secrets_are_forgotten_with_the_run(run):
    tracker_environ.store(run.path, {**TRAINING, "DATABRICKS_TOKEN": "dapi0123456789"})
    tracker_environ.forget_secrets(run.path)
    assert tracker_environ.load(run.path) == {"MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"}
    assert b"dapi" not in tracker_environ.path(run.path).read_bytes()


def test_a_broken_file_is_none(run):
    tracker_environ.path(run.path).write_text("{")
    assert tracker_environ.load(run.path) == {}


def test_a_sinks_process_gets_them_over_the_agents_own(run, until):
    tracker_environ.store(run.path, TRAINING)
    told = run.path / "told"
    command = ["sh", "-c", f"echo $WANDB_API_KEY $MLFLOW_TRACKING_URI $HOME > {told}"]
    supervisor = Supervisor(
        run.path, "wandb", environ={**os.environ, "WANDB_API_KEY": "old", "HOME": "/h"}, command=command
    )
    supervisor.start()
    until(lambda: told.exists() and told.read_text().endswith("\n"))
    supervisor.kill()
    assert told.read_text().split() == [*TRAINING.values(), "/h"]


def test_in_a_replay_its_users_variables_go_before_the_trainings(run, monkeypatch):
    tracker_environ.store(run.path, TRAINING)
    monkeypatch.setenv(tracker_environ.CALLERS, "MLFLOW_TRACKING_URI,HOME")
    assert tracker_environ.load(run.path) == {"WANDB_API_KEY": TRAINING["WANDB_API_KEY"]}
