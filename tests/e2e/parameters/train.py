"""A short training that says all a parameter may have an effect on: `train.py JSON`.

Separate because it runs in a process of its own. Its torch is a stand-in that tells where the GPU is.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rankside

STANDARD = {  # names as Megatron's, of which parameters keep some out of TensorBoard
    "forward-compute-time": 1.0,
    "batch-size": 8.0,
    "learning-rate": 0.1,
    "lm loss validation ppl": 3.0,
    "mem-reserved-bytes": 4.0,
    "world-size": 2.0,
    "loss-scale": 5.0,
}
TIMERS = {"interval": 0.5, "optimizer": 0.02, "forward-compute": 0.01}


def main(told: dict[str, Any]) -> None:
    sys.modules["torch"] = fake_torch(told["rank"])
    mon = rankside.init(
        exp_root=told["root"],
        work_group="team",
        user_name="user",
        rank=told["rank"],
        world_size=told["world_size"],
        config=told["config"],
    )
    mon.capture_logging("TRACE", console=True)
    for level in ("DEBUG", "INFO", "WARNING", "ERROR"):
        logging.getLogger("train").log(logging.getLevelName(level), "said as %s", level)
    logging.getLogger("train").error("logging_level is %d", mon.logging_level)
    mon.params(train_iters=told["steps"])
    traces = Path(told["root"], "profile_traces")
    traces.mkdir(exist_ok=True)
    (traces / "rank.json").write_text("{}")
    for step in range(1, told["steps"] + 1):
        mon.metrics({"lm loss": 1 / step, "params norm": 7.0, "num zeros": 9.0, **STANDARD}, step=step)
        mon.throughput(
            step=step,
            elapsed_s=step / 100,
            global_batch_size=8,
            seq_length=128,
            tflops=400.0,
            timers=TIMERS,
        )
    while not os.path.exists(told["go"]):  # a rank that is gone is not waited for: its lines come first
        time.sleep(0.02)
    mon.close()


def fake_torch(rank: int) -> Any:
    """As torch shows the GPU at bus {rank}5, of which a quarter is used."""
    here = SimpleNamespace(
        name="MI300X", uuid=None, pci_domain_id=1, pci_bus_id=rank << 4 | 5, pci_device_id=0
    )
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_device=lambda: 0,
        get_device_properties=lambda _: here,
        mem_get_info=lambda: (150 << 30, 192 << 30),
    )
    return SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip="7.0"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
