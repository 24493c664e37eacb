"""One call of tail from its first line to its last: what is there, then what comes."""

from __future__ import annotations

import errno
import resource
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from rankside_agent.tail.assembly import head_of
from rankside_agent.tail.backlog import Backlog, Folding
from rankside_agent.tail.family import Family
from rankside_agent.tail.filters import Wanted
from rankside_agent.tail.fold import Fold
from rankside_agent.tail.follow import Follower
from rankside_agent.tail.hold import Hold
from rankside_agent.tail.log import Log
from rankside_agent.tail.merge import merged
from rankside_agent.tail.pace import Pace
from rankside_agent.tail.record import Record
from rankside_agent.tail.screen import Notices, Screen
from rankside_agent.tail.show import Show
from rankside_agent.tail.since import place
from rankside_agent.tail.tree import Tree

_SCAN = 0.3  # seconds between looks for new ranks, modules and attempts
_SCAN_SHARE = 20  # of the time at most one part in so many goes into looking
_FAILURES = 3  # in a row before a word about it: network file systems fail for a moment


@dataclass(frozen=True)
class Job:
    """What is asked."""

    tree: Tree
    wanted: Wanted
    lines: int | None  # folds to show of what is there; None: all since `wanted.since`
    folding: Folding
    show: Show
    screen: Screen
    say: Notices


def show_past(job: Job, logs: list[Log], *, whole_lines: bool = False) -> list[Family]:
    """Print what is there; returns the logs it was read from, open."""
    families = _opened(job, logs, whole_lines=whole_lines)
    for each in _past(job, families):
        job.screen.write(job.show(each))
    job.screen.flush()
    return families


def follow(job: Job, logs: list[Log], families: list[Family]) -> NoReturn:
    """Print what comes, to these logs and to new ones, until KeyboardInterrupt or BrokenPipeError."""
    _Following(job, logs, families).run()


def _opened(job: Job, logs: Iterable[Log], *, whole_lines: bool) -> list[Family]:
    families, failed = [], defaultdict(list)
    for log in logs:
        try:
            families.append(Family(log, whole_lines=whole_lines))
        except OSError as error:
            failed[_reason(error)].append(log)
    for reason, unread in failed.items():
        others = f" and {len(unread) - 1} other logs" if len(unread) > 1 else ""
        job.say(f"{unread[0]}{others} cannot be read: {reason}")
    return families


def _reason(error: OSError) -> str:
    limit = ""
    if error.errno == errno.EMFILE:
        limit = f", the limit is {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} (ulimit -n)"
    return f"{error.strerror or error}{limit}"


def _past(job: Job, families: list[Family]) -> Iterator[Fold]:
    since = job.wanted.since
    starts = None if since is None else [place(family, since) for family in families]
    if job.lines is not None:
        return Backlog(families, job.wanted, starts).last(job.lines, job.folding)
    pairs = zip(families, starts or [], strict=True)
    return job.folding(merged(job.wanted.of(family.forward(start)) for family, start in pairs))


class _Following:
    def __init__(self, job: Job, logs: list[Log], families: list[Family]) -> None:
        self._job = job
        self._wanted = replace(job.wanted, since=None)  # what comes now is new, whatever its clock says
        self._followers = [_follower_of(family) for family in families]
        opened = {family.log for family in families}
        self._closed = [log for log in logs if log not in opened]  # could not be opened, and are tried again
        self._failures: dict[Follower, int] = {}
        self._hold = Hold()
        self._pace = Pace()
        self._scan_at = time.monotonic() + _SCAN

    def run(self) -> NoReturn:
        while True:
            begun = time.monotonic()
            more = self._round()
            now = time.monotonic()
            if now >= self._scan_at:
                self._look_for_new(now)
            busy = bool(self._hold) or any(each.waits for each in self._followers)
            if not more:
                time.sleep(self._pace.next(busy=busy, cost=now - begun))

    def _round(self) -> bool:
        """Poll each log once; whether one has more than it could read in its turn."""
        more = False
        for follower in self._followers:
            records, filled = self._polled(follower)
            more = more or filled
            self._hold.add(list(self._wanted.of(records)), time.monotonic())
            if self._hold.due(time.monotonic()):
                self._print(self._hold.release())
        self._job.screen.flush()
        return more

    def _print(self, records: Iterable[Record]) -> None:
        for each in self._job.folding(records):
            self._job.screen.write(self._job.show(each))

    def _polled(self, follower: Follower) -> tuple[list[Record], bool]:
        try:
            polled = follower.poll()
        except OSError as error:
            self._failures[follower] = self._failures.get(follower, 0) + 1
            if self._failures[follower] == _FAILURES:
                self._job.say(f"{follower.log} cannot be read now: {_reason(error)}; trying on")
            return [], False
        self._failures.pop(follower, None)
        return polled

    def _look_for_new(self, begun: float) -> None:
        """What appears while we follow is new from its first line on."""
        self._followers += [Follower(log) for log in self._job.tree.scan()]
        for family in _opened(self._job, self._closed, whole_lines=True):
            self._closed.remove(family.log)
            self._followers.append(_follower_of(family))
        now = time.monotonic()
        self._scan_at = now + max(_SCAN, (now - begun) * _SCAN_SHARE)


def _follower_of(family: Family) -> Follower:
    newest = next(family.backward(), None)
    before = head_of(newest[1]) if newest else None
    return Follower(family.log, live=family.live, prints=family.prints, seen=family.older, before=before)
