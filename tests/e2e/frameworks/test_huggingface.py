"""Hugging Face's Trainer trains a tiny GPT-2 on two CPU ranks, watched by a real agent."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(400)]


def test_its_logs_its_speed_and_its_checkpoints_arrive(train):
    run = train("huggingface", "train_huggingface.py")
    losses = run.scalars("loss")
    assert list(losses) == [2, 4, 6]
    assert losses[6] < losses[2]
    assert {"grad_norm", "learning_rate", "epoch", "train_runtime", "train_loss"} <= run.names()
    assert list(run.scalars("eval_loss")) == [3, 6]
    times = run.scalars("iteration-time")
    assert list(times) == [2, 4, 6]
    assert list(run.scalars("throughput(tflops/sec/gpu)")) == [2, 4, 6]
    assert run.param("max_steps") == "6"
    assert run.param("model.n_embd") == "32"
    assert {"events/checkpoint", "events/artifact", "events/training end"} <= run.texts_shown()


def test_without_a_monitor_it_trains_as_ever(train):
    assert "train_runtime" in train("huggingface", "train_huggingface.py", RANKSIDE_DISABLE="1").output
