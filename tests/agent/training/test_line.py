"""The training line: what people's scripts read out of it."""

from __future__ import annotations

import re

import pytest

from rankside_agent.training.averages import ELAPSED, TFLOPS, TOKENS, Average
from rankside_agent.training.line import training_line
from rankside_agent.training.memory import GB, Memory
from rankside_agent.training.progress import progress_line
from rankside_agent.training.sample import Sample
from rankside_agent.training.titan_line import titan_line

ON = {"log_throughput": True}
AVERAGES = {ELAPSED: Average(1.5002, 1.5129), TFLOPS: Average(92.8, 90.8), TOKENS: Average(5134.5, 5026.5)}


def sample(**changes):
    """The twelfth of a hundred iterations."""
    values = {
        "seq": 7,
        "number": 12,
        "time": 1_767_323_045.0,
        "step": 12,
        "world_size": 8,
        "fields": {"global_batch_size": 128.0, "consumed_samples": 192.0},
        "averages": AVERAGES,
        "metrics": {"lm loss": 9.102345, "learning rate": 2.4e-6, "grad norm": 2.345, "loss scale": 1.0},
        "train_iters": 100,
        **changes,
    }
    return Sample(**values)


def test_it_reads_as_primus_prints_it():
    memory = Memory("rocm", int(99.07 * GB), int(191.99 * GB), int(120 * GB), int(191.99 * GB), "3")
    own = Memory("hip", 10 * GB, 192 * GB)
    assert training_line(sample(memory=memory, own=own), ON) == (
        " iteration       12/     100 |"
        " consumed samples:          192 |"
        " elapsed time per iteration (ms): 1500.2/1512.9 |"
        " hip mem usage/free/total/usage_ratio: 10.00GB/182.00GB/192.00GB/5.21% |"
        " rocm mem usage/free/total/usage_ratio: 99.07GB/92.92GB/191.99GB/51.60% |"
        " rank-3 rocm max mem usage/usage_ratio: 120.00GB/62.50% |"
        " compute per GPU (TFLOP/s/GPU): 92.8 (avg 90.8) |"
        " tokens/s/GPU inst/harmonic mean: 5134.5/5026.5 |"
        " learning rate: 2.400000E-06 |"
        " global batch size:   128 |"
        " lm loss: 9.102345E+00 |"
        " loss scale: 1.0 |"
        " grad norm: 2.345 |"
    )


def test_without_log_throughput_there_is_neither_speed_nor_memory():
    line = training_line(sample(own=Memory("hip", 1, 2), memory=Memory("rocm", 1, 2)), {})
    assert "elapsed time per iteration (ms): 1500.2/1512.9" in line
    assert not re.search("mem usage|TFLOP|tokens", line)


def test_before_averaging_begins_the_values_stand_alone():
    averages = {name: Average(each.value, None) for name, each in AVERAGES.items()}
    line = training_line(sample(averages=averages), ON)
    assert "elapsed time per iteration (ms): 1500.2 |" in line
    assert "throughput per GPU (TFLOP/s/GPU): 92.8 |" in line
    assert "tokens" not in line


@pytest.mark.parametrize(
    ("flag", "metrics", "shown"),
    [
        ("log_params_norm", {"params-norm": 12.5}, "params norm: 12.500"),
        ("log_num_zeros_in_grad", {"num-zeros": 3.0}, "num zeros: 3.0"),
    ],
)
def test_what_costs_megatron_a_pass_is_shown_only_where_it_is_asked_for(flag, metrics, shown):
    assert shown not in training_line(sample(metrics=metrics), {})
    assert f" {shown} |" in training_line(sample(metrics=metrics), {flag: True})


def test_skipped_and_nan_iterations_and_several_losses_are_shown():
    fields = {"skipped_iterations": 2.0, "nan_iterations": 1.0}
    metrics = {"lm loss": float("nan"), "load_balancing_loss": 0.5, "lm loss vs samples": 1.0}
    line = training_line(sample(fields=fields, metrics=metrics), {})
    assert " lm loss: NAN | load_balancing_loss: 5.000000E-01 |" in line
    assert line.endswith(" number of skipped iterations:   2 | number of nan iterations:   1 |")


def test_unknown_things_are_left_out_or_said_and_never_guessed():
    bare = sample(fields={}, averages={}, metrics={}, train_iters=None, step=None)
    assert training_line(bare, ON) == " iteration       12 |"
    memory = Memory("rocm", unknown="two GPUs have this address", fullest=GB, fullest_total=4 * GB)
    assert training_line(sample(memory=memory), ON).count("rocm") == 2
    assert "usage_ratio: unknown (two GPUs have this address) |" in training_line(sample(memory=memory), ON)
    assert "rank-? rocm max mem usage/usage_ratio: 1.00GB/25.00% |" in training_line(
        sample(memory=memory), ON
    )


def test_a_name_with_bars_or_line_breaks_is_one_segment():
    line = training_line(sample(metrics={"a|b\nloss": 1.0}), {})
    assert " a/b loss: 1.000000E+00 |" in line
    assert "\n" not in line


def test_torchtitans_form_with_and_without_colours():
    told = sample(
        step=10,
        fields={"mfu": 30.8},
        metrics={"loss_metrics/global_avg_loss": 7.1234, "grad_norm": 1.2345},
        averages={TOKENS: Average(8123.0, None), TFLOPS: Average(402.11, None)},
        memory=Memory("rocm", int(47.2 * GB), int(192 * GB)),
    )
    plain = titan_line(told, colour=False)
    assert plain == (
        "step: 10  loss:  7.1234  grad_norm:  1.2345  memory: 47.20GiB(24.58%)  tps: 8,123"
        "  tflops: 402.11  mfu: 30.80%"
    )
    coloured = titan_line(told, colour=True)
    assert coloured.startswith("\x1b[31mstep: 10")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


def test_progress_names_the_share_the_time_and_the_time_left():
    told = progress_line(sample(averages={ELAPSED: Average(9.0, 1.5)}), began=1_767_323_027.0)
    assert told.startswith("progress: iteration 12/100 (12.0%) | elapsed 0:00:18 | ETA 0:02:12, at 20")


@pytest.mark.parametrize("unknown", [{"train_iters": None}, {"averages": {}}])
def test_time_left_that_is_not_known_is_said(unknown):
    assert progress_line(sample(**unknown), began=0.0).endswith("| ETA unknown")


def test_a_clock_that_went_back_gives_no_negative_time():
    assert "| elapsed 0:00:00 |" in progress_line(sample(), began=2e9)
