"""The training line, as Primus extends Megatron's.

Separate because scripts of many people read it: segments by ` | `, names and formats as they are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rankside_agent.training.averages import ELAPSED, TFLOPS, TOKENS, Average
from rankside_agent.training.sample import Sample, whole

_NO_LOSS = re.compile(r"scale|vs samples|ppl")
_MOST_LOSSES = 20  # of a model with many heads; the trackers have all


class _Segment(NamedTuple):
    """One value the rank reported: its name in the line, its format, and under which names it may come."""

    name: str
    form: Callable[[float], str]
    names: tuple[str, ...]
    flag: str = ""  # the parameter that shows it


def _exponent(value: float) -> str:
    return f"{value:.6E}"


def _count(width: int) -> Callable[[float], str]:
    return lambda value: f"{whole(value) if whole(value) is not None else value:>{width}}"


_BEFORE = (
    _Segment("learning rate", _exponent, ("learning rate", "learning-rate", "learning_rate", "lr")),
    _Segment("decoupled learning rate", _exponent, ("decoupled learning rate", "decoupled-learning-rate")),
    _Segment("global batch size", _count(5), ("global_batch_size", "batch-size", "global batch size")),
)
_AFTER = (
    _Segment("loss scale", lambda value: f"{value:.1f}", ("loss scale", "loss-scale", "loss_scale")),
    _Segment("grad norm", lambda value: f"{value:.3f}", ("grad norm", "grad-norm", "grad_norm")),
    _Segment(
        "num zeros",
        lambda value: f"{value:.1f}",
        ("num zeros", "num-zeros", "num_zeros", "num_zeros_in_grad"),
        "log_num_zeros_in_grad",
    ),
    _Segment(
        "params norm",
        lambda value: f"{value:.3f}",
        ("params norm", "params-norm", "params_norm"),
        "log_params_norm",
    ),
    _Segment("number of skipped iterations", _count(3), ("skipped_iterations", "skipped iterations")),
    _Segment("number of nan iterations", _count(3), ("nan_iterations", "nan iterations")),
)


def training_line(sample: Sample, config: Mapping[str, Any]) -> str:
    """` iteration       12/     100 | elapsed time per iteration (ms): 1500.2/1512.9 | ... |`."""
    segments = [
        *_counts(sample),
        *_elapsed(sample.averages.get(ELAPSED)),
        *(_throughput(sample) if config.get("log_throughput") is True else ()),
        *_reported(sample, _BEFORE, config),
        *_losses(sample),
        *_reported(sample, _AFTER, config),
    ]
    return "".join(f" {segment} |" for segment in segments)


def _counts(sample: Sample) -> Iterator[str]:
    of = f"/{sample.train_iters:8d}" if sample.train_iters else ""
    yield f"iteration {sample.iteration:8d}{of}"
    consumed = whole(sample.plain("consumed_samples", "consumed samples", "consumed-samples"))
    if consumed is not None:
        yield f"consumed samples: {consumed:12d}"


def _elapsed(elapsed: Average | None) -> Iterator[str]:
    if elapsed is not None:
        mean = "" if elapsed.mean is None else f"/{elapsed.mean * 1000.0:.1f}"
        yield f"elapsed time per iteration (ms): {elapsed.value * 1000.0:.1f}{mean}"


def _throughput(sample: Sample) -> Iterator[str]:
    for memory in (sample.own, sample.memory):
        if memory is not None:
            yield from memory.segments()
    flops, tokens = sample.averages.get(TFLOPS), sample.averages.get(TOKENS)
    if flops is not None and flops.mean is not None:
        yield f"compute per GPU (TFLOP/s/GPU): {flops.value:.1f} (avg {flops.mean:.1f})"
    elif flops is not None:
        yield f"throughput per GPU (TFLOP/s/GPU): {flops.value:.1f}"  # as Primus leaves it before averaging
    if tokens is not None and tokens.mean is not None:
        yield f"tokens/s/GPU inst/harmonic mean: {tokens.value:.1f}/{tokens.mean:.1f}"


def _reported(sample: Sample, segments: tuple[_Segment, ...], config: Mapping[str, Any]) -> Iterator[str]:
    for segment in segments:
        value = sample.plain(*segment.names)
        if value is not None and (not segment.flag or config.get(segment.flag) is True):
            yield f"{segment.name}: {segment.form(value)}"


def _losses(sample: Sample) -> Iterator[str]:
    names = [name for name in sample.metrics if "loss" in name.lower() and not _NO_LOSS.search(name)]
    for name in names[:_MOST_LOSSES]:
        yield f"{_one_line(name)}: {_exponent(sample.metrics[name])}"


def _one_line(name: str) -> str:
    return " ".join(name.replace("|", "/").split())[:200]
