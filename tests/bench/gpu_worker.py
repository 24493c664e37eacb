"""The process that polls one source, or a whole poller, when it is told to; it tells what a poll took.

Separate processes, so that rounds of different sources alternate and yet share nothing. On stdin a line with
a number of polls, on stdout a JSON line with seconds of the clock and of CPU.

    python gpu_worker.py {amdsmi,sysfs,poller} [TREE]
"""

from __future__ import annotations

import json
import os
import queue
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rankside_agent.gpu.amdsmi import AmdSmi
from rankside_agent.gpu.poller import Poller
from rankside_agent.gpu.source import Source
from rankside_agent.gpu.sysfs import Sysfs

_GPUS = 8
_PATIENCE = 30.0


def main(name: str, *tree: str) -> None:
    """Serve until stdin ends."""
    if name == "poller":
        poll, cpu = _poller()
    else:
        poll, cpu = _source(Sysfs(Path(tree[0])) if name == "sysfs" else AmdSmi()), time.process_time
    for line in sys.stdin:
        began, spent = time.perf_counter(), cpu()
        for _ in range(int(line)):
            if poll() != _GPUS:
                raise RuntimeError(f"{name} does not show {_GPUS} GPUs")
        print(json.dumps({"wall": time.perf_counter() - began, "cpu": cpu() - spent}), flush=True)


def _source(source: Source) -> Callable[[], int]:
    source.open()
    return lambda: sum(card.vram is not None for card in source.read())


def _poller() -> tuple[Callable[[], int], Callable[[], float]]:
    """As the agent has it, host and all; CPU is that of the agent's half and of the child together."""
    poller = Poller(["amdsmi"])
    answers: queue.Queue[int] = queue.Queue()

    def poll() -> int:
        poller.ask(True, True, lambda reading, _: answers.put(len(reading.cards) if reading else 0))
        return answers.get(timeout=_PATIENCE)

    poll()  # the start of the child, which is not measured
    return poll, lambda: time.process_time() + _spent(poller.status()["pid"])


def _spent(pid: int) -> float:
    """Of all threads of a process, in nanoseconds and not in ticks."""
    tasks = os.listdir(f"/proc/{pid}/task")
    return sum(int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) for task in tasks) / 1e9


if __name__ == "__main__":
    main(*sys.argv[1:])
