"""Which of Megatron's standard scalars the parameters let into TensorBoard."""

from __future__ import annotations

import pytest

from rankside.parameters import PARAMETERS
from rankside_agent.sinks.standard_scalars import GATES, gate

STANDARD = {
    "log_timers_to_tensorboard": [
        "iteration-time",
        "forward-backward-time",
        "optimizer-time vs samples",
    ],
    "log_batch_size_to_tensorboard": ["batch-size", "batch-size vs samples", "global batch size"],
    "log_learning_rate_to_tensorboard": ["learning-rate", "learning rate", "decoupled-learning-rate", "lr"],
    "log_validation_ppl_to_tensorboard": ["lm loss validation ppl", "lm loss validation ppl vs samples"],
    "log_memory_to_tensorboard": ["mem-reserved-bytes", "mem-max-allocated-bytes", "mem-allocated-count"],
    "log_world_size_to_tensorboard": ["world-size", "world-size vs samples"],
    "log_loss_scale_to_tensorboard": ["loss-scale", "loss scale"],
}
NAMES = [(flag, name) for flag, names in STANDARD.items() for name in names]


def test_every_flag_of_its_kind_has_a_gate():
    flags = {name for name in PARAMETERS if name.startswith("log_") and name.endswith("_to_tensorboard")}
    assert set(GATES) == flags == set(STANDARD)


@pytest.mark.parametrize(("flag", "name"), NAMES)
def test_a_flag_opens_and_shuts_its_scalars_and_no_others(flag, name):
    assert gate({flag: True})(name)
    assert not gate({flag: False})(name)
    assert gate({other: other == flag for other in GATES})(name)


@pytest.mark.parametrize(("flag", "name"), NAMES)
def test_without_a_flag_the_default_holds(flag, name):
    assert gate({})(name) is PARAMETERS[flag].default


@pytest.mark.parametrize(
    "name",
    [
        "lm loss",
        "grad-norm",
        "throughput(tps)",
        "wall-time",
        "my-data-time",
        "memory/max_active(GiB)",
        "lr/AdamW",
    ],
)
def test_every_other_scalar_always_goes(name):
    assert gate(dict.fromkeys(GATES, False))(name)


def test_the_gate_of_a_name_holds_for_every_rank():
    assert not gate({})("rank-3/iteration-time")
    assert gate({})("rank-3/loss")
