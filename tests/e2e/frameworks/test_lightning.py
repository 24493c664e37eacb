"""Lightning's Trainer trains a tiny model on two CPU ranks, watched by a real agent, under both its names."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(400)]


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_its_metrics_its_hyperparameters_and_its_checkpoints_arrive(train, node, package):
    run = train("lightning", "train_lightning.py", PACKAGE=package)
    losses = run.scalars("train_loss")
    assert list(losses) == [1, 3, 5, 7, 9, 11]
    assert losses[11] < losses[1]
    assert list(run.scalars("val_loss")) == [3, 7, 11]
    assert run.param("rate") == "0.1"
    assert "events/trainer end" in run.texts_shown()
    assert any(text.startswith("checkpoint (best): ") for text in run.texts(0))
    assert list((node.exp / "checkpoints").glob("*.ckpt"))
    assert "trained to step 12" in run.output


def test_without_a_monitor_it_trains_as_ever(train):
    assert "trained to step 12" in train("lightning", "train_lightning.py", RANKSIDE_DISABLE="1").output
