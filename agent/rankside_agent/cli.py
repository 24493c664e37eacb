"""The command `rankside`: a table of commands, each imported when it is called.

The only place that exits the process: 0 done, 1 the thing asked about is bad, 2 wrong use.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

# name -> module:function; the help texts are the functions' own
COMMANDS = {
    "agent": "rankside_agent.commands.agent:agent",
    "tail": "rankside_agent.commands.tail:tail",
    "replay": "rankside_agent.commands.replay:replay",
    "status": "rankside_agent.commands.status:status",
    "snapshot": "rankside_agent.commands.snapshot:snapshot",
    "demo": "rankside_agent.commands.demo:demo",
}


def main(arguments: list[str] | None = None) -> None:
    """Run one command."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        import typer
    except ImportError as error:
        sys.exit(f"rankside: {error.name} is missing; the command needs: pip install 'rankside[agent]'")
    app = typer.Typer(
        help="Monitoring beside distributed training.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_version)
    # only the called command is imported: each has its own weight, and `tail` must answer at once
    called = next((word for word in given if word in COMMANDS), None)
    for name in COMMANDS if called is None else [called]:
        command = load(name)
        if isinstance(command, typer.Typer):  # one with commands of its own
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    app(args=given, prog_name="rankside")


def load(name: str) -> Any:
    """The function of a command."""
    module, _, function = COMMANDS[name].partition(":")
    return getattr(importlib.import_module(module), function)


def _version(version: bool = False) -> None:
    """Monitoring beside distributed training: one agent a node, log files, trackers, tail."""
    if version:
        from rankside.version import __version__

        print(f"rankside {__version__}")  # noqa: T201  what was asked for
        raise SystemExit(0)
