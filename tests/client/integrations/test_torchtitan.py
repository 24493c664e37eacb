"""Hooks into TorchTitan, of the published version's shape and of the one that Primus pins."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest

import rankside
from rankside.integrations import care, torchtitan
from rankside.integrations.torchtitan_logger import Logger, Shape, Spans, joined

METRICS = {
    "loss_metrics/global_avg_loss": 7.1,
    "throughput(tps)": 8123.0,
    "tflops": 402.0,
    "time_metrics/end_to_end(s)": 0.5,
}
TRAINING = {"seq_len": 4096, "steps": 1000, "global_batch_size": -1, "local_batch_size": 2}
CONFIG = {"training": TRAINING, "metrics": {"log_freq": 10}}
DIMS = SimpleNamespace(dp_replicate=2, dp_shard=4)


class BaseLogger:
    """TorchTitan's logger that does nothing."""

    def log(self, metrics, step):
        pass

    def close(self):
        pass


class LoggerContainer(BaseLogger):
    """TorchTitan's container."""

    def __init__(self):
        self.all = []

    def add_logger(self, logger):
        self.all.append(logger)

    def log(self, metrics, step):
        for each in self.all:
            each.log(metrics, step)


class MetricsProcessor:
    """The published version's: a config of its own builds it."""

    @dataclass(kw_only=True)
    class Config:
        log_freq: int = 10
        enable_wandb: bool = False

        def build(self, **given):
            return self._owner(self, **given)

    def __init_subclass__(cls) -> None:
        cls.Config._owner = cls

    def __init__(self, config, **given):
        self.config = config
        self.logger = self._build_metric_logger(config=config, **given)

    def _build_metric_logger(self, *, config, **given):
        return LoggerContainer() if config.enable_wandb else BaseLogger()


MetricsProcessor.Config._owner = MetricsProcessor


@pytest.fixture
def titan(monkeypatch):
    """A torchtitan of which each test fills `train` as its version has it."""
    monkeypatch.delenv("TITAN_STRUCT_LOGGER_HANDLERS", raising=False)
    names = ("torchtitan", "torchtitan.train", "torchtitan.components", "torchtitan.components.metrics")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["torchtitan.components.metrics"].LoggerContainer = LoggerContainer
    train = sys.modules["torchtitan.train"]
    train.init_logger = logging.getLogger().handlers.clear
    yield train
    os.environ.pop("TITAN_STRUCT_LOGGER_HANDLERS", None)


@pytest.fixture(autouse=True)
def _root():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def job(**metrics):
    return SimpleNamespace(metrics=MetricsProcessor.Config(**metrics), to_dict=lambda: CONFIG)


def test_metrics_keep_their_names_and_bring_a_sample(told):
    Logger(told, Shape.of(CONFIG, DIMS)).log(METRICS, 20)
    assert told.of("metrics") == [(20, METRICS)]
    assert told.of("throughput") == [
        (
            20,
            {
                "elapsed_s": 0.5,
                "tflops": 402.0,
                "global_batch_size": 16,
                "seq_length": 4096,
                "train_iters": 1000,
            },
        )
    ]


def test_a_tag_stands_before_the_names_as_in_its_own_loggers(told):
    Logger(told, tag="ft").log(METRICS, 20)
    assert told.points("ft/tflops") == [(20, 402.0)]


def test_validation_brings_no_sample(told):
    Logger(told).log({"validation_metrics/loss": 7.0}, 20)
    assert told.points("validation_metrics/loss") == [(20, 7.0)]
    assert told.of("throughput") == []


def test_the_first_steps_time_is_set_right(told):
    """TorchTitan divides the one step before its first log by log_freq."""
    Logger(told, Shape.of(CONFIG, DIMS)).log(METRICS, 1)
    ((_, sample),) = told.of("throughput")
    assert sample["elapsed_s"] == 5.0


@pytest.mark.parametrize("config", [None, {}, {"training": None}, {"training": {"global_batch_size": "x"}}])
def test_what_a_configuration_does_not_tell_is_left_out(told, config):
    Logger(told, Shape.of(config)).log(METRICS, 20)
    assert told.of("throughput") == [(20, {"elapsed_s": 0.5, "tflops": 402.0})]


def test_metrics_that_fail_harm_nothing(told, unfit):
    made = Logger(told)
    made.log(unfit, 1)
    made.log({"time_metrics/end_to_end(s)": unfit}, 1)
    made.close()


def test_a_container_gets_one_more_and_any_other_logger_company(told):
    ours, container, other = Logger(told), LoggerContainer(), BaseLogger()
    assert joined(container, ours, LoggerContainer) is container
    assert container.all == [ours]
    assert joined(other, ours, LoggerContainer).all == [other, ours]


@pytest.mark.parametrize("theirs", [False, True], ids=["no logger of its own", "a container of its own"])
def test_a_watched_config_builds_a_processor_with_our_logger(titan, told, theirs):
    config = torchtitan.watched(job(enable_wandb=theirs, log_freq=5), told)
    assert isinstance(config.metrics, MetricsProcessor.Config)
    assert config.metrics.log_freq == 5
    processor = config.metrics.build(parallel_dims=DIMS, config_dict=CONFIG, tag=None)
    assert isinstance(processor, MetricsProcessor)
    processor.logger.log(METRICS, 20)
    assert told.points("tflops") == [(20, 402.0)]
    assert told.of("params") == [CONFIG]


