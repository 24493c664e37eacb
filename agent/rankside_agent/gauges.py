"""What the node's gauges show, brought into the agent's loop: GPUs for samples, GPUs and host by the clock.

Separate because the poller answers from a thread of its own, and runs belong to the loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from rankside_agent.gpu import kfd
from rankside_agent.gpu.card import Reading
from rankside_agent.gpu.kfd import Topology
from rankside_agent.gpu.poller import Poller


class Seen(NamedTuple):
    """The node's GPUs as a source tells them, and as the compute driver counts them."""

    reading: Reading
    topology: Topology = Topology()


class Watched(Protocol):
    """A run that may want the node's figures."""

    def wants_system(self) -> bool:
        """Whether anybody would see them."""

    def system(self, at: float, seen: Seen | None, host: dict[str, float]) -> None:
        """Take them."""


class Gauges:
    """Owned by the agent's loop; `wake` makes it call `settle`. `seconds`: between two looks, 0 for never."""

    def __init__(
        self,
        wake: Callable[[], None],
        seconds: float,
        poller: Poller,
        topology: Callable[[], Topology] = kfd.read,
    ) -> None:
        self._wake = wake
        self._seconds = seconds
        self._poller = poller
        self._topology = topology
        self._answers: deque[Callable[[], None]] = deque()
        self._next = 0.0

    def poll(self, then: Callable[[Seen | None], None]) -> None:
        """Ask for the GPUs; `then` is called from the loop, with None where nobody answers."""
        self._ask(False, lambda seen, _host: then(seen))

    def settle(self) -> None:
        """Give the answers that have come."""
        while self._answers:
            self._answers.popleft()()

    def tick(self, now: float, runs: Iterable[Watched]) -> None:
        """Look by the clock, for the runs that want it."""
        if not self._seconds or now < self._next:
            return
        wanting = [run for run in runs if run.wants_system()]
        if wanting:
            self._next = now + self._seconds
            self._ask(True, lambda seen, host: _give(wanting, seen, host))

    def status(self) -> dict[str, Any]:
        """Of the poller."""
        return self._poller.status()

    def close(self) -> None:
        """End thread and process."""
        self._poller.close()

    def _ask(self, host: bool, then: Callable[[Seen | None, dict[str, float]], Any]) -> None:
        def answered(reading: Reading | None, values: dict[str, float]) -> None:
            """In the poller's thread, where a driver's files may hang, too."""
            seen = None
            if reading is not None and reading.cards:
                amd = any(card.vendor == "amd" for card in reading.cards)
                seen = Seen(reading, self._topology() if amd else Topology())
            elif reading is not None:
                seen = Seen(reading)
            self._answers.append(lambda: then(seen, values))
            self._wake()

        if not self._poller.ask(gpus=True, host=host, then=answered):
            self._answers.append(lambda: then(None, {}))
            self._wake()


def _give(runs: Iterable[Watched], seen: Seen | None, host: dict[str, float]) -> None:
    for run in runs:
        run.system(time.time(), seen, host)
