"""The training line in the forms that Megatron and Primus have printed it."""

from __future__ import annotations

import math

import pytest

from rankside.integrations import training_log

MEGATRON = (
    " [2026-01-02 03:04:05] iteration       12/     100 | consumed samples:         1536 | elapsed time"
    " per iteration (ms): 812.3 | throughput per GPU (TFLOP/s/GPU): 101.7 | learning rate: 2.400000E-06"
    " | global batch size:   128 | lm loss: 9.102345E+00 | loss scale: 1.0 | grad norm: 2.345 | num "
    "zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
PRIMUS = (
    "[20260102 03:04:05][rank-7/8][INFO ] [-----------trainer.py:2154] :  iteration       12/     100 |"
    " consumed samples:          192 | elapsed time per iteration (ms): 1500.2/1512.9 | rocm mem "
    "usage/free/total/usage_ratio: 99.07GB/92.92GB/191.99GB/51.60% | throughput per GPU (TFLOP/s/GPU): "
    "92.8/90.8 | tokens per GPU (tokens/s/GPU): 5134.5/5026.5 | lm loss: 9.1E+00 |"
)
LATER = (
    " iteration       12/     100 | elapsed time per iteration (ms): 1500.2/1512.9 | hip mem "
    "usage/free/total/usage_ratio: 10.00GiB/182.00GiB/192.00GiB/5.21% | rocm mem "
    "usage/free/total/usage_ratio: 99.07GB/92.92GB/191.99GB/51.60% | rank-3 rocm max mem "
    "usage/usage_ratio: 120.00GB/62.50% | compute per GPU (TFLOP/s/GPU): 92.8 (avg 90.8) | tokens/s/GPU"
    " inst/harmonic mean: 5134.5/5026.5 | lm loss: 9.102345E+00 |"
)


def test_megatrons_line_is_a_sample_and_the_metrics_of_its_writers():
    line = training_log.parse(MEGATRON)
    assert line.iteration == 12
    assert line.sample == {
        "train_iters": 100,
        "consumed_samples": 1536,
        "elapsed_s": pytest.approx(0.8123),
        "tflops": 101.7,
        "global_batch_size": 128,
        "skipped_iterations": 0,
        "nan_iterations": 0,
    }
    assert line.metrics == {
        "learning-rate": 2.4e-6,
        "lm loss": 9.102345,
        "loss-scale": 1.0,
        "grad-norm": 2.345,
        "num-zeros": 0.0,
    }


def test_of_an_instant_and_its_average_the_instant_is_taken():
    line = training_log.parse(PRIMUS)
    assert line.sample["elapsed_s"] == pytest.approx(1.5002)
    assert line.sample["tflops"] == 92.8
    assert line.metrics[training_log.TOKENS] == 5134.5
    assert line.metrics["lm loss"] == 9.1


def test_memory_of_older_and_newer_lines_has_primus_names():
    assert training_log.parse(PRIMUS).metrics["rocm_used_mem(GB)"] == 99.07
    line = training_log.parse(LATER)
    assert line.metrics["hip_used_mem(GB)"] == 10.0
    assert line.metrics["hip_mem_usage(%)"] == 5.21
    assert line.metrics["rocm_total_mem(GB)"] == 191.99
    assert line.metrics["rocm_max_used_mem(GB)"] == 120.0
    assert line.metrics["rocm_max_mem_usage(%)"] == 62.5
    assert line.sample["tflops"] == 92.8
    assert line.metrics[training_log.TOKENS] == 5134.5


def test_the_order_of_the_segments_does_not_matter():
    first, *rest = MEGATRON.rstrip("| ").split("|")
    turned = "|".join([*reversed(rest), first.replace(" [2026-01-02 03:04:05]", "")])
    assert training_log.parse("[rank7]: [2026-01-02 03:04:05] " + turned) == training_log.parse(MEGATRON)


VARIANTS = {
    "no trailing bar": lambda line: line.rstrip().rstrip("|"),
    "two trailing bars": lambda line: line + "|",
    "doubled spaces": lambda line: line.replace(" ", "  "),
    "tabs": lambda line: line.replace(" | ", "\t|\t"),
    "no date": lambda line: line.replace(" [2026-01-02 03:04:05]", ""),
    "microseconds": lambda line: line.replace("03:04:05", "03:04:05.678901"),
    "torchrun's prefix": lambda line: "[rank7]:" + line,
    "colours": lambda line: f"\x1b[32m{line}\x1b[0m",
    "other lines around it": lambda line: f"saving checkpoint\n{line}\ndone",
    "a newline": lambda line: line + "\n",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_how_it_is_written_does_not_matter(variant):
    assert training_log.parse(VARIANTS[variant](MEGATRON)) == training_log.parse(MEGATRON)


def test_a_skipped_iteration_has_no_loss():
    line = training_log.parse(MEGATRON.replace(" lm loss: 9.102345E+00 |", ""))
    assert "lm loss" not in line.metrics
    assert line.metrics["grad-norm"] == 2.345


@pytest.mark.parametrize("text", ["nan", "NAN", "NaN", "inf", "-inf", "INF"])
def test_a_loss_that_is_no_finite_number_is_told_as_it_is(text):
    found = training_log.parse(MEGATRON.replace("9.102345E+00", text)).metrics["lm loss"]
    assert not math.isfinite(found)
    assert math.isnan(found) == (text.lower() == "nan")


def test_other_losses_have_their_own_names():
    line = training_log.parse(
        " iteration 3/ 9 | load_balancing_loss: 1.2E+00 | z_loss: 0.5 | mtp_1 loss: 7.0 |"
    )
    assert line.metrics == {"load_balancing_loss": 1.2, "z_loss": 0.5, "mtp_1 loss": 7.0}


def test_without_a_total_and_with_older_names():
    line = training_log.parse(" iteration 3 | elapsed time per iteration (s): 2.5 | TFLOPs: 30.25 |")
    assert line == (3, {"elapsed_s": 2.5, "tflops": 30.25}, {})


def test_what_is_no_number_is_left_out():
    line = training_log.parse(
        " iteration 3/9 | rocm mem usage/free/total/usage_ratio: unknown (no driver) | ETA: 0:02:12 | "
        "x: 1 of 2 | plain words | lm loss: | grad norm: 1.5 |"
    )
    assert line.metrics == {"grad-norm": 1.5}


OTHERS = [
    "",
    "saving checkpoint at iteration 12 to /x | done",
    " validation loss at iteration 10 | lm loss value: 1.0E+00 | lm loss PPL: 2.7E+00 | ",
    " validation loss at iteration 6 on test set | lm loss value: 3.9E+00 | ",
    "-" * 100,
    "iteration 12/100",
    "(min, max) time across ranks (ms):\n    forward ....: (1.00, 2.00)",
    "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - step: 10  loss:  7.1234",
    "| iteration | a table | of words |",
]


@pytest.mark.parametrize("text", OTHERS)
def test_other_lines_are_none(text):
    assert training_log.parse(text) is None
