"""Where Megatron's writers go, and what becomes of its lines; Megatron itself is a stand-in of its shape."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace

import pytest

import rankside
from rankside.integrations import megatron

LINE = (
    " [2026-01-02 03:04:05] iteration       12/     100 | consumed samples:         1536 | elapsed time per "
    "iteration (ms): 812.3 | throughput per GPU (TFLOP/s/GPU): 101.7 | global batch size:   128 | lm loss: "
    "9.102345E+00 |"
)
TIMERS = "(min, max) time across ranks (ms):\n    " + "optimizer ".ljust(48, ".") + ": (1.00, 2.00)"


class SummaryWriter:
    """torch's, as far as `Timers.write` looks."""


def module(name: str, **members: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


@pytest.fixture
def trained(monkeypatch):
    """A Megatron: its modules, its printed lines, and `start`, which reads arguments as it does."""
    printed: list[str] = []
    kept = module(
        "megatron.training.global_vars",
        _GLOBAL_ARGS=None,
        _GLOBAL_TENSORBOARD_WRITER=None,
        _GLOBAL_WANDB_WRITER=None,
    )

    def empty(name):
        assert getattr(kept, name) is None, f"{name} is already initialized."

    kept._set_tensorboard_writer = lambda args: empty("_GLOBAL_TENSORBOARD_WRITER")
    kept._set_wandb_writer = lambda args: empty("_GLOBAL_WANDB_WRITER")

    def start(rank=1, **more):
        kept._GLOBAL_ARGS = SimpleNamespace(rank=rank, world_size=2, seq_length=4096, lr=0.1, **more)
        kept._set_tensorboard_writer(kept._GLOBAL_ARGS)
        kept._set_wandb_writer(kept._GLOBAL_ARGS)

    loop = module("megatron.training.training", print_rank_last=printed.append)
    timers = module("megatron.core.timers", SummaryWriter=SummaryWriter, wandb=None)
    for each in (
        module("megatron"),
        module("megatron.training"),
        module("megatron.core"),
        kept,
        loop,
        timers,
    ):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    logger = logging.getLogger("megatron.core.timers")
    before = list(logger.handlers)
    yield SimpleNamespace(kept=kept, loop=loop, timers=timers, printed=printed, start=start, log=logger)
    logger.handlers[:] = before
    logger.setLevel(logging.NOTSET)


def test_before_the_arguments_are_read_the_writers_come_with_them(trained, told):
    assert megatron.install(told)
    assert trained.kept._GLOBAL_TENSORBOARD_WRITER is None
    trained.start()
    assert isinstance(trained.kept._GLOBAL_TENSORBOARD_WRITER, SummaryWriter)
    trained.kept._GLOBAL_TENSORBOARD_WRITER.add_scalar("lm loss", 9.1, 12)
    trained.kept._GLOBAL_WANDB_WRITER.log({"lm loss": 9.1}, 12)
    assert told.points("lm loss") == [(12, 9.1)]
    (params,) = told.of("params")
    assert params["lr"] == 0.1


def test_after_the_arguments_are_read_they_come_at_once_and_a_second_call_changes_nothing(trained, told):
    trained.start()
    assert megatron.install(told)
    writer = trained.kept._GLOBAL_TENSORBOARD_WRITER
    assert megatron.install(told)
    assert trained.kept._GLOBAL_TENSORBOARD_WRITER is writer
    assert len(told.of("params")) == 1


def test_only_the_last_rank_has_writers(trained, told):
    megatron.install(told)
    trained.start(rank=0)
    assert trained.kept._GLOBAL_TENSORBOARD_WRITER is None
    assert trained.kept._GLOBAL_WANDB_WRITER is None


def test_without_tensorboard_megatrons_name_for_its_writer_is_ours(trained, told):
    """`isinstance(writer, None)` would raise in Timers.write."""
    trained.timers.SummaryWriter = None
    trained.start()
    megatron.install(told)
    assert isinstance(trained.kept._GLOBAL_TENSORBOARD_WRITER, trained.timers.SummaryWriter)


def test_a_printed_line_is_a_sample_and_fills_what_no_writer_told(trained, told):
    megatron.install(told)
    trained.start()
    trained.kept._GLOBAL_TENSORBOARD_WRITER.add_scalar("iteration-time", 0.81234, 12)
    trained.loop.print_rank_last(LINE)
    assert trained.printed == [LINE]
    assert told.points("lm loss") == [(12, 9.102345)]
    ((step, sample),) = told.of("throughput")
    assert step == 12
    assert sample == {
        "train_iters": 100,
        "consumed_samples": 1536,
        "elapsed_s": 0.81234,  # the writer's, which is more exact
        "tflops": 101.7,
        "global_batch_size": 128,
        "seq_length": 4096,
    }
    assert told.points("iteration-time") == []  # the sample has it: twice would be drawn twice


def test_every_rank_makes_the_line_and_a_sample_of_it(trained, told):
    megatron.install(told)
    trained.start(rank=0)
    trained.loop.print_rank_last(LINE)
    assert [step for step, _ in told.of("throughput")] == [12]


def test_the_timers_that_follow_belong_to_the_line(trained, told):
    megatron.install(told)
    trained.start(timing_log_level=2)
    trained.log.setLevel(logging.INFO)
    trained.log.info(TIMERS)  # of the start, before any line
    trained.loop.print_rank_last(LINE)
    assert told.of("throughput") == []
    trained.log.info(TIMERS)
    ((step, sample),) = told.of("throughput")
    assert step == 12
    assert sample["timers"] == {"optimizer": 0.002}


def test_timers_that_never_follow_are_waited_for_once(trained, told):
    megatron.install(told)
    trained.start(timing_log_level=2)
    trained.log.setLevel(logging.INFO)
    for iteration in (12, 13, 14):
        trained.loop.print_rank_last(LINE.replace("      12/", f"      {iteration}/"))
    assert [step for step, _ in told.of("throughput")] == [12, 13, 14]


def test_lines_that_are_none_are_printed_and_nothing_else(trained, told, unfit):
    megatron.install(told)
    trained.start()
    for text in ("saving checkpoint", "-" * 80, unfit):
        trained.loop.print_rank_last(text)
    assert trained.printed == ["saving checkpoint", "-" * 80, unfit]
    assert told.of("throughput") == []


def test_without_a_monitor_nothing_is_touched(trained):
    before = trained.loop.print_rank_last
    assert megatron.install(rankside.NoMonitor()) is False
    assert trained.loop.print_rank_last is before
    trained.start()
    assert trained.kept._GLOBAL_TENSORBOARD_WRITER is None


def test_without_megatron_it_says_so(told, monkeypatch, capfd):
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        monkeypatch.delitem(sys.modules, name)
    assert megatron.install(told) is False
    assert "no megatron.training" in capfd.readouterr().err
