"""Primus' helpers, imported by name long before, speak through rankside; rebuilt here by their shapes."""

from __future__ import annotations

import logging
import sys
import textwrap
from types import SimpleNamespace

import pytest

import rankside
from rankside import ConfigError
from rankside.integrations import primus

LOGGER = """
import inspect
_logger = None
def info_with_caller(message, module_name, function_name, line): _logger.info(message)
def error_with_caller(message, module_name, function_name, line): _logger.warning(message)
def info(message, *args, **kwargs): _logger.info(message, *args, **kwargs)
def error(message, *args, **kwargs): _logger.error(message, *args, **kwargs)
"""
RANK_INFO = """
def update_rank_info(rank, world_size):
    global _logger
    _logger = _logger.bind(rank=rank, world_size=world_size)
"""
HELPERS = """
from primus.core.utils import logger
_rank, _world_size = 0, 1
def set_logging_rank(rank, world_size):
    global _rank, _world_size
    _rank, _world_size = rank, world_size
def log_rank_0(msg, *args, **kwargs): raise AssertionError("not replaced")
def log_rank_last(msg, *args, **kwargs): raise AssertionError("not replaced")
def log_rank_all(msg, *args, **kwargs): raise AssertionError("not replaced")
def error_rank_0(msg, *args, **kwargs): raise AssertionError("not replaced")
def log_kv_rank_0(key, value): raise AssertionError("not replaced")
"""
RUNTIME = """
def init_worker_logger(primus_config, module_name="primus", module_config=None): raise AssertionError
def update_module_name(new_module_name, new_module_config=None): raise AssertionError
"""
PATCH = """
from primus.core.utils.distributed_logging import error_rank_0, log_kv_rank_0, log_rank_0
from primus.core.utils.distributed_logging import log_rank_all, log_rank_last
from primus.core.utils import logger
def speak():
    log_rank_0("from rank {0}, as it is", 1)
    log_rank_last("from the last")
    log_rank_all("from all")
    error_rank_0("an error")
    log_kv_rank_0("world size", 2)
    logger.info("formatted {}", 3)
    logger.error("not formatted {'a': 1}", 3)
"""


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """A package of Primus' shape; gives the module of somebody who imported its helpers early."""
    for name, text in {
        "primus/__init__.py": "",
        "primus/core/__init__.py": "",
        "primus/core/utils/__init__.py": "",
        "primus/core/runtime/__init__.py": "from .logging import init_worker_logger, update_module_name",
        "primus/core/runtime/logging.py": RUNTIME,
        "primus/core/utils/logger.py": LOGGER + RANK_INFO,
        "primus/core/utils/distributed_logging.py": HELPERS,
        "a_patch.py": PATCH,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    import a_patch

    yield a_patch
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("primus", "a_patch"):
            del sys.modules[name]


def config(tmp_path):
    meta = {"work_group": "team", "user_name": "ann", "exp_name": "llama"}
    return SimpleNamespace(exp_root_path=str(tmp_path / "exp"), exp_meta_info=meta)


@pytest.fixture
def quiet(here, monkeypatch):
    """A rank of two, without an agent."""
    monkeypatch.setenv("RANKSIDE_ENDPOINT", f"ipc://{here}/a.sock")
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)


def test_helpers_speak_with_the_place_of_their_caller(framework, quiet, tmp_path, records):
    assert primus.install()
    from primus.core.runtime import init_worker_logger

    params = {
        "stderr_sink_level": "ERROR",
        "log_interval": None,
        "metrics": {"log_freq": 3},
        "train_iters": 5,
    }
    mon = init_worker_logger(config(tmp_path), "pretrain", SimpleNamespace(params=params))
    assert mon.exp_root == str(tmp_path / "exp")
    assert mon.config["metrics.log_freq"] == 3
    assert mon.config["log_interval"] == 100
    framework.speak()
    found = [(fields[2], fields[3], fields[5]) for fields in records(1, mon)]
    assert found == [
        ("INFO", "a_patch", "from the last"),
        ("INFO", "a_patch", "from all"),
        ("INFO", "a_patch", "formatted 3"),
        ("ERROR", "a_patch", "not formatted {'a': 1} [unformatted, arguments: 3]"),
    ]


def test_the_module_changes_with_its_levels(framework, quiet, tmp_path, records):
    primus.install()
    from primus.core.runtime.logging import init_worker_logger, update_module_name

    mon = init_worker_logger(config(tmp_path), "pretrain")
    update_module_name("sft", SimpleNamespace(params={"file_sink_level": "WARNING"}))
    assert records(7, mon)[-1][1:] == ["sft", 30]
    assert rankside.current() is mon


def test_a_bad_parameter_is_refused_as_anywhere(quiet, tmp_path):
    with pytest.raises(ConfigError, match="log_interval"):
        primus.init_worker_logger(config(tmp_path), "pretrain", SimpleNamespace(params={"log_interval": "x"}))


TRACE = SimpleNamespace(params={"stderr_sink_level": "TRACE"})


def trace():
    logging.getLogger("a.lib").log(5, "of logging")
    pytest.importorskip("loguru").logger.trace("of loguru")


@pytest.mark.parametrize("level", ["stderr_sink_level", "file_sink_level", "sink_level"])
def test_trace_is_taken_where_a_sink_asks_for_it_and_not_else(framework, quiet, tmp_path, records, level):
    mon = primus.init_worker_logger(
        config(tmp_path), "pretrain", SimpleNamespace(params={level: "TRACE", "lr": 1})
    )
    trace()
    found = [(fields[1], fields[5]) for fields in records(1, mon)]
    assert found == [(5, "of logging"), (5, "of loguru")]


def test_a_module_that_asks_for_trace_gets_it(framework, quiet, tmp_path, records):
    mon = primus.init_worker_logger(config(tmp_path), "pretrain")
    trace()
    assert records(1, mon) == []
    primus.update_module_name("sft", TRACE)
    trace()
    found = [fields[5] for fields in records(1, mon)]
    assert found == ["of logging", "of loguru"]


def test_a_rank_that_primus_learns_later_changes_nothing_and_is_told_of(framework, quiet, tmp_path, records):
    mon = primus.init_worker_logger(config(tmp_path), "pretrain")
    from primus.core.utils.logger import update_rank_info

    update_rank_info(1, 2)
    update_rank_info(rank=1, world_size=2)
    assert records(1, mon) == []
    for _ in range(2):
        update_rank_info(0, 4)
    framework.log_rank_all("from all")
    found = [(fields[2], fields[5], *fields[6:]) for fields in records(1, mon)]
    (told, said) = found
    assert told[0] == "WARNING"
    assert "rank, world size (0, 4): files and trackers stay with rank 1 of 2 of its start" in told[1]
    assert said == ("INFO", "from all")


def test_a_second_set_up_is_the_same_monitor_and_another_module(framework, quiet, tmp_path, records):
    mon = primus.init_worker_logger(config(tmp_path), "pretrain")
    again = primus.init_worker_logger(config(tmp_path), "sft")
    framework.log_rank_all("once")
    assert again is mon
    assert [fields[1] for fields in records(7, mon)] == ["sft"]
    assert [fields[5] for fields in records(1, mon)] == ["once"]


def test_disabled_primus_keeps_its_own_logger(framework, monkeypatch):
    monkeypatch.setenv("RANKSIDE_DISABLE", "1")
    from primus.core import runtime

    before = runtime.init_worker_logger
    assert not primus.install()
    assert runtime.init_worker_logger is before


def test_without_primus_nothing_is_installed():
    assert not primus.install()
