"""The training line in TorchTitan's form, for trainings that are configured as TorchTitan's are.

Separate because its readers look for other names than Megatron's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rankside_agent.training.averages import TFLOPS, TOKENS
from rankside_agent.training.sample import Sample

_RED, _GREEN, _YELLOW, _CYAN, _BLUE, _MAGENTA, _OFF = (
    f"\x1b[{code}m" for code in (31, 32, 33, 36, 34, 35, 39)
)


class _Field(NamedTuple):
    name: str
    form: str
    names: tuple[str, ...]
    colour: str


_FIELDS = (
    _Field("loss", "{:7.4f}", ("loss_metrics/global_avg_loss", "loss", "lm loss"), _GREEN),
    _Field("grad_norm", "{:7.4f}", ("grad_norm", "grad norm", "grad-norm"), _YELLOW),
)


def titan_line(sample: Sample, colour: bool) -> str:
    """`step: 10  loss:  7.1234  grad_norm:  1.2345  memory: 47.20GiB(24.58%)  tps: 8,123  tflops: 402.11`."""
    parts = [(f"step: {sample.iteration:2}", _RED), *_parts(sample)]
    if not colour:
        return "  ".join(text for text, _ in parts)
    return "  ".join(f"{paint}{text}" for text, paint in parts) + _OFF


def _parts(sample: Sample) -> Iterator[tuple[str, str]]:
    for field in _FIELDS:
        value = sample.plain(*field.names)
        if value is not None:
            yield f"{field.name}: {field.form.format(value)}", field.colour
    memory = next((each for each in (sample.memory, sample.own) if each and each.used is not None), None)
    if memory is not None and memory.used is not None:
        yield f"memory: {memory.used / 1024**3:5.2f}GiB({memory.ratio:.2f}%)", _CYAN
    for name, average, reported, form in _SPEEDS:
        known = sample.averages.get(average)
        value = known.value if known else sample.plain(*reported)
        if value is not None:
            yield f"{name}: {form.format(value)}", _BLUE
    mfu = sample.plain("mfu", "mfu(%)")
    if mfu is not None:
        yield f"mfu: {mfu:.2f}%", _MAGENTA


_SPEEDS = (
    ("tps", TOKENS, ("tps", "throughput(tps)"), "{:,.0f}"),
    ("tflops", TFLOPS, ("tflops",), "{:,.2f}"),
)
