"""At which step each attempt began again, and what of older attempts that replaces.

Separate because every tracker shows one line of steps out of several attempts, and must agree on where a
newer one takes over.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST = 100  # attempts remembered


class Starts:
    """`known` is what `plain()` gave."""

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = [(int(attempt), int(step)) for attempt, step in known]

    def plain(self) -> list[tuple[int, int]]:
        """(attempt, first step) of the newest ones."""
        return self._starts

    def add(self, attempt: int, step: int) -> None:
        """An attempt has named its first step."""
        self._starts = [*self._starts, (attempt, step)][-MOST:]

    def after(self, attempt: int) -> int | None:
        """From which step on newer attempts replace this one; None where none has said so yet."""
        return min((step for newer, step in self._starts if newer > attempt), default=None)

    def late(self, attempt: int, step: int | None, last: int) -> int | None:
        """Where a point of a replaced attempt stands: up to its replacement; None where that has its place.

        Without a step of its own it stands just before, or at the `last` explicit step.
        """
        first = self.after(attempt)
        if step is None:
            step = last if first is None else first - 1
        return None if first is not None and (step >= first or step < 0) else step
