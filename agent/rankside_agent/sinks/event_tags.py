"""How far each tag has come: its newest step and value, and the attempt that they are of.

Separate because TensorBoard knows no attempts: whether a new one goes back over what is shown, or merely
names something else at a low step (the seconds it took to load), is seen here and nowhere else. What is
remembered is bounded; once it is not all, `complete` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

MOST = 2000  # names, and
MOST_CHARACTERS = 200_000  # of them all: they lie in the cursor's file, which is written every second


class Last(NamedTuple):
    """The newest step of a tag. Without a value where that is a text, or was replaced."""

    attempt: int
    step: int
    value: float | None


class Tags:
    """`known` is what `plain()` gave; None where nobody has kept it, as before there was this class."""

    def __init__(self, known: Mapping[str, Sequence[Any]] | None) -> None:
        self.complete = known is not None
        self._last = {
            name: Last(int(n), int(step), value) for name, (n, step, value) in (known or {}).items()
        }
        self._characters = sum(map(len, self._last))

    def plain(self) -> dict[str, Last] | None:
        """For the state; None where it is not all."""
        return dict(self._last) if self.complete else None

    def note(self, name: str, attempt: int, step: int, value: float | None) -> None:
        """A tag is shown at a step."""
        if not self.complete:
            return
        last = self._last.get(name)
        if last is None:
            self._characters += len(name)
        if last is None or step >= last.step:
            self._last[name] = Last(attempt, step, value)
        if len(self._last) > MOST or self._characters > MOST_CHARACTERS:
            self.complete = False
            self._last.clear()

    def cut(self, step: int) -> None:
        """From `step` on nothing is shown any more."""
        for name, last in list(self._last.items()):
            if last.step >= step:
                self._last[name] = Last(last.attempt, step - 1, None)  # or less; it has no newer point

    def beyond(self, names: Iterable[str], attempt: int, step: int) -> bool:
        """Whether an attempt before this one had any of these further than `step`."""
        found = (self._last.get(name) for name in names)
        return any(last is not None and last.attempt < attempt and last.step > step for last in found)

    def furthest(self, attempt: int) -> int:
        """The last step of all attempts before this one; -1 where there is none."""
        return max((last.step for last in self._last.values() if last.attempt < attempt), default=-1)

    def at_or_beyond(self, attempt: int, step: int) -> dict[str, int]:
        """What earlier attempts show at `step` and later: names, and their last steps."""
        found = self._last.items()
        return {name: last.step for name, last in found if last.attempt < attempt and last.step >= step}

    def same(self, name: str, attempt: int, step: int, value: float) -> bool:
        """Whether an earlier attempt's last point of this tag is this very one."""
        last = self._last.get(name)
        if last is None or last.attempt >= attempt or last.step != step or last.value is None:
            return False
        return last.value == value or (last.value != last.value and value != value)  # noqa: PLR0124  both NaN
