"""How a replay went with one tracker, in words, and what to do about it.

Separate because a tracker's process has many ends, and each must tell its user how to go on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rankside_agent import remarks
from rankside_agent.replay.child import Child
from rankside_agent.replay.show import LONGEST, shortened
from rankside_agent.replay.subject import Subject, holder
from rankside_agent.sinks.run import BUSY, DONE, UNDELIVERED

_COUNTED = {"refused": "that it never takes", "superseded": "of steps begun again", "failed": "unreadable"}


def delivered(subject: Subject, child: Child) -> bool:
    """Whether the tracker has all there is."""
    read = int(child.told.get("read", 0))
    return child.ended() == DONE and (subject.going_on or read >= subject.length.records())


def lines(subject: Subject, child: Child) -> Iterator[str]:
    """What to say of it."""
    told = child.told
    if delivered(subject, child):
        yield _success(subject, child)
    else:
        read = (told.get("anchor") or told).get("read", 0)  # a stand-in has what is behind the anchor
        far = f"{read:,} of {subject.length.records():,} records are delivered"
        yield f"{far}; {_trouble(subject, child)}"
    if told.get("remark"):
        yield from remarks.lines(str(told["remark"]), LONGEST)


def command(run: str, names: list[str]) -> str:
    """That goes on where it stopped."""
    return f"rankside replay {shlex.quote(run)} --to {' '.join(names)}"


def _success(subject: Subject, child: Child) -> str:
    told, before = child.told, child.before
    points = told.get("points", 0)
    extra = "".join(f", {told[key]:,} {text}" for key, text in _COUNTED.items() if told.get(key))
    if told.get("read") == before.get("read"):
        had = f"had all {told.get('read', 0):,} records ({points:,} points{extra})"
        return f"{had}; --again forwards them anew"
    far = "all so far" if subject.going_on else "all"
    new = points - before.get("points", 0)
    return f"{far} delivered, {new:,} points in {child.seconds():.1f} s, {points:,} in all{extra}"


def _trouble(subject: Subject, child: Child) -> str:
    again = f"run it again to go on: {command(str(subject.folder), [child.name])}"
    status, told = child.ended(), child.told
    if status == BUSY:
        pid = holder(subject.folder, child.name) or told.get("pid", "unknown")
        return f"the process with pid {pid} forwards this run to it now: let it, or end it first"
    if child.hung:
        return f"its process gave no sign of life and was ended; {again}"
    if status == UNDELIVERED:
        why = told.get("last_error") if told.get("state") == "waiting" else told.get("remark")
        return f"the tracker takes nothing now ({shortened(str(why or child.last_words()))}); {again}"
    if status == DONE:
        return f"the rest waits for more of the run to be known; {again}"
    return f"its process ended with status {status} ({shortened(child.last_words())}); {again}"
