"""A Logger's calls, and which of the two packages it belongs to."""

from __future__ import annotations

import argparse
import sys
from types import ModuleType, SimpleNamespace

import pytest

import rankside
from rankside.integrations import lightning
from rankside.integrations.lightning import LoggerCalls


def package(monkeypatch, name: str) -> type:
    """A stand-in of one of the packages; its Logger."""
    logger = type(f"Logger of {name}", (), {})
    parts = name.split(".")
    for number in range(len(parts)):
        path = ".".join(parts[: number + 1])
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    for path in (f"{name}.loggers", f"{name}.loggers.logger"):
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    sys.modules[f"{name}.loggers.logger"].Logger = logger
    return logger


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_it_is_a_logger_of_the_package_that_is_loaded(monkeypatch, told, name):
    base = package(monkeypatch, name)
    assert isinstance(lightning.logger(told), base)


def test_it_is_one_of_both_where_both_are(monkeypatch, told):
    bases = [package(monkeypatch, name) for name in ("lightning.pytorch", "pytorch_lightning")]
    made = lightning.logger(told)
    assert all(isinstance(made, base) for base in bases)


def test_metrics_and_hyperparameters_in_either_form(told):
    made = LoggerCalls(told)
    made.log_metrics({"loss": 1.0, "epoch": 0}, step=7)
    made.log_metrics({"val": 2.0, "epoch": 0}, 7)
    made.log_hyperparams({"lr": 0.1})
    made.log_hyperparams(argparse.Namespace(width=8), {"best": 1.0})
    assert told.of("metrics") == [(7, {"loss": 1.0, "epoch": 0}), (7, {"val": 2.0})]
    assert told.of("params") == [{"lr": 0.1}, {"width": 8}]


def test_checkpoints_come_into_the_runs_own_folder(told):
    import os

    made = LoggerCalls(told)
    assert os.path.join(made.save_dir, made.name, made.version, "checkpoints") == "/exp/checkpoints"
    assert LoggerCalls(rankside.NoMonitor()).save_dir is None


def test_each_new_checkpoint_is_told_once(told):
    made = LoggerCalls(told)
    saver = SimpleNamespace(best_model_path="/exp/a.ckpt", last_model_path="")
    made.after_save_checkpoint(saver)
    made.after_save_checkpoint(saver)
    saver.last_model_path = "/exp/last.ckpt"
    made.after_save_checkpoint(saver)
    assert told.of("event") == [
        ("checkpoint", {"path": "/exp/a.ckpt", "kind": "best"}),
        ("checkpoint", {"path": "/exp/last.ckpt", "kind": "last"}),
    ]


def test_the_end_is_an_event_and_the_monitor_stays_open(told):
    LoggerCalls(told).finalize("success")
    assert told.calls == [("event", ("trainer end", {"status": "success"}))]


def test_what_fails_harms_nothing(told, unfit):
    made = LoggerCalls(told)
    made.log_metrics(unfit, unfit)
    made.log_hyperparams(unfit)
    made.after_save_checkpoint(unfit)
    made.finalize(unfit)
    made.save()
    made.log_graph(unfit)


def test_the_modules_experiment_is_the_monitor(told):
    assert LoggerCalls(told).experiment is told
    assert LoggerCalls().experiment is rankside.current()


def test_without_lightning_the_packages_and_the_call_are_named(monkeypatch):
    for name in [name for name in sys.modules if "lightning" in name and not name.startswith("rankside")]:
        if not name.startswith("test"):
            monkeypatch.delitem(sys.modules, name)
    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"lightning.logger\(\): none of lightning.pytorch, pytorch_light"):
        lightning.logger()
