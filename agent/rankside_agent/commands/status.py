"""`rankside status`: what the node's agent knows, for people and as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rankside_agent.commands import fail
from rankside_agent.tail.escape import escape

_LONGEST = 300  # characters of a remark or an error; all of it is in --json
_LONGEST_STATE = 10
# Of a reader, in the order of the columns; log files have no points and refuse nothing
_COUNTS = ("written", "points", "behind", "dropped", "refused", "failures")


def status(
    endpoint: Annotated[str, typer.Option(help="The agent's endpoint; default: this node's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 3.0,
) -> None:
    """Show runs, ranks (pid, step, last seen), and how far log files and trackers are.

    Of a tracker: points delivered, records behind, values it never takes, failed tries, its own remark.
    Exit status 1 where no agent answers.

    Example: rankside status --json
    """
    from rankside import endpoint as endpoints
    from rankside_agent.ask import NoAnswer, ask

    try:
        target = endpoints.choose(endpoint or None)[0]
        answer = ask(target, "status", timeout)
    except (NoAnswer, OSError) as error:
        fail(str(error), 1)
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
        return
    for line in _agent(answer["agent"]):
        typer.echo(line)
    for run in answer["runs"]:
        _show(run)


def _agent(agent: dict[str, Any]) -> Iterator[str]:
    stopping = ", stopping" if agent["stopping"] else ""
    yield f"agent {agent['version']}  pid {agent['pid']}{stopping}  {agent['endpoint']}"
    yield f"state {agent['state_dir']}"
    yield f"GPUs: {_gpus(agent['gpus'])}"
    bad = agent["counts"].get("bad messages", 0)
    if bad:
        yield f"bad messages skipped: {bad}"


def _gpus(gpus: dict[str, Any]) -> str:
    """Where they are read from; nobody asks before a training wants it."""
    if not gpus["polls"]:
        return "not asked yet"
    told = [f"{gpus['cards']} through {gpus['source']}"] if gpus["source"] else []
    if gpus["problem"]:
        told.append(_harmless(gpus["problem"]))
    counts = {"timeouts": "polls without an answer", "restarts": "restarts"}
    told += [f"{gpus[name]} {what}" for name, what in counts.items() if gpus[name]]
    return "; ".join(told) or "none"


def _show(run: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print()
    title = f"{run['exp_name']}  {run['module']}  attempt {run['attempt']}  {run['status']}"
    console.print(Text(title, style="bold"))
    console.print(Text(run["exp_root"]), soft_wrap=True)
    ranks = Table("rank", "pid", "state", "step", "last seen", "received", "dropped", "spool", box=None)
    for rank in run["ranks"]:
        label = f"{rank['label']}{' (forked)' if rank['forked'] else ''}"
        seen = f"{rank['last_seen']:.1f} s ago"
        spool = f"{rank['spool_bytes'] / 1e6:.1f} MB"
        step = "" if rank["step"] is None else rank["step"]
        cells = (label, rank["pid"], rank["state"], step, seen, rank["received"], rank["dropped"], spool)
        ranks.add_row(*(Text(str(cell)) for cell in cells))
    console.print(ranks)
    readers = Table("reader", "state", *_COUNTS, box=None)
    for reader in run["readers"]:
        state = reader["state"] if len(reader["state"]) <= _LONGEST_STATE else reader["state"].split()[0]
        cells = (reader["reader"], state, *(reader.get(name, "") for name in _COUNTS))
        readers.add_row(*(Text(str(cell)) for cell in cells))
    console.print(readers)
    for reader in run["readers"]:
        for text in _words(reader, time.time()):
            console.print(Padding(Text(_harmless(f"{reader['reader']}: {text}")), (0, 0, 0, 1)))


def _words(reader: dict[str, Any], now: float) -> Iterator[str]:
    """What is to be said of a log file's writer or a sink, besides numbers."""
    if len(reader["state"]) > _LONGEST_STATE:
        yield str(reader["state"])
    if reader.get("unusable"):
        yield f"cannot be used: {reader['unusable']}"
    if reader.get("remark"):
        yield str(reader["remark"])
    if reader.get("process_error") or (reader.get("exit") and not reader.get("pid")):
        why = reader.get("process_error") or f"exit status {reader['exit']}"
        yield f"its process ended ({why}) and was started {reader['starts']} times"
    if reader.get("next_try"):
        yield f"next try in {max(0.0, reader['next_try'] - now):.0f} s: {reader['last_error']}"
    elif reader["last_error"]:
        yield f"last error: {reader['last_error']}"


def _harmless(text: str) -> str:
    plain = escape(text)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}... (the rest: --json)"
