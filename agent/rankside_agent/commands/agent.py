"""`rankside agent`: the agent in the foreground, as services and people start it."""

from __future__ import annotations

from typing import Annotated

import typer

from rankside_agent.commands import fail


def agent(
    config: Annotated[str, typer.Option(help="YAML file with the keys of configs/agent.yaml.")] = "",
    endpoint: Annotated[str, typer.Option(help="Where ranks connect: a path, or tcp on this host.")] = "",
    state_dir: Annotated[str, typer.Option(help="Journals and cursors; a local disk.")] = "",
    auto: Annotated[bool, typer.Option(help="Leave when all runs are done and delivered.")] = False,
    flush: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds for trackers to catch up after a stop (stop_flush_seconds)."),
    ] = None,
    debug: Annotated[bool, typer.Option(help="Log at DEBUG.")] = False,
) -> None:
    """Run this node's agent in the foreground until SIGTERM or Ctrl-C.

    Living ranks are then served for a grace of 15 s (stop_grace_seconds); a second signal ends it at once,
    and nothing is lost: ranks keep their records, and the next agent goes on.

    Example: rankside agent --config configs/agent.yaml
    """
    from rankside_agent.agent import Agent, set_up_log
    from rankside_agent.config import load
    from rankside_agent.ownership import Taken

    set_up_log("DEBUG" if debug else "INFO")
    try:
        settings = load(
            config or None, endpoint=endpoint or None, state_dir=state_dir or None, stop_flush_seconds=flush
        )
    except (ValueError, OSError) as error:
        fail(str(error), 2)
    try:
        served = Agent(settings, auto)
    except Taken as taken:
        fail(str(taken), 1)
    except ValueError as error:
        fail(str(error), 2)
    except OSError as error:  # of a full disk, say, which names no file
        fail(str(error) if error.filename else f"{settings.resolved_state_dir()}: {error}", 2)
    served.run()
