"""The process of one replay: `python -m rankside_agent.sinks.replay NAME RUN_DIR`, started by the command.

Separate from `run.py` because its ends are others: it is over as soon as the journal is, the end of its stdin
means that nobody waits for it any more, and a tracker that is away is waited for as long as its user said.
"""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import time
from pathlib import Path

from rankside_agent.sinks import SINKS, cursor_path
from rankside_agent.sinks.forwarder import Forwarder
from rankside_agent.sinks.run import BUSY, DONE, UNDELIVERED, WRONG_USE, Stdin, hold

MOVED = 66  # the agent has put the run's folder elsewhere
LOCK_SECONDS = 3.0  # an earlier replay that was ended just now needs a moment
BACK_SECONDS = 10.0  # between looks whether the tracker is back, while a stand-in has all there is
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

log = logging.getLogger("rankside_agent.sinks")


def main(arguments: list[str]) -> int:
    """Forward all there is; returns the exit status."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(format="[%(asctime)s][%(levelname)s] %(message)s", level=logging.INFO)
    wish = _wish(arguments)
    landmark = wish.run_dir / "run.json"
    try:
        if not landmark.exists():  # before anything is made there: a new folder would be in the run's way
            return MOVED
        if hold(wish.run_dir, wish.name, LOCK_SECONDS) is None:
            return BUSY
        if wish.again:
            cursor_path(wish.run_dir, wish.name).unlink(missing_ok=True)
        forwarder = Forwarder(wish.run_dir, wish.name, everything=True, unseen=wish.unseen)
        return serve(forwarder, Stdin(), wish.patience or math.inf, landmark)
    except (OSError, ValueError) as error:
        log.error("%s: %s", wish.run_dir, error)  # noqa: TRY400  the place says it
        return WRONG_USE


def serve(forwarder: Forwarder, stdin: Stdin, patience: float, landmark: Path) -> int:
    """Forward until all is delivered; returns the exit status. `landmark` is there while the folder is."""
    forwarder.complete()
    began = time.monotonic()
    while landmark.exists():
        wait = forwarder.round()
        if forwarder.drained and not forwarder.provisional:
            forwarder.close("done")
            return DONE if landmark.exists() else MOVED  # behind a folder that has gone nothing is found
        if forwarder.drained:
            forwarder.close("offline")  # made anew, it sees whether the tracker is back
            wait = BACK_SECONDS
        if forwarder.cursor.state != "running":
            left = max(began, forwarder.succeeded_at) + patience - time.monotonic()
            if left <= 0:
                break
            wait = min(wait, left)
        if stdin.wait(wait):
            break
    if not landmark.exists():
        return MOVED
    forwarder.close("offline" if forwarder.provisional else "waiting")
    return UNDELIVERED


def _wish(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rankside_agent.sinks.replay")
    parser.add_argument("name", choices=list(SINKS))
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds without success; 0: no end")
    parser.add_argument("--again", action="store_true", help="from the journal's beginning")
    parser.add_argument("--unseen", action="store_true", help="nobody will see the run's end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
