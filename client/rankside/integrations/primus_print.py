"""print() as Primus has it: each call a DEBUG record with its caller's module and line, none on stdout.

Separate from the adapter because a builtin is replaced; and from the capture of what is printed because
Primus hears calls and no streams: its `builtins.print` is its `debug_rank_all`. Kept here, and lost there:
what is printed to another file, or while somebody redirects stdout. Parts of one line are one record.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from rankside import Monitor
from rankside.integrations.care import active, harmless
from rankside.prints import Recorder
from rankside.ranks import shown

_DEBUG = (10, "DEBUG")


@harmless
def capture(monitor: Monitor) -> None:
    """Until the monitor is closed."""
    if not active(monitor) or monitor in _capturing():
        return
    before: Any = builtins.print
    streams = sys.stdout, sys.stderr
    recorder = Recorder(monitor, *_DEBUG, _place)

    def say(*values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:
        target = sys.stdout if file is None else file
        if recorder.ended or not any(target is each for each in streams):
            before(*values, sep=sep, end=end, file=file, flush=flush)
        elif values or recorder.unfinished:  # a bare print() is nothing to Primus
            between = sep if isinstance(sep, str) else " "
            last = end if isinstance(end, str) else "\n"
            recorder.say(between.join(map(shown, values)), last, sys._getframe(1))

    def undo() -> None:
        recorder.end()
        while getattr(
            builtins.print, "rankside_ended", bool
        )():  # one that began later may have ended earlier
            builtins.print = builtins.print.rankside_before  # type: ignore[attr-defined]

    ours: Any = say
    ours.rankside_before, ours.rankside_ended = before, lambda: recorder.ended
    ours.rankside_monitor = monitor
    builtins.print = ours
    monitor._captures.add("print()", undo)


def _capturing() -> Iterator[Monitor]:
    """Those that print() speaks to now: a second set-up of one has nothing to do."""
    each: Any = builtins.print
    while (monitor := getattr(each, "rankside_monitor", None)) is not None:
        yield monitor
        each = each.rankside_before


def _place(frame: FrameType | None) -> tuple[str, int]:
    """The last part of the module's name, as all of Primus' helpers show it."""
    if frame is None:
        return "python", 0
    return str(frame.f_globals.get("__name__", "")).rpartition(".")[2], frame.f_lineno
