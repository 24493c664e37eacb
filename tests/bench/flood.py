"""A rank that logs as fast as it can without ever filling its spool, for the agent's side.

    python flood.py EXP_ROOT RANK WORLD_SIZE SPOOL_BYTES

On stdin a number of records, on stdout when the first was logged (CLOCK_MONOTONIC), and what came of it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from samples import TEXT

import rankside

_WELCOME = 20.0
_LOOK_EVERY = 500  # records between looks at the spool
_FILL = 0.5  # of the spool: the last eighth is for what matters more, and a drop would spoil the count


def main(root: str, rank: int, world_size: int, spool_bytes: int) -> None:
    """One record so that the agent knows us, then as told."""
    mon: Any = rankside.init(
        exp_root=root, rank=rank, world_size=world_size, spool_bytes=spool_bytes, flush_seconds=10.0
    )
    mon.log("before the measurement")
    if not mon._transport.flush(_WELCOME):
        raise RuntimeError("the agent did not take the first record")
    print("ready", flush=True)
    for line in sys.stdin:
        began, cpu = time.monotonic(), time.process_time()
        waited = _log(mon, int(line), int(spool_bytes * _FILL))
        took = time.monotonic() - began
        told = {"began": began, "took": took, "waited": waited, "dropped": mon._spool.dropped() + mon.lost}
        print(json.dumps({**told, "cpu": time.process_time() - cpu}), flush=True)
    mon.close()


def _log(mon: Any, count: int, limit: int) -> float:
    waited = 0.0
    spool, log = mon._spool, mon._log
    for number in range(count):
        if number % _LOOK_EVERY == 0:
            while spool.used() > limit:
                time.sleep(0.002)
                waited += 0.002
        log(20, "INFO", "train", 215, TEXT)
    return waited


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
