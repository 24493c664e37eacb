"""Which questions a GPU did not answer, and when each is worth asking again.

Separate because a driver's refusal costs time, and sometimes leaks a file, each time it is asked for: a GPU
that does not know a value would otherwise pay that at every poll.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

HOUR = 3600.0
SOON = 15.0  # seconds; the usual distance of two polls


class Refusals:
    """The waiting doubles with each refusal and has no end, so ten thousand of them leak a dozen files."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[
            Hashable, tuple[float, float]
        ] = {}  # seconds of the next wait, when that one is over

    def __repr__(self) -> str:
        return f"<Refusals of {len(self._waits)} questions>"

    def due(self, question: Hashable) -> bool:
        """Whether it may be asked now."""
        return question not in self._waits or self._clock() >= self._waits[question][1]

    def refused(self, question: Hashable, lasting: bool) -> None:
        """It was not answered; `lasting` where the GPU or the library does not know it at all."""
        wait = self._waits.get(question, (HOUR if lasting else SOON, 0.0))[0]
        self._waits[question] = (wait * 2, self._clock() + wait)

    def answered(self, question: Hashable) -> None:
        """It was, so the next refusal is a first one again."""
        self._waits.pop(question, None)
