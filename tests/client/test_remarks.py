"""What is said when a run starts: what was given in vain, and where things go without a key."""

from __future__ import annotations

import pytest

from rankside.remarks import at_start
from rankside.settings import resolve

WANDB = "WANDB_API_KEY is not set: W&B writes offline files to /e/wandb"
MLFLOW = (
    "MLFLOW_TRACKING_URI is not set, and neither is DATABRICKS_HOST: MLflow writes to sqlite:////e/mlflow.db"
)


def said(environ=None, **given):
    return list(at_start(resolve(given, {}).values, "/e", environ or {}))


def test_of_defaults_nothing_is_said():
    assert said() == []


def test_what_is_deprecated_names_where_it_goes():
    assert said(wandb_save_dir="/x", tensorboard_dir="/y") == [
        "wandb_save_dir is deprecated and ignored: the files go to /e/wandb",
        "tensorboard_dir is deprecated and ignored: the files go to /e/tensorboard",
    ]


@pytest.mark.parametrize("on", [{"disable_wandb": False}, {"metrics.enable_wandb": True}])
def test_without_a_key_wandb_is_offline(on, here):
    assert said(**on) == [WANDB]
    assert said({"WANDB_API_KEY": " "}, **on) == [WANDB]
    assert said({"WANDB_API_KEY": "x"}, **on) == []
    assert said({"WANDB_IDENTITY_TOKEN_FILE": "x"}, **on) == []
    for meant in ("disabled", "offline", "dryrun", " Offline"):
        assert said({"WANDB_MODE": meant}, **on) == []


def test_a_level_that_is_none_is_told_with_the_choices():
    assert said({"PRIMUS_LOG_LEVEL": "debug"}) == []
    (told,) = said({"PRIMUS_LOG_LEVEL": "FOO"})
    assert told.startswith("PRIMUS_LOG_LEVEL: 'FOO' is no level and was ignored; choices: ")
    assert "DEBUG" in told


def test_an_entry_in_netrc_is_a_key(here):
    (here / ".netrc").write_text(
        "machine api.wandb.ai\n  login user\n  password x\nmachine w.example.org login u"
    )
    on = {"disable_wandb": False}
    assert said({"HOME": str(here)}, **on) == []
    assert said({"HOME": str(here), "WANDB_BASE_URL": "https://w.example.org:8080/"}, **on) == []
    assert said({"HOME": str(here), "WANDB_BASE_URL": "https://other.example.org"}, **on) == [WANDB]
    assert said({"HOME": "/", "NETRC": str(here / ".netrc")}, **on) == []
    assert said({"HOME": str(here), "NETRC": "/nonexistent"}, **on) == [WANDB]


def test_without_a_server_mlflow_writes_a_database():
    assert said(disable_mlflow=False) == [MLFLOW]
    for name in ("DATABRICKS_HOST", "MLFLOW_TRACKING_URI"):
        assert said({name: "https://h"}, disable_mlflow=False) == []


def test_uploads_without_mlflow_are_one_remark():
    assert said(mlflow_upload_logs=True, mlflow_upload_traces=True) == [
        "disable_mlflow is true, without effect: mlflow_upload_traces, mlflow_upload_logs"
    ]
    assert said({"DATABRICKS_HOST": "h"}, mlflow_upload_logs=True, disable_mlflow=False) == []
