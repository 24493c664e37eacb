"""What a monitor captures, part by part: each can be asked for later, and all end together.

Separate from the monitor because it knows what a second call with other arguments means: more is added, a
level that is named again holds from then on, and nothing is taken twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankside.client import Monitor

Undo = Callable[[], None]


class Captures:
    """Of one monitor."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._level: str | int | None = None
        self._undo: dict[str, list[Undo]] = {}

    def want(self, level: str | int | None, console: bool, output: str | None) -> None:
        """`output` is None, "print" or "fds". Raises ValueError for an unknown level."""
        from rankside import logs

        logs.level_number(level)  # before anything is touched
        if "logs" in self._undo and level is not None and level != self._level:
            self._end("logs")
        if "logs" not in self._undo:
            self._level = level
            self._undo["logs"] = logs.capture(self._monitor, level)
        if console and "console" not in self._undo:
            self._undo["console"] = [self._monitor._show_all()]
        if output is not None and output not in self._undo and "fds" not in self._undo:
            self._end("print")
            self._undo[output] = [_of_output(output)(self._monitor)]

    def add(self, part: str, undo: Undo) -> None:
        """What somebody else captures for this monitor, to be ended with the rest."""
        self._undo.setdefault(part, []).append(undo)

    def uncaught(self, error: BaseException) -> None:
        """One that ends the process, where somebody took the hook away that would have told of it."""
        if "logs" in self._undo:
            from rankside import logs

            logs.log_uncaught(self._monitor, "uncaught exception", error)

    def end(self) -> None:
        """All of them, the last first. Raises nothing."""
        for part in reversed(list(self._undo)):
            self._end(part)

    def _end(self, part: str) -> None:
        for undo in self._undo.pop(part, ()):
            try:
                undo()
            except Exception as error:  # noqa: BLE001  a stream or logger that somebody changed meanwhile
                self._monitor._refuse("capture_logging", error)


def _of_output(name: str) -> Callable[[Monitor], Undo]:
    if name == "fds":
        from rankside import outputs

        return outputs.capture
    from rankside import prints

    return prints.capture
