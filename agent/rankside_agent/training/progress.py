"""How far the training is, and when it will be through.

Separate because it is a line of its own, which `log_progress` asks for.
"""

from __future__ import annotations

import time
from datetime import timedelta

from rankside_agent.training.averages import ELAPSED
from rankside_agent.training.sample import Sample


def progress_line(sample: Sample, began: float) -> str:
    """`progress: iteration 12/100 (12.0%) | elapsed 0:00:18 | ETA 0:02:12, at 2026-01-02 03:06:17`.

    `began` is the time of the attempt's first sample. The time left is that of the present average.
    """
    of = (
        f"/{sample.train_iters} ({100.0 * sample.iteration / sample.train_iters:.1f}%)"
        if sample.train_iters
        else ""
    )
    since = f" | elapsed {_span(sample.time - began)}"
    left = seconds_left(sample)
    if left is None:
        return f"progress: iteration {sample.iteration}{of}{since} | ETA unknown"
    at = _clock(sample.time + left)
    return f"progress: iteration {sample.iteration}{of}{since} | ETA {_span(left)}, at {at}"


def seconds_left(sample: Sample) -> float | None:
    """Until the last iteration; None where their number or the time of one is unknown."""
    elapsed = sample.averages.get(ELAPSED)
    if not sample.train_iters or elapsed is None:
        return None
    each = elapsed.value if elapsed.mean is None else elapsed.mean
    return max(0, sample.train_iters - sample.iteration) * each


def _span(seconds: float) -> str:
    return str(timedelta(seconds=int(min(max(seconds, 0.0), 86400.0 * 36500))))


def _clock(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "an unknown time"
