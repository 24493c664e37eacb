"""The performance metrics that Primus logs to MLflow, from the scalars that pass, and their summary.

Separate because the names and units are Primus' (`perf/...`), and so that everything else need not know that
they are derived. On with `mlflow_upload_performance_metrics`. Where a scalar has several names the first that
comes in a run is the source, so that a step has one value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class _Metric(NamedTuple):
    name: str
    factor: float


_TIME = "perf/iteration_time_ms"
_FLOPS = "perf/throughput_tflops_per_gpu"
_TOKENS = "perf/tps_tokens_per_sec_per_gpu"
_SOURCES = {
    "iteration-time": _Metric(_TIME, 1000.0),  # throughput samples, and Megatron's timer
    "time_metrics/end_to_end(s)": _Metric(_TIME, 1000.0),  # TorchTitan
    "throughput(tflops/sec/gpu)": _Metric(_FLOPS, 1.0),
    "tflops": _Metric(_FLOPS, 1.0),  # TorchTitan
    "throughput": _Metric(_FLOPS, 1.0),  # Megatron
    "token_throughput(tokens/sec/gpu)": _Metric(_TOKENS, 1.0),
    "throughput(tps)": _Metric(_TOKENS, 1.0),  # TorchTitan
    **{
        f"{kind}_{name}({unit})": _Metric(f"perf/{kind}_{primus}", 1.0)
        for kind in ("rocm", "hip", "nvidia", "cuda")
        for name, unit, primus in (
            ("used_mem", "GB", "current_mem_gb"),
            ("mem_usage", "%", "mem_utilization_pct"),
        )
    },
}
_GPU_USE = re.compile(r"system/rank-(.+)/gpu_use_percent")
_UTILIZATION = "perf/gpu_utilization_pct"
_MOST = 64  # names in the summary; one GPU's utilization has a name a rank


class Performance:
    """Derives metrics, and sums them up. `state` is what `state()` gave, or empty."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._sums = {str(name): _Sum(*found) for name, found in state.get("sums", {}).items()}
        self._from = dict(state.get("from", {}))

    def derive(self, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        """The metrics of one record, beside its own."""
        for name, value in values.items():
            if name.startswith("perf/"):
                self._add(name, value)
            elif (metric := _SOURCES.get(name)) and self._from.setdefault(metric.name, name) == name:
                self._add(metric.name, value * metric.factor)
                yield metric.name, value * metric.factor
        for name, value in _utilization(values):
            self._add(name, value)
            yield name, value

    def state(self) -> dict[str, Any]:
        """What a new one must know to go on from here."""
        return {"sums": {name: list(each) for name, each in self._sums.items()}, "from": self._from}

    def summary(self) -> dict[str, dict[str, float | None]]:
        """count, mean, min, max and last of each; of numbers whose sum is beyond all there is no mean."""
        return {
            name: {
                "count": each.number,
                "mean": each.total / each.number if math.isfinite(each.total) else None,
                "min": each.least,
                "max": each.most,
                "last": each.last,
            }
            for name, each in self._sums.items()
        }

    def _add(self, name: str, value: float) -> None:
        if not math.isfinite(value):
            return
        old = self._sums.get(name)
        if old is not None:
            new = _Sum(old.number + 1, old.total + value, min(old.least, value), max(old.most, value), value)
            self._sums[name] = new
        elif len(self._sums) < _MOST:
            self._sums[name] = _Sum(1, value, value, value, value)


def _utilization(values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Of each rank's GPU, and their mean."""
    found = {match[1]: value for name, value in values.items() if (match := _GPU_USE.fullmatch(name))}
    yield from ((f"{_UTILIZATION}_rank{rank}", value) for rank, value in found.items())
    if found:
        yield f"{_UTILIZATION}_avg", math.fsum(found.values()) / len(found)


class _Sum(NamedTuple):
    number: int
    total: float
    least: float
    most: float
    last: float
