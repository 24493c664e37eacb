"""`rankside replay`: forward a run's journal to trackers by hand, to the end or to where they take no more.

Each tracker has a process of its own, as under the agent: its library is foreign code, which may hang for
ever or crash, must not see the user's Ctrl-C, and finds its place again after a SIGKILL. The command watches
the cursor files, which say all there is to say.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankside_agent.commands import fail
from rankside_agent.sinks import SINKS

if TYPE_CHECKING:
    from rankside_agent.replay.child import Child
    from rankside_agent.replay.subject import Subject

_LOOK = 0.1  # seconds between looks at the cursors
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def replay(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Run id, experiment name, exp_root, or path of a state folder."),
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="NAME", hidden=True)] = None,
    to: Annotated[
        list[str] | None, typer.Option("--to", metavar="NAME...", help=f"Trackers: {', '.join(SINKS)}.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="From the journal's beginning, not the cursor.")
    ] = False,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a tracker that is away; 0: for ever.")
    ] = 60.0,
) -> None:
    """Forward a finished, interrupted or never forwarded run to trackers.

    It goes on where the agent or an earlier replay stopped, also after Ctrl-C, and takes in attempts that
    did not ask for the tracker. A run's state folder (runs/RUN or done/RUN in the agent's state) may be
    copied to a machine with internet, and given by its path. WANDB_*, MLFLOW_* and DATABRICKS_* variables
    set here go before those of the training. Exit status 1 unless all is delivered.

    Example: rankside replay llama3-8b --to mlflow wandb
    """
    names = _trackers([*(to or ()), *(more or ())])
    for number in _SIGNALS:
        signal.signal(number, _leave)
    try:
        code = _replay(run, names, again, patience)
    except KeyboardInterrupt:
        from rankside_agent.replay.verdict import command

        go_on = command(run, names) + (", without --again" if again else "")
        fail(f"replay: stopped; what was delivered stays, and this goes on: {go_on}", 130)
    raise typer.Exit(code)


def _trackers(given: list[str]) -> list[str]:
    names = list(dict.fromkeys(name for word in given for name in word.split(",") if name))
    unknown = [name for name in names if name not in SINKS]
    if unknown or not names:
        what = f"unknown {unknown[0]!r}" if unknown else "no tracker given"
        fail(f"replay: --to: {what}; known: {', '.join(SINKS)}", 2)
    return names


def _leave(number: int, frame: object) -> None:
    """The first one ends the work; a second would leave half of the processes running."""
    for each in _SIGNALS:
        signal.signal(each, _ignore)  # and not SIG_IGN, of which Python complains where one is pending
    raise KeyboardInterrupt


def _ignore(number: int, frame: object) -> None:
    """What is done now has its deadlines."""


def _replay(selector: str, names: list[str], again: bool, patience: float) -> int:
    """The exit status; once more for each time that the agent moves the folder meanwhile."""
    from rankside_agent.catalog import UnknownRun
    from rankside_agent.replay import subject as subjects

    try:
        subject = subjects.find(_state_dir(), selector)
        while True:
            subject.check()
            _introduce(subject, again)
            code = _forward(subject, names, again, patience)
            if code is not None:
                return code
            _say("the agent has put the run's folder elsewhere meanwhile; going on there")
            subject, again = subjects.find_again(subject), False
    except (UnknownRun, subjects.CannotReplay, OSError) as error:
        fail(f"replay: {error}", 1)


def _state_dir() -> Path:
    from rankside_agent.config import load

    try:
        return load(None).resolved_state_dir()
    except (ValueError, OSError) as error:
        fail(f"replay: {error}", 2)


def _introduce(subject: Subject, again: bool) -> None:
    _say(f"{subject.run.exp_name}, {subject.length.records():,} records in {subject.folder}")
    if subject.going_on:
        _say(f"the run goes on under the agent with pid {subject.agent}: what there is so far is forwarded")
    elif subject.unseen:
        _say("nobody saw how the run ended: the trackers are told that it was killed")
    if again:
        _say("everything is sent again from the beginning; a tracker that has this run keeps each point once")
        _say("(but TensorBoard shows points twice beside event files that another machine wrote)")


def _forward(subject: Subject, names: list[str], again: bool, patience: float) -> int | None:
    """To all trackers at once, for one that is away must not hold up the others. None: it has moved."""
    from rich.console import Console

    from rankside_agent.replay import show, verdict
    from rankside_agent.replay.child import Child, end
    from rankside_agent.sinks.replay import MOVED

    children: list[Child] = []
    with ExitStack() as stack:
        stack.callback(end, children)
        shown = stack.enter_context(show.make(Console(highlight=False), names))
        for name in names:
            children.append(Child(subject, name, again=again, patience=patience))
        living = list(children)
        while living:
            time.sleep(_LOOK)
            living = [child for child in living if child.ended() is None]
            total = subject.length.records()
            for child in filter(lambda child: child.spoke, children):
                shown.update(child.name, child.told, total, _note(child))
            if any(child.ended() == MOVED for child in children):
                return None
    for child in children:
        for line in verdict.lines(subject, child):
            _say(f"{child.name}: {line}")
    _say(f"the run's files: {subject.run.exp_root}; the trackers' logs: {subject.folder / 'sinks'}")
    return int(not all(verdict.delivered(subject, child) for child in children))


def _note(child: Child) -> str:
    from rankside_agent.replay.show import describe

    told = child.told
    return describe(told, told.get("points", 0) - child.before.get("points", 0), child.seconds())


def _say(text: str) -> None:
    typer.echo(text)
