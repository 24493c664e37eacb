"""What watching costs a training: the demo's model unwatched, watched in the step, and by rankside.

Separate from the cost of a call because a call that is cheap alone may still take the trainer's caches, locks
or core; and because here a tracker may be slow, or never answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from figures import Section, Value, median, percentile
from local_mlflow import Door, door, mlflow_server
from samples import MANY_SCALARS
from train_worker import LINES, WAYS
from workplace import HERE, Process, Workplace, hear, say

_TIMEOUT = 2  # seconds that MLflow's client may wait here; its default, with retries, is 1206
# What the tracker does: seconds before each answer, and how many times fewer steps in-process watching gets
TRACKERS: dict[str, tuple[float | None, int]] = {
    "healthy": (0.0, 1),
    "slow": (0.5, 10),
    "hanging": (None, 20),
}
_SETTLE = 0.2  # seconds between two blocks: what one way left to do is not to be the next one's


@dataclass
class Way:
    """One way of watching: its process, and what its steps took by the state of the tracker."""

    title: str
    process: Process
    whole: dict[str, list[int]] = field(default_factory=dict)
    watching: dict[str, list[int]] = field(default_factory=dict)

    def run(self, tracker: str, steps: int) -> None:
        """A block of steps."""
        say(self.process, str(steps))
        answer = json.loads(hear(self.process))
        self.whole.setdefault(tracker, []).extend(answer["whole"])
        self.watching.setdefault(tracker, []).extend(answer["watching"])
        time.sleep(_SETTLE)


def measure(place: Workplace, rounds: int, steps: int) -> Iterator[Section]:
    """All ways in turns, for each state of the tracker."""
    with ExitStack() as stack:
        try:
            address = stack.enter_context(mlflow_server(place.disk / "mlflow"))
        except ImportError as error:
            yield Section("training", [f"left out, {error.name} is not installed"], ())
            return
        through, opened = stack.enter_context(door(address))
        yield _section(_measured(place, through, opened, rounds, steps), rounds, steps)


def _measured(place: Workplace, address: str, opened: Door, rounds: int, steps: int) -> list[Way]:
    agent = place.agent("training")
    tracker = {
        "MLFLOW_TRACKING_URI": address,
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_TIMEOUT),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }
    ways = []
    for name in WAYS:
        folder = str(place.disk / "training" / name.replace(" ", "-"))
        environment = {**agent.environment, **tracker}
        ways.append(
            Way(name, place.start(str(HERE / "train_worker.py"), name, folder, environment=environment))
        )
    for way in ways:
        answer = json.loads(hear(way.process))
        if not answer["ready"]:
            raise RuntimeError(f"{way.title}: {answer['why']}")
        way.run("warm", 20)
    for state, (delay, fewer) in TRACKERS.items():
        opened.delay = delay
        for number in range(rounds):
            for way in ways if number % 2 == 0 else reversed(ways):
                way.run(state, max(1, steps // fewer) if way.title == "in process" else steps)
    opened.delay = 0.0
    place.end(*(way.process for way in ways))
    place.end(agent.process)
    return ways


def _section(ways: list[Way], rounds: int, steps: int) -> Section:
    notes = [
        f"the demo's model on one thread, {LINES} log lines and {len(MANY_SCALARS)} scalars a step, in turns:"
        f" {rounds} rounds of {steps} steps; in process fewer where the tracker is slow",
        "in process: loguru with four rotated files, SummaryWriter, mlflow.log_metrics, one after another in"
        f" the step; its client waits {_TIMEOUT} s at most here (default 1206 s)",
        "rankside: the same lines and scalars, TensorBoard and the same MLflow server behind the agent,"
        " agent and trackers on the same cores as the training",
        "slow: every answer 0.5 s late; hanging: none at all; x alone: of the medians of the same state",
    ]
    columns = ("tracker", "watched", "step ms", "x alone", "p99 ms", "max ms", "watching ms", "steps")
    section = Section("training", notes, columns)
    for state in TRACKERS:
        alone = median(ways[0].whole[state])
        section.rows += [_row(way, state, alone) for way in ways]
    return section


def _row(way: Way, state: str, alone: float) -> dict[str, Value]:
    whole = sorted(way.whole[state])
    return {
        "tracker": state,
        "watched": way.title,
        "step ms": median(whole) / 1e6,
        "x alone": median(whole) / alone,
        "p99 ms": percentile(whole, 99) / 1e6,
        "max ms": whole[-1] / 1e6,
        "watching ms": median(way.watching[state]) / 1e6,
        "steps": str(len(whole)),
    }
