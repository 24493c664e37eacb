"""Read Megatron's training line, and Primus's longer one, back into numbers.

Separate because it is text and nothing else: segments between bars, in any order, each `name: value`. What is
known of their names stands in three tables, and what is not known is a metric under its own name.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple


class TrainingLine(NamedTuple):
    """One line's numbers: `sample` for `Monitor.throughput`, `metrics` for `Monitor.metrics`."""

    iteration: int
    sample: dict[str, float]
    metrics: dict[str, float]


# Segments that belong to the throughput sample, by field, with what makes seconds of milliseconds
_SAMPLE = {
    "consumed samples": ("consumed_samples", 1.0),
    "elapsed time per iteration (ms)": ("elapsed_s", 0.001),
    "elapsed time per iteration (s)": ("elapsed_s", 1.0),
    "global batch size": ("global_batch_size", 1.0),
    "number of skipped iterations": ("skipped_iterations", 1.0),
    "number of nan iterations": ("nan_iterations", 1.0),
}
# The line's names, and those under which Megatron gives the same values to its writers
_WRITER_NAMES = {
    "learning rate": "learning-rate",
    "decoupled learning rate": "decoupled-learning-rate",
    "loss scale": "loss-scale",
    "grad norm": "grad-norm",
    "num zeros": "num-zeros",
    "params norm": "params-norm",
    "skipped samples": "skipped-train-samples",
    "energy per GPU (J/iter/GPU)": "iter-energy/gpu",
    "power per GPU (W/GPU)": "power/gpu",
}
TOKENS = "token_throughput(tokens/sec/gpu)"  # Primus's name; the agent works it out itself where it can
# Of `used/free/total/ratio`, and of the fullest GPU's `used/ratio`; GB and GiB are both 1024**3 bytes there
_MEMORY = ("used_mem(GB)", "free_mem(GB)", "total_mem(GB)", "mem_usage(%)")
_FULLEST = ("max_used_mem(GB)", "max_mem_usage(%)")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"(?:\s*\[[^\]]*\]\s*:?)+")  # dates, ranks, levels, places: all in brackets
_ITERATION = re.compile(r"iteration\s+(\d{1,18})\s*(?:/\s*(\d{1,18}))?")
_FIGURE = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|nan|inf(?:inity)?)"
# `instant`, `instant/average`, `instant (avg average)`, `share%`
_VALUE = re.compile(rf"({_FIGURE})\s*(?:/\s*{_FIGURE}|\([^)]*\)|%)?", re.IGNORECASE)
_AMOUNT = re.compile(rf"({_FIGURE})\s*(?:GiB|GB|%)?", re.IGNORECASE)
_USAGE = re.compile(r"(?:rank-\S+ )?(hip|rocm|cuda|nvidia) (max )?mem usage(?:/[a-z_]+)+")


def parse(text: str) -> TrainingLine | None:
    """The first training line in a text, or None where there is none."""
    if "iteration" not in text or "|" not in text:  # every printed line comes by here
        return None
    return next((found for line in text.splitlines() if (found := _parse_line(line))), None)


def _parse_line(line: str) -> TrainingLine | None:
    segments = _COLOUR.sub("", line).split("|")
    prefix = _PREFIX.match(segments[0])
    if prefix:
        segments[0] = segments[0][prefix.end() :]
    segments = [" ".join(segment.split()) for segment in segments]
    counted = next((found for segment in segments if (found := _ITERATION.fullmatch(segment))), None)
    if counted is None or len(segments) < 2:
        return None
    line_found = TrainingLine(int(counted[1]), {}, {})
    if counted[2]:
        line_found.sample["train_iters"] = int(counted[2])
    for segment in segments:
        name, colon, value = segment.partition(":")
        if colon:
            _take(line_found, name.strip(), value.strip())
    return line_found


def _take(line: TrainingLine, name: str, value: str) -> None:
    usage = _USAGE.fullmatch(name)
    number = _number(_VALUE, value)
    if usage:
        line.metrics.update(_memory(usage[1], _FULLEST if usage[2] else _MEMORY, value))
    elif number is None:
        return
    elif name in _SAMPLE:
        field, factor = _SAMPLE[name]
        if math.isfinite(number):
            line.sample[field] = number * factor
    elif "tflop" in name.lower():  # throughput or compute, per GPU; "TFLOPs" alone in older versions
        line.sample["tflops"] = number
    elif "tokens/s" in name:
        line.metrics[TOKENS] = number
    else:
        line.metrics[_WRITER_NAMES.get(name, name)] = number


def _memory(kind: str, names: tuple[str, ...], value: str) -> dict[str, float]:
    amounts = [_number(_AMOUNT, part.strip()) for part in value.split("/")]
    return {
        f"{kind}_{name}": amount for name, amount in zip(names, amounts, strict=False) if amount is not None
    }


def _number(form: re.Pattern[str], text: str) -> float | None:
    found = form.fullmatch(text)
    return float(found[1]) if found else None
