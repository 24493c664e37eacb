"""The records that all candidates get: one log line and one step's metrics, as a training writes them.

Separate so that a ratio compares the same record everywhere.
"""

from __future__ import annotations

import time

import msgpack
from figures import median

TEXT = (
    "iteration 1200/50000 | consumed samples: 153600 | elapsed time per iteration (ms): 2345.6 | "
    "compute per GPU (TFLOP/s/GPU): 412.3 | lm loss: 2.345678E+00 | grad norm: 0.812 | loss scale: 1.0 | "
    "skipped: 0 | nan: 0"
)
STEP = 1200
SCALARS = {"lm loss": 2.345678, "grad norm": 0.8123, "learning rate": 1.5e-4, "tokens/s/GPU": 11234.5}
MANY_SCALARS = {f"layer {number}/grad norm": number * 0.01 for number in range(100)}

LOG_RECORD = (time.time(), 20, "INFO", "train", 215, TEXT)
METRICS_RECORD = (time.time(), STEP, SCALARS)


def sizes() -> str:
    """For the notes."""
    log, metrics = (len(msgpack.packb(record)) for record in (LOG_RECORD, METRICS_RECORD))
    return f"log record {log} bytes packed, metrics record {metrics}"


def yardstick() -> float:
    """Seconds for one packb of the log record now: a rented core may be half as fast a moment later."""
    took = []
    for _ in range(100):
        start = time.perf_counter()
        for _ in range(200):
            msgpack.packb(LOG_RECORD)
        took.append((time.perf_counter() - start) / 200)
    return median(took)
