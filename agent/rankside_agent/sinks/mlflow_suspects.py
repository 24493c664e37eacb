"""What was refused or failed at before: the memory of a process, in which a sink is made anew many times.

Separate because it outlives the sink, and because it holds the rule that costs values when it is wrong. An
error 500 is no verdict on a value, however long it goes on: a locked database answers so to everything. But
some servers answer so for ever to one text (an emoji that their database cannot hold, say), and all that
comes after would wait for ever. So an entry is left out for it after it has failed alone `TIMES` times over
`SECONDS`, each time twice, with a neighbour of its kind accepted in between; once it is accepted itself, all
is forgotten. The next value of the same name is asked for as if nothing had been.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

TIMES = 10
SECONDS = 600.0
LOOKED_INTO = 6  # failures of a request before it is sent in parts; with the forwarder's pauses a minute
_MOST = 1_000  # that are watched
_MOST_REFUSED = 100_000
_MOST_TOLD = 100  # names

_Key: TypeAlias = tuple[str, str, str]  # run, kind, and the entry as text, for NaN is not itself


class Suspects:
    """Of one process. `clock` is a seam for tests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests: dict[_Key, int] = {}  # by their first entry: failures
        self._alone: dict[_Key, tuple[int, float]] = {}  # failures, and the time of the first
        self._refused: dict[_Key, None] = {}
        self._taken: dict[tuple[str, str], Any] = {}  # an entry that was accepted
        self._told: set[_Key] = set()

    def looked_into(self, run_id: str, kind: str, first: Any) -> bool:
        """One more failure of the request that begins with this; whether it is time to send it in parts."""
        key = _key(run_id, kind, first)
        self._requests[key] = self._requests.pop(key, 0) + 1
        _bound(self._requests, _MOST)
        return self._requests[key] >= LOOKED_INTO

    def landed(self, run_id: str, kind: str, first: Any) -> None:
        """The request that begins with this was taken whole."""
        if self._requests:
            self._requests.pop(_key(run_id, kind, first), None)

    def guilty(self, run_id: str, kind: str, item: Any) -> bool:
        """One more failure of this alone, while a neighbour was accepted; whether that is a verdict."""
        key = _key(run_id, kind, item)
        number, since = self._alone.pop(key, (0, self._clock()))
        self._alone[key] = number + 1, since
        _bound(self._alone, _MOST)
        return number + 1 >= TIMES and self._clock() - since >= SECONDS

    def accepted(self, run_id: str, kind: str, items: list[Any]) -> None:
        """The server has taken these."""
        for item in items if self._alone else ():
            self._alone.pop(_key(run_id, kind, item), None)
        self._taken[run_id, kind] = items[-1]
        _bound(self._taken, _MOST)

    def taken(self, run_id: str, kind: str) -> Any:
        """The last that was accepted; None where nothing was."""
        return self._taken.get((run_id, kind))

    def refuse(self, run_id: str, kind: str, item: Any) -> None:
        """The server has refused this very entry."""
        self._refused[_key(run_id, kind, item)] = None
        _bound(self._refused, _MOST_REFUSED)

    def refused(self, run_id: str, kind: str, item: Any) -> bool:
        """Whether it has: when the entry comes again, after a failure of something else, so would this."""
        return bool(self._refused) and _key(run_id, kind, item) in self._refused

    def first_of(self, run_id: str, kind: str, name: str) -> bool:
        """Whether of this name nothing has been told yet; a flood is not told."""
        key = run_id, kind, name
        if key in self._told or len(self._told) >= _MOST_TOLD:
            return False
        self._told.add(key)
        return True


def _key(run_id: str, kind: str, item: Any) -> _Key:
    return run_id, kind, repr(item)


def _bound(known: dict[Any, Any], most: int) -> None:
    while len(known) > most:
        known.pop(next(iter(known)))
