"""`rankside tail`: options into a job, and the ends it can come to; the work is in the package `tail`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from rankside_agent import limits
from rankside_agent.commands import fail
from rankside_agent.tail import filters, session
from rankside_agent.tail.escape import escape
from rankside_agent.tail.fold import alone, fold, ranks_of
from rankside_agent.tail.folder import RANK
from rankside_agent.tail.screen import Notices, Screen
from rankside_agent.tail.show import Json, Lines
from rankside_agent.tail.since import parse_since
from rankside_agent.tail.tree import Tree

if TYPE_CHECKING:
    from rankside_agent.catalog import Run

T = TypeVar("T")

_LINES = 20
_COLOURS = ("auto", "always", "never")
_LOOK = 0.3  # seconds between looks for a run that is to come


def tail(
    target: Annotated[
        str, typer.Argument(metavar="[RUN|PATH]", help="Run, or its folder. [default: latest run]")
    ] = "",
    *,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, help=f"Records shown at first. [default: {_LINES}]")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the logs grow.")] = False,
    rank: Annotated[str, typer.Option("--rank", metavar="LIST", help="Only these ranks: 0,3-5.")] = "",
    level: Annotated[str, typer.Option("--level", metavar="NAME", help="This level and above.")] = "",
    grep: Annotated[str, typer.Option("--grep", metavar="REGEX", help="Text or location matches.")] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="10m, 1h30m, or 2026-01-02T03:04:05.")
    ] = "",
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="A run, never a path.")] = "",
    module: Annotated[str, typer.Option("--module", metavar="NAME", help="Only this module; or a,b.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a record, unfolded.")] = False,
    folded: Annotated[
        bool | None, typer.Option("--fold/--no-fold", help="What ranks say alike within 2 s as one.")
    ] = None,
    color: Annotated[str, typer.Option("--color", metavar="WHEN", help="auto, always or never.")] = "auto",
) -> None:
    """Show the newest log records of a run's ranks, merged by time.

    PATH is a run's folder, its logs, or the folder of a module or rank; it needs no agent.

    Example: rankside tail -f --level warning --rank 0-3
    """
    say, screen = Notices(), Screen()
    if follow and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, screen.interrupt)
    if color not in _COLOURS:
        fail(f"tail: --color: unknown '{color}'; known: {', '.join(_COLOURS)}", 2)
    if target and run:
        fail(f"tail: both '{target}' and --run '{run}' given; give one", 2)
    wanted = filters.Wanted(
        level=_parsed("--level", filters.parse_level, level) or 0,
        ranks=_parsed("--rank", filters.parse_ranks, rank),
        pattern=_parsed("--grep", filters.parse_pattern, grep),
        since=_parsed("--since", lambda text: parse_since(text, datetime.now()), since),
    )
    try:
        places = _places(target, run, _waiting(say, screen) if follow else None, say)
    except (KeyboardInterrupt, BrokenPipeError) as left:
        _leave(screen, left)
    if len(places) == 1 and places[0].name.startswith(RANK) and wanted.ranks is None:
        wanted = replace(wanted, ranks=_parsed(str(places[0]), filters.parse_ranks, places[0].name))
        places = [places[0].parent]
    modules = frozenset(filter(None, module.split(",")))
    tree = Tree(places, say, level=wanted.level, ranks=wanted.ranks, modules=modules)
    fold_it = not as_json if folded is None else folded
    job = session.Job(
        tree=tree,
        wanted=wanted,
        lines=_LINES if lines is None and wanted.since is None else lines,
        folding=fold if fold_it else alone,
        show=Json(folded=fold_it) if as_json else Lines(colour=screen.colour(color)),
        screen=screen,
        say=say,
    )
    with suppress(ValueError, OSError):
        limits.allow_many_files()
    try:
        _perform(job, follow, places)
    except (KeyboardInterrupt, BrokenPipeError) as left:
        _leave(screen, left)
    except OSError as error:
        screen.give_up()
        fail(f"tail: {error}", 1)
    if wanted.pattern and job.lines != 0 and not screen.used:
        raise typer.Exit(1)  # as grep


def _leave(screen: Screen, left: BaseException) -> NoReturn:
    """The user has seen enough, or nobody reads any more."""
    if isinstance(left, BrokenPipeError):
        screen.give_up()
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second one would print a traceback
    raise typer.Exit(0) from None


def _perform(job: session.Job, follow: bool, places: list[Path]) -> None:
    logs = job.tree.scan()
    missing = "" if job.tree.matched else escape(_why_nothing(job, places))
    if missing and not follow:
        fail(f"tail: {missing}", 1)
    families = session.show_past(job, logs, whole_lines=follow)
    if follow:
        if missing:
            job.say(f"{missing}; waiting for it")
        session.follow(job, logs, families)


def _parsed(option: str, parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text) if text else None
    except ValueError as error:
        fail(f"tail: {option}: {error}", 2)


def _places(target: str, run: str, wait: Callable[[str], None] | None, say: Notices) -> list[Path]:
    """The folders to look in: those of a path, or of a run which the agent's state knows.

    `wait` is called with what is missing until the run is known.
    """
    if target and (os.sep in target or os.path.exists(target)):
        if os.path.exists(target) and not os.path.isdir(target):
            fail(f"tail: {target} is no folder; give that of a run, its logs, a module or a rank", 2)
        return [Path(os.path.abspath(target))]
    from rankside_agent.catalog import UnknownRun, all_runs, find_run

    state_dir, name = _state_dir(), run or target or None
    while True:
        try:
            found = find_run(state_dir, name)
        except UnknownRun as unknown:
            if wait is None:
                fail(f"tail: {unknown}", 1)
            wait(str(unknown))
        else:
            return found.log_roots if name or wait else _latest(found, all_runs(state_dir), say)


def _latest(newest: Run, known: list[Run], say: Notices) -> list[Path]:
    """Of the newest run whose folder is there; one that was deleted has nothing to show."""
    there = (each for each in known if any(place.is_dir() for place in each.log_roots))
    shown = next(there, newest)
    if shown is not newest and shown.folder != newest.folder:
        say(f"the latest run, {newest.exp_name}, has no logs in {newest.exp_root}; {shown.exp_name} is shown")
    return shown.log_roots


def _waiting(say: Notices, screen: Screen) -> Callable[[str], None]:
    def wait(missing: str) -> None:
        say(f"{missing}; waiting for it")
        screen.flush()  # raises where nobody reads any more
        time.sleep(_LOOK)

    return wait


def _state_dir() -> Path:
    named = os.environ.get("RANKSIDE_STATE_DIR")
    if named and not os.environ.get("RANKSIDE_CONFIG"):
        return Path(named)
    from rankside_agent.config import load  # costs more than all the rest of a call

    try:
        return load(None).resolved_state_dir()
    except (ValueError, OSError) as error:
        fail(f"tail: {error}", 2)


def _why_nothing(job: session.Job, places: list[Path]) -> str:
    """That there are no logs, where, and what else there is."""
    where = ", ".join(map(str, places))
    folders = job.tree.folders()
    if not folders:
        missing = not any(place.is_dir() for place in places)
        return f"{where} does not exist" if missing else f"no logs in {where}"
    modules = sorted({folder.module for folder in folders})
    ranks = ranks_of({label for folder in folders for label in folder.ranks}) or "unknown"
    return f"no such logs in {where}; there are modules {', '.join(modules)} and ranks {ranks}"
