"""TorchTitan's published package trains its debug model on two CPU ranks, watched by a real agent."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(400)]
# What TorchTitan 0.3.0 gives to a logger in every step
NAMES = {
    *(
        "loss_metrics/global_avg_loss",
        "loss_metrics/global_max_loss",
        "grad_norm",
        "throughput(tps)",
        "tflops",
    ),
    *("time_metrics/end_to_end(s)", "time_metrics/data_loading(s)", "time_metrics/data_loading(%)"),
    *("memory/max_active(GiB)", "memory/max_active(%)", "memory/max_reserved(GiB)", "memory/max_reserved(%)"),
    *("memory/num_alloc_retries", "memory/num_ooms", "mfu(%)", "n_tokens_seen"),
}


def test_its_metrics_its_lines_and_its_speed_arrive(train):
    run = train("torchtitan", "train_torchtitan.py")
    assert run.names() >= NAMES
    losses = run.scalars("loss_metrics/global_avg_loss")
    assert list(losses) == [1, 2, 3, 4]
    assert losses[4] < losses[1]
    assert list(run.scalars("iteration-time")) == [1, 2, 3, 4]
    assert list(run.scalars("token_throughput(tokens/sec/gpu)")) == [1, 2, 3, 4]
    assert list(run.scalars("global_valid_tokens")) == [1, 2, 3, 4]  # of its structured records
    for rank in (0, 1):
        texts = run.texts(rank)
        assert any("Trainer is initialized" in text for text in texts)
        assert any("torchtitan version" in text for text in texts)  # the first line after its init_logger
        assert any("Training completed" in text for text in texts)


def test_a_config_that_is_watched_needs_nothing_else(train):
    run = train("torchtitan", "train_torchtitan.py", STEPS="2", HOW="watched")
    assert list(run.scalars("loss_metrics/global_avg_loss")) == [1, 2]
    assert any("Training completed" in text for text in run.texts(0))


def test_without_a_monitor_it_trains_as_ever(train):
    run = train("torchtitan", "train_torchtitan.py", STEPS="2", RANKSIDE_DISABLE="1")
    assert "Training completed" in run.output
