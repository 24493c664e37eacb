"""The process that makes the calls of one set-up, a block at a time, when it is told to.

Separate processes, so that blocks of different candidates alternate and yet share nothing. On stdin a JSON
line `{"call", "count"}`, or `{"steps", "lines", "pause"}` for a loop with pauses; on stdout the answer.

    python worker.py SET-UP FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from figures import median
from setups import DROPPED, SETUPS, Calls

_WARM = 10  # one call in so many again before the clock starts: the caches of this process are cold


def main(name: str, folder: Path) -> None:
    """Serve until stdin ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        setup = SETUPS[name](folder)
        with setup as calls:
            _tell({"ready": True})
            for line in sys.stdin:
                _tell(_answer(calls, json.loads(line)))
    except ImportError as error:
        _tell({"ready": False, "why": f"{error.name} is not installed"})


def _answer(calls: Calls, asked: dict[str, Any]) -> dict[str, Any]:
    if "call" in asked:
        call, args = calls[asked["call"]]
        took = {"took": _block(call, args, asked["count"])}
    else:
        took = _steps(calls, asked["steps"], asked["lines"], asked["pause"])
    dropped, nothing = calls.get(DROPPED, (int, ()))
    return {**took, "dropped": dropped(*nothing)}


def _block(call: Callable[..., object], args: tuple[Any, ...], count: int) -> list[int]:
    """Nanoseconds of each call, less what the clock itself takes."""
    for _ in range(count // _WARM):
        call(*args)
    clock = _clock_cost()
    took = [0] * count
    for index in range(count):
        start = perf_counter_ns()
        call(*args)
        took[index] = perf_counter_ns() - start
    return [each - clock for each in took]


def _steps(calls: Calls, steps: int, lines: int, pause: float) -> dict[str, Any]:
    """Steps of a training that sleeps in between, as one that waits for its device: caches go cold."""
    clock = _clock_cost()
    log, text = calls["log"]
    metrics, values = calls.get("many", (None, ()))
    took: list[int] = []
    whole: list[int] = []
    for _ in range(steps):
        time.sleep(pause)
        begin = perf_counter_ns()
        for _ in range(lines):
            start = perf_counter_ns()
            log(*text)
            took.append(perf_counter_ns() - start - clock)
        if metrics is not None:
            metrics(*values)
        whole.append(perf_counter_ns() - begin - 2 * lines * clock)
    return {"took": took, "whole": whole}


def _clock_cost() -> int:
    found = []
    for _ in range(200):
        start = perf_counter_ns()
        found.append(perf_counter_ns() - start)
    return int(median(found))


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
