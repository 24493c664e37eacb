"""All runs of this agent: found on disk at start, opened for new channels, retired when done.

Separate from one run because only here are runs opened, named and moved.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loguru import logger

from rankside.identity import Hello
from rankside_agent import files, runs
from rankside_agent.attempts import Claim, Here
from rankside_agent.config import Settings
from rankside_agent.progress import Channel
from rankside_agent.runs import Run, Unknown
from rankside_agent.training.answers import Poll, unanswered

CLAIM_DEADLINE = 2.0  # seconds that the run's folder may take to answer; then this node decides alone
_GONE = 10_000  # channels remembered after their run was put away
_REFUSED = 1000  # channels remembered as refused
_TAKE_UP = 60.0  # seconds between looks at runs that could not be opened
_PRUNE = 3600.0  # seconds between looks for finished runs that are too old


class Refused(ValueError):
    """A rank whose run cannot be kept here, whatever it tries; the message says why."""


class Opening:
    """A channel on its way: its claim was asked and is not answered yet."""

    def __init__(self, hello: Hello, first: int, then: Callable[[Channel], None]) -> None:
        self.hello = hello
        self.first = first
        self.then = [then]
        self.deadline = time.monotonic() + CLAIM_DEADLINE
        self.claim: Claim | None = None


class Registry:
    """Owned by the agent's loop. `wake` is called from claim threads, to make the loop call `settle`."""

    def __init__(
        self,
        state: Path,
        settings: Settings,
        report: Callable[[str], None],
        wake: Callable[[], None],
        poll: Poll = unanswered,
    ) -> None:
        """Open every unfinished run. One that cannot be opened is reported and left as it is."""
        self._poll = poll
        self._living, self._done = state / "runs", state / "done"
        self._settings, self._report, self._wake = settings, report, wake
        self._opening: dict[str, Opening] = {}
        self._pruned = float("-inf")
        self._too_old: set[Path] = set()  # finished runs, at the last look
        self._taken_up = time.monotonic()
        self.unopened: dict[str, str] = {}  # runs that lie there, and why they are not served
        self.refused: dict[str, str] = {}
        self.gone: dict[str, None] = {}  # a dead rank's last messages may still come out of a socket's buffer
        self.runs: dict[str, Run] = {}
        self.before_opening: Callable[[Run], None] = lambda _run: None
        self._living.mkdir(parents=True, exist_ok=True)
        self._take_up()

    def _take_up(self) -> None:
        """Open what lies there. What cannot be read now may be so later."""
        self.unopened.clear()
        for folder in sorted(self._living.iterdir()):
            if folder.name in self.runs:
                continue
            try:
                self.runs[folder.name] = Run(folder, self._settings, self._report, self._poll)
            except Exception as error:  # noqa: BLE001  one broken folder must not cost the others their agent
                problem = str(error) if isinstance(error, Unknown) else f"{type(error).__name__}: {error}"
                self.unopened[folder.name] = problem
                self._report(f"{folder}: cannot be opened, left as it is: {problem}")

    def find(self, channel: str) -> tuple[Run, Channel] | None:
        """A channel that is known."""
        for run in self.runs.values():
            found = run.channels.get(channel)
            if found is not None:
                return run, found
        return None

    def open(self, hello: Hello, first: int, then: Callable[[Run, Channel], None]) -> None:
        """Find or make the channel of `hello`; `then` is called with it, now or from `settle`.

        Raises OSError where the run cannot be kept on this node's disk, Refused for an impossible root.
        """
        _check(hello)
        if self._goes_on(hello, then):
            return
        run = self._run_of(hello)
        if self._goes_on(hello, then):  # the run was only now opened again
            return
        self.before_opening(run)
        if not self._goes_on(hello, then):  # its process may be dead by now, and what it left just found
            self._begin(run, hello, first, then)

    def _goes_on(self, hello: Hello, then: Callable[[Run, Channel], None]) -> bool:
        """Go on with a channel that is there, on its way, or put away; False where one is to be begun."""
        known = self.find(hello.channel)
        waiting = self._opening.get(hello.channel)
        if known is not None:
            then(*known)
        elif waiting is not None:
            waiting.then[:] = [lambda channel: then(self._run_of(hello), channel)]  # the latest one counts
        return known is not None or waiting is not None or hello.channel in self.gone

    def _begin(self, run: Run, hello: Hello, first: int, then: Callable[[Run, Channel], None]) -> None:
        opening = Opening(hello, first, lambda channel: then(run, channel))
        self._opening[hello.channel] = opening
        if hello.parent in run.channels:
            opening.claim = Claim(0)  # a forked child: its parent's attempt
            self.settle()
            return

        def answer(claim: Claim) -> None:
            opening.claim = claim
            self._wake()

        here = Here(bool(run.living()), run.known_attempts(), run.same_start(hello))
        run.claims.ask(hello, here, answer)

    def settle(self) -> None:
        """Complete what was answered, or was not in time."""
        for name, opening in list(self._opening.items()):
            claim = opening.claim
            if claim is None and time.monotonic() > opening.deadline:
                claim = Claim(0, problem="did not answer in time")
            if claim is not None:
                self._complete(name, opening, claim)

    def _complete(self, name: str, opening: Opening, claim: Claim) -> None:
        if claim.refused:
            del self._opening[name]
            if len(self.refused) >= _REFUSED:
                self.refused.clear()
            self.refused[name] = claim.refused
            self._report(f"{name}: refused: {claim.refused}")
            return
        run = self._run_of(opening.hello)
        if claim.problem:
            self._report(f"run {run.folder.name}: attempt numbered by this node alone: {claim.problem}")
        try:
            channel = run.open_channel(opening.hello, claim, opening.first)
        except OSError as error:
            self._report(f"run {run.folder.name}: {error}; trying again")
            return
        del self._opening[name]
        if not channel.hello.parent:
            who = f"rank {channel.hello.label} of {channel.hello.world_size}, pid {channel.hello.pid}"
            logger.info(f"run {run.folder.name}: attempt {channel.attempt}: {who}")
        for then in opening.then:
            then(channel)

    def _run_of(self, hello: Hello) -> Run:
        name = runs.run_id(hello)
        run = self.runs.get(name)
        if run is None:
            folder = self._living / name
            finished = self._done / name
            if not folder.exists() and finished.exists():
                finished.rename(folder)
            if not folder.exists():
                runs.begin(folder, hello)
            run = self.runs[name] = self._opened(folder, hello)
            self.unopened.pop(name, None)
        return run

    def _opened(self, folder: Path, hello: Hello) -> Run:
        try:
            return Run(folder, self._settings, self._report, self._poll)
        except Unknown:  # begun and lost with the power, or by a full disk
            runs.begin(folder, hello)
            return Run(folder, self._settings, self._report, self._poll)

    def tick(self, now: float) -> None:
        """Twice a second."""
        self.settle()
        for name, run in list(self.runs.items()):
            try:
                self._tend(name, run, now)
            except Exception as error:  # noqa: BLE001  one run's trouble is not the others'
                self._report(f"run {name}: {type(error).__name__}: {error}")
        if self.unopened and now - self._taken_up > _TAKE_UP:
            self._taken_up = now
            self._take_up()
        if now - self._pruned > _PRUNE:
            self._pruned = now
            self._prune()

    def _tend(self, name: str, run: Run, now: float) -> None:
        run.tick(now)
        opening = any(runs.run_id(o.hello) == name for o in self._opening.values())
        quiet = now - run.last_end > self._settings.finish_after_seconds
        if run.ended() and not opening and quiet and run.cleared() and run.finish():
            self._remember(run)
            del self.runs[name]  # first: it is closed from here on, wherever its folder stays
            run.retire(self._done)
            attempt = (run.facts["attempts"] or [{}])[-1]
            logger.info(f"run {name}: {_ended(attempt)}all delivered")

    def _remember(self, run: Run) -> None:
        # not those that were lost from sight: they may live, and what they say is new
        self.gone.update({name: None for name, channel in run.channels.items() if channel.how != "lost"})
        while len(self.gone) > _GONE:
            del self.gone[next(iter(self.gone))]

    def _prune(self) -> None:
        """Delete what was too old an hour ago, too: a node's clock may be far ahead until it is set."""
        oldest = time.time() - self._settings.keep_finished_days * 86400
        found = {folder for folder in self._done.glob("*") if _updated(folder) < oldest}
        for folder in found & self._too_old:
            shutil.rmtree(folder, ignore_errors=True)
        self._too_old = found

    def busy(self) -> bool:
        """Whether any run is not done and delivered."""
        return bool(self.runs or self._opening)

    def opening(self) -> bool:
        """Whether a channel waits for its run's folder to answer: what it left is not taken in before."""
        return bool(self._opening)

    def living(self) -> list[tuple[Run, Channel]]:
        """Every channel whose process has not ended."""
        return [(run, channel) for run in self.runs.values() for channel in run.living()]

    def abandon(self) -> None:
        """End the sinks and leave all else as it is: it is not ours any more."""
        for run in self.runs.values():
            for supervisor in run.sinks.values():
                supervisor.kill()

    def close(self, seconds: float) -> None:
        """Stop all readers; they go on from their cursors."""
        deadline = time.monotonic() + seconds
        for run in self.runs.values():
            run.writer.stop(seconds)
            try:
                run.drain()
            except Exception as error:  # noqa: BLE001  one run's trouble is not the others'
                self._report(f"run {run.folder.name}: {type(error).__name__}: {error}")
        for run in self.runs.values():
            run.close(max(0.0, deadline - time.monotonic()))


def _ended(attempt: dict[str, Any]) -> str:
    """Nothing is known of one that a damaged run.json has lost."""
    return f"attempt {attempt['n']} {attempt['status']}, " if attempt else ""


def _updated(folder: Path) -> float:
    """When a finished run was last written."""
    facts = files.read_json(folder / "run.json")
    try:
        return float(facts["updated"])
    except (TypeError, KeyError, ValueError):
        return folder.stat().st_mtime


def _check(hello: Hello) -> None:
    """Raises Refused where the run's folder cannot be one; a relative one would depend on our own."""
    if not os.path.isabs(hello.exp_root):
        raise Refused(f"hello: exp_root {hello.exp_root[:100]!r} is not absolute")
    try:
        os.fsencode(hello.exp_root)
    except UnicodeEncodeError:
        raise Refused(
            f"hello: exp_root {hello.exp_root[:100]!a} cannot be a path for this agent, whose file names "
            f"are {sys.getfilesystemencoding()}; start it with PYTHONUTF8=1"
        ) from None
