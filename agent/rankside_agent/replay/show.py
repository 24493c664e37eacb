"""How far a replay is, for people: a bar for each tracker on a terminal, a line now and then elsewhere.

Separate from the command so that what is said of a tracker is one function, whoever shows it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rankside_agent import remarks

if TYPE_CHECKING:
    from rich.console import Console

_LINE_SECONDS = 5.0  # between two lines about the same tracker
_BAR = 20  # columns
LONGEST = 200  # characters of an error; all of it is in the log


class Show(Protocol):
    """Takes each tracker's cursor as it changes. A context manager."""

    def __enter__(self) -> Show: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def update(self, name: str, told: Mapping[str, Any], total: int, note: str) -> None:
        """`note` is `describe`'s."""


def make(console: Console, names: list[str]) -> Show:
    """What fits the console."""
    return Bars(console, names) if console.is_terminal else Lines(console)


def describe(told: Mapping[str, Any], points: float, seconds: float) -> str:
    """What a tracker's process does, in a few words; `points` came in the last `seconds`."""
    state = told.get("state", "starting")
    if state == "waiting":
        return f"waiting, {next_try(told)}: {shortened(str(told.get('last_error', '')))}"
    if state == "offline":
        why = str(told.get("remark") or told.get("last_error") or "its stand-in takes the points")
        return f"the tracker is away: {shortened(why)}"
    if state == "done":
        return f"{told.get('points', 0):,} points, done"
    rate = f", {points / seconds:,.0f}/s" if points and seconds > 0 else ""
    return f"{told.get('points', 0):,} points{rate}"


def next_try(told: Mapping[str, Any]) -> str:
    """When it tries again."""
    when = told.get("next_try")
    left = when - time.time() if isinstance(when, int | float) else 0.0
    return f"next try in {left:.0f} s" if left >= 0.5 else "trying again"


def shortened(text: str) -> str:
    """One harmless line; of a remark without its commands, which nobody could copy from there."""
    words = text.split(f"\n{remarks.COMMAND}", maxsplit=1)[0]
    return next(remarks.lines(words.replace("\n", "\\n"), LONGEST))


class Bars:
    """Progress bars."""

    def __init__(self, console: Console, names: list[str]) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._console, self._longest_name = console, max(map(len, names))
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_BAR),
            TextColumn("{task.fields[far]}", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
        )
        self._tasks = {
            name: self._progress.add_task(name, total=1, far="", note="starting") for name in names
        }

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, name: str, told: Mapping[str, Any], total: int, note: str) -> None:
        """Move the bar."""
        read = told.get("read", 0)
        far = f"{read:,} of {total:,} records"
        room = self._console.width - self._longest_name - _BAR - len(far) - 3
        cut = note if len(note) <= room else f"{note[: max(room - 3, 0)]}..."
        self._progress.update(self._tasks[name], completed=read, total=total, far=far, note=cut)


class Lines:
    """One line when the state changes, and one now and then while it goes on."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: dict[str, tuple[Any, float]] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, name: str, told: Mapping[str, Any], total: int, note: str) -> None:
        """Say it if it is new, or some time has passed."""
        news = (told.get("state"), told.get("last_error") if told.get("state") == "waiting" else "")
        known, at = self._said.get(name, (None, 0.0))
        now = time.monotonic()
        if not told or (news == known and (now - at < _LINE_SECONDS or told.get("state") == "done")):
            return
        self._said[name] = news, now
        text = f"{name}: {told.get('read', 0):,} of {total:,} records, {note}"
        self._console.print(text, soft_wrap=True, markup=False)
