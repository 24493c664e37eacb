"""Megatron's standard scalars that parameters keep out of TensorBoard; every other name always goes there.

Separate because the names are Megatron's, and the flags are Primus': neither is TensorBoard's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rankside.parameters import PARAMETERS

_SAMPLES = r"( vs samples)?"  # Megatron draws each a second time, over the samples consumed

# megatron/training/training.py, training_log; core/timers.py writes each of its timers as "{name}-time"
_TIMERS = (
    "iteration|interval|forward-backward|forward-compute|backward-compute|batch-generator|forward-recv"
    "|forward-send|backward-recv|backward-send|forward-send-forward-recv|forward-send-backward-recv"
    "|backward-send-forward-recv|backward-send-backward-recv|forward-backward-send-forward-backward-recv"
    "|layernorm-grads-all-reduce|embedding-grads-all-reduce|conditional-embedder-grads-all-reduce"
    "|non-tensor-parallel-grads-all-reduce|all-grads-sync|params-all-gather|optimizer"
    "|optimizer-copy-to-main-grad|optimizer-unscale-and-check-inf|optimizer-clip-main-grad"
    "|optimizer-count-zeros|optimizer-inner-step|optimizer-copy-main-to-model-params|save-checkpoint"
    "|load-checkpoint|model-and-optimizer-setup|train/valid/test-data-iterators-setup|eval"
)
GATES: dict[str, re.Pattern[str]] = {
    "log_timers_to_tensorboard": re.compile(rf"({_TIMERS})-time{_SAMPLES}"),
    "log_batch_size_to_tensorboard": re.compile(rf"(batch-size|global[ _-]batch[ _-]size){_SAMPLES}"),
    "log_learning_rate_to_tensorboard": re.compile(rf"(decoupled[ _-])?(learning[ _-]rate|lr){_SAMPLES}"),
    "log_validation_ppl_to_tensorboard": re.compile(rf".*\bvalidation ppl{_SAMPLES}"),
    "log_memory_to_tensorboard": re.compile(r"mem-(max-)?(reserved|allocated)-(bytes|count)"),
    "log_world_size_to_tensorboard": re.compile(rf"world[ _-]size{_SAMPLES}"),
    "log_loss_scale_to_tensorboard": re.compile(rf"loss[ _-]scale{_SAMPLES}"),
}
_PREFIX = re.compile(r"rank-[^/]+/")
_MOST_NAMES = 20_000  # remembered


def gate(config: Mapping[str, Any]) -> Callable[[str], bool]:
    """Whether a scalar of this name goes to TensorBoard, by the run's parameters."""
    return _gate(tuple(flag for flag in GATES if config.get(flag, PARAMETERS[flag].default) is not True))


@lru_cache(maxsize=1 << len(GATES))  # ranks take turns, and each brings its parameters
def _gate(shut: tuple[str, ...]) -> Callable[[str], bool]:
    @lru_cache(maxsize=_MOST_NAMES)
    def passes(name: str) -> bool:
        plain = _PREFIX.sub("", name, count=1)
        return not any(GATES[flag].fullmatch(plain) for flag in shut)

    return passes
