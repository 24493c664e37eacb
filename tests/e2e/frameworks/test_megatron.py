"""megatron-core's published `megatron.training` pretrains a tiny GPT on two gloo ranks, watched."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(400)]


def test_its_writers_its_training_line_and_its_timers_arrive(train):
    run = train("megatron", "train_megatron.py")
    losses = run.scalars("lm loss")
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    assert losses[6] < losses[1]
    assert {
        "learning-rate",
        "grad-norm",
        "loss-scale",
        "lm loss validation",
        "samples vs steps",
    } <= run.names()
    assert not [name for name in run.names() if name.endswith(" vs samples")]
    assert run.scalars("samples vs steps") == {step: 4.0 * step for step in range(1, 7)}
    assert {2, 4, 6} <= set(
        run.scalars("iteration-time")
    )  # Megatron's own writer gets it from iteration 2 on
    assert list(run.scalars("forward-compute-time")) == [1, 2, 4, 6]  # only a SummaryWriter gets those
    assert list(run.scalars("throughput(tflops/sec/gpu)")) == [1, 2, 4, 6]
    assert list(run.scalars("token_throughput(tokens/sec/gpu)")) == [1, 2, 4, 6]
    texts = run.texts(1)
    lines = [text for text in texts if text.lstrip().startswith("iteration ")]
    assert [line.split()[1].rstrip("/") for line in lines] == ["2", "4", "6"]
    assert all("lm loss: " in line and "consumed samples: " in line for line in lines)
    assert any("(min, max) time across ranks (ms):" in text for text in texts)
    assert run.param("num_layers") == "2"


def test_megatrons_own_writers_go_on_getting_everything(train, node):
    run = train("megatron", "train_megatron.py", WORDS=f"--tensorboard-dir {node.base / 'own'}")
    theirs = run.read(node.base / "own")
    assert list(theirs["lm loss"]) == list(run.scalars("lm loss"))
    assert "lm loss vs samples" in theirs
    assert "forward-compute-time" in theirs


def test_without_a_monitor_it_trains_as_ever(train):
    run = train("megatron", "train_megatron.py", RANKSIDE_DISABLE="1")
    assert "iteration        6/       6" in run.output