def test_a_config_that_is_watched_twice_has_one_logger(titan, told):
    config = torchtitan.watched(torchtitan.watched(job(), told), told)
    config.metrics.build(parallel_dims=DIMS, config_dict=CONFIG).logger.log(METRICS, 20)
    assert len(told.points("tflops")) == 1


def test_a_config_of_another_form_stays_as_it_is(told):
    config = SimpleNamespace(metrics=SimpleNamespace(log_freq=1))
    assert torchtitan.watched(config, told) is config
    assert vars(config.metrics) == {"log_freq": 1}


def test_install_watches_what_the_config_manager_reads(titan, told):
    class ConfigManager:
        def parse_args(self, args=None):
            return job()

    titan.ConfigManager = ConfigManager
    assert torchtitan.install(told)
    assert torchtitan.install(told)
    made = titan.ConfigManager()
    assert isinstance(made, ConfigManager)
    made.parse_args().metrics.build(parallel_dims=DIMS, config_dict=CONFIG).logger.log(METRICS, 20)
    assert len(told.points("tflops")) == 1


def test_install_wraps_the_builder_of_the_version_that_primus_pins(titan, told):
    def build_metrics_processor(job_config, parallel_dims, model_args, tag=None):
        return SimpleNamespace(logger=BaseLogger(), model_args=model_args)

    titan.build_metrics_processor = build_metrics_processor
    assert torchtitan.install(told)
    processor = titan.build_metrics_processor(job(), DIMS, "args")
    assert processor.model_args == "args"
    processor.logger.log(METRICS, 20)
    assert told.points("tflops") == [(20, 402.0)]
    assert told.of("params") == [CONFIG]


def test_what_their_builder_raises_is_theirs(told):
    def broken(job_config, parallel_dims):
        raise LookupError("no such model")

    with pytest.raises(LookupError):
        torchtitan.wrapped(broken, told)(None, None)


def test_console_lines_are_captured_although_the_root_logger_is_emptied(titan, start, texts, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    mon = start()
    torchtitan.install(mon)
    titan.init_logger()
    logging.getLogger().handlers.clear()
    titan.init_logger()
    logging.getLogger().warning("step: 1")
    assert texts(mon) == ["step: 1"]
    mon.close()


def test_its_structured_records_are_metrics_and_no_lines(start, texts):
    mon, log = start(), logging.getLogger("t.structured")
    mon.capture_logging("DEBUG")
    log.propagate = False
    torchtitan.attach(log, 0, "trainer", "out")
    log.warning("a span of %d ms", 3)
    log.handlers, log.propagate = [], True
    assert texts(mon) == []
    mon.close()


def test_its_own_structured_handler_stays_beside_ours(titan, told, monkeypatch):
    torchtitan.install(told)
    torchtitan.install(told)
    theirs, ours = os.environ["TITAN_STRUCT_LOGGER_HANDLERS"].split(",")
    assert theirs.endswith(".register_jsonl_handler")
    assert ours == "rankside.integrations.torchtitan.attach"


def record(kind: str, value: object = "None", **more: object) -> logging.LogRecord:
    made = logging.LogRecord("torchtitan.structured_logger", 20, "f", 1, "text", None, None)
    vars(made).update(log_type_name=kind, value=value, step=3, **more)
    return made


def test_structured_scalars_are_metrics(told):
    spans = Spans(told)
    spans.handle(record("metric_value", 17, event_name="local_valid_tokens"))
    spans.handle(record("training_start"))
    assert told.of("metrics") == [(3, {"local_valid_tokens": 17})]


def test_spans_are_timers_in_seconds_a_step(told):
    spans, logger = Spans(told), Logger(told)
    for kind, value in (("fwd_bwd_start", "None"), ("fwd_bwd_end", 300.0)):
        spans.handle(record(kind, value))
    logger.log(METRICS, 1)
    for _ in range(9):  # steps 1 to 9 end, 2 to 10 compute
        spans.handle(record("step_end", 500.0))
        spans.handle(record("fwd_bwd_end", 300.0))
    logger.log(METRICS, 10)
    first, second = (sample["timers"] for _, sample in told.of("throughput"))
    assert first == {"fwd_bwd": 0.3}
    assert second == {"fwd_bwd": pytest.approx(0.3)}


def test_without_a_monitor_nothing_is_touched(titan):
    before, config = titan.init_logger, job()
    theirs = config.metrics
    assert torchtitan.install(rankside.NoMonitor()) is False
    assert torchtitan.watched(config, rankside.NoMonitor()).metrics is theirs
    assert titan.init_logger is before
    assert "TITAN_STRUCT_LOGGER_HANDLERS" not in os.environ
    processor = SimpleNamespace(logger=BaseLogger())
    built = torchtitan.wrapped(lambda *_: processor, rankside.NoMonitor())(None, None)
    assert type(built.logger) is BaseLogger


def test_a_logger_for_the_handler_hook_needs_a_monitor():
    logger = logging.getLogger("structured stand-in")
    torchtitan.attach(structured_logger=logger, rank=0, source="training", output_dir="/x")
    assert logger.handlers == []


def test_without_torchtitan_the_package_and_the_call_are_named(told, monkeypatch, capfd):
    monkeypatch.setattr(care, "_said", set())
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchtitan"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchtitan", None)
    assert torchtitan.install(told) is False
    err = capfd.readouterr().err
    assert "torchtitan.install(): the package torchtitan cannot be imported" in err
    assert "_install" not in err
