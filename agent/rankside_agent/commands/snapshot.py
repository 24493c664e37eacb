"""`rankside snapshot show` and `diff`: what an attempt was, and in what two attempts differ.

They read the files below a run's `snapshot/`, and need no agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from rankside_agent.commands import fail

T = TypeVar("T")

snapshot = typer.Typer(
    help="Show or compare what attempts were: configuration, environment, packages, git, hardware.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@snapshot.command()
def show(
    run: Annotated[
        str,
        typer.Argument(metavar="[RUN]", help="Run, or its folder; RUN@2 for attempt 2. [default: latest]"),
    ] = "",
    attempt: Annotated[int | None, typer.Option(min=0, help="Which attempt. [default: the last]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show the snapshot of an attempt.

    Example: rankside snapshot show llama3-8b --attempt 2
    """
    from rankside_agent.snapshot import place, stored
    from rankside_agent.snapshot import show as shown

    found = _found(lambda state: place.find(state, run or None, attempt), "show", 1)
    kept = stored.read(found.folder)
    if as_json:
        _print_json({"run": found.run, "attempt": found.number, "given": kept.given, **kept.groups})
        return
    _print(f"{found.title}  {found.folder}\n")
    for line in shown.snapshot(kept):
        _print(line)


@snapshot.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="Run, or its folder; RUN@2 for attempt 2.")],
    second: Annotated[
        str, typer.Argument(metavar="[B]", help="The other. [default: A's last two attempts are compared]")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Also what differs with every start.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show in what two attempts differ: of two runs, or of one.

    Exit status: 0 they are the same, 1 they differ, 2 one cannot be found.

    Example: rankside snapshot diff llama3-8b@1 llama3-8b@3
    """
    from rankside_agent.snapshot import show as shown
    from rankside_agent.snapshot import stored
    from rankside_agent.snapshot.difference import compare

    one, other = _found(lambda state: _two(state, first, second), "diff", 2)
    ours, theirs = stored.read(one.folder), stored.read(other.folder)
    found = compare(ours, theirs, everything)
    if as_json:
        pairs = {
            title: {name: [shown.plain(value) for value in pair] for name, pair in group.items()}
            for title, group in found.groups.items()
        }
        names = {"first": one.title, "second": other.title}
        _print_json({**names, "same": found.same, "differences": pairs, "missing": found.missing})
    else:
        _print(f"{one.title} -> {other.title}{': the same' if found.same else ''}")
        for line in shown.difference(found, ours, theirs):
            _print(line)
    raise typer.Exit(int(not found.same))


def _two(state_dir: Path, first: str, second: str) -> Any:
    from rankside_agent.snapshot import place

    if second:
        return place.find(state_dir, first), place.find(state_dir, second)
    return place.before(state_dir, first)


def _found(look: Callable[[Path], T], command: str, code: int) -> T:
    try:
        return look(_state_dir())
    except (LookupError, OSError) as error:
        fail(f"snapshot {command}: {error}", code)


def _state_dir() -> Path:
    from rankside_agent.config import load

    try:
        return load(None).resolved_state_dir()
    except (ValueError, OSError) as error:
        fail(f"snapshot: {error}", 2)


def _print(line: str) -> None:
    typer.echo(line)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=1, default=str))
