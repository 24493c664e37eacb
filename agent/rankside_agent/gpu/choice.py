"""Which source is read: the first of the table that works, and no other until that one fails for good.

Separate from the process because it is the rule, and the process is the wire.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from rankside_agent import gpu
from rankside_agent.gpu.card import Card, Reading
from rankside_agent.gpu.source import Source, Unavailable

FAILURES = 3  # readings in a row, each with a new start of the source in it, before another one is taken
AGAIN = 300.0  # seconds between looks for a source where none works: a driver may be loaded later

log = logging.getLogger(__name__)


class Choice:
    """Sources by name, in order. `announce` hears each name before that source is opened."""

    def __init__(
        self,
        names: Sequence[str],
        announce: Callable[[str], None] = lambda name: None,
        load: Callable[[str], type[Source]] = gpu.load,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = list(names)
        self._announce = announce
        self._load = load
        self._clock = clock
        self._source: Source | None = None
        self._failures = 0
        self._look_at = 0.0
        self._problem = "no GPU source is left to try"

    def __repr__(self) -> str:
        return f"<Choice of {self._names}: {self.name or self._problem}>"

    @property
    def name(self) -> str:
        """Of the source in use; empty without one."""
        return self._source.name if self._source else ""

    def read(self) -> Reading:
        """The GPUs now, or why there are none."""
        if self._source is None and self._clock() >= self._look_at:
            self._look(self._names)
        source = self._source
        if source is None:
            return Reading(time=time.time(), problem=self._problem)
        try:
            cards = self._cards(source)
        except Exception as error:  # noqa: BLE001  drivers are foreign code
            return Reading(source.name, time.time(), problem=self._failed(source, error))
        self._failures = 0
        return Reading(source.name, time.time(), tuple(cards))

    def _cards(self, source: Source) -> list[Card]:
        """By a source that is started anew where it fails."""
        try:
            return source.read()
        except Exception as error:  # noqa: BLE001  drivers are foreign code
            log.debug("%s is started again: %s", source.name, error)
            _close(source)
            self._announce(source.name)
            source.open()
            return source.read()

    def _failed(self, source: Source, error: Exception) -> str:
        self._failures += 1
        problem = f"{source.name}: {_said(error)}"
        if self._failures >= FAILURES:
            log.warning("%s failed %d times in a row: %s", source.name, self._failures, _said(error))
            _close(source)
            self._source, self._failures = None, 0
            others = [name for name in self._names if name != source.name]
            self._look(others, [problem])
        return problem

    def _look(self, names: Sequence[str], reasons: Sequence[str] = ()) -> None:
        """Take the first that opens."""
        why = list(reasons)
        for name in names:
            self._announce(name)
            try:
                source = self._load(name)()
                source.open()
            except Exception as error:  # noqa: BLE001  drivers are foreign code
                why.append(f"{name}: {_said(error)}")
            else:
                self._source = source
                return
        self._look_at = self._clock() + AGAIN
        problem = f"no GPU source works: {'; '.join(why)}" if why else self._problem
        if problem != self._problem:
            log.info("%s", problem)
        self._problem = problem


def _said(error: Exception) -> str:
    """In one line; a kind where it is no sentence for people."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Unavailable) else f"{type(error).__name__}: {text}"


def _close(source: Source) -> None:
    with contextlib.suppress(Exception):
        source.close()
