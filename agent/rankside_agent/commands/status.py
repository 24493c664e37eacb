"""`rankside status`: what the node's agent knows, for people and as JSON."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rankside_agent import ended, remarks
from rankside_agent.commands import fail
from rankside_agent.sinks.supervisor import SILENCE
from rankside_agent.tail.escape import escape

_LONGEST = 300  # characters of a remark or an error; all of it is in --json
_LONGEST_STATE = 10
_ENDED = {"interrupted; the next agent goes on with them:": "interrupted", "last finished:": "finished"}
# Of a reader, in the order of the columns; log files have no points and refuse nothing
_COUNTS = ("written", "points", "behind", "dropped", "refused", "failures")


def status(
    endpoint: Annotated[str, typer.Option(help="The agent's endpoint; default: this node's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 3.0,
) -> None:
    """Show runs, ranks (pid, step, last seen), how far log files and trackers are, and the last ended runs.

    written: records that a reader is through with (a tracker has those of one rank, log files have all).
    points: the numbers and texts in them that a tracker got; one record may hold many.
    behind: records that it does not have yet. refused: values it never takes. failures: failed tries.

    Exit status 1 where an agent listens and does not answer, or none listens on a named --endpoint.

    Example: rankside status --json
    """
    answer = _answer(endpoint, timeout)
    agent = answer["agent"]
    state_dir = Path(agent["state_dir"]) if agent else _state_dir()
    answer = {**answer, "finished": ended.finished(state_dir)}
    if not agent:
        answer["interrupted"] = ended.interrupted(state_dir)
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
        return
    for line in _agent(agent) if agent else _none(state_dir):
        typer.echo(line)
    for name, problem in answer.get("unopened", {}).items():
        typer.echo(escape(f"run {name} cannot be opened, and is tried again: {problem}"))
    for run in answer["runs"]:
        _show(run)
    for heading, name in _ENDED.items():
        _show_ended(heading, answer.get(name, ()))


def _answer(endpoint: str, timeout: float) -> dict[str, Any]:
    """The agent's; one without an agent where none listens and none was named."""
    from rankside import endpoint as endpoints
    from rankside_agent.ask import NoAnswer, ask

    try:
        target = endpoints.choose(endpoint or None)[0]
        try:
            return ask(target, "status", timeout)
        except NoAnswer as error:
            if endpoint or endpoints.listens(target):
                fail(_leaving() or str(error), 1)
    except ValueError as error:
        fail(str(error), 2)
    except OSError as error:
        fail(str(error), 1)
    return {"agent": None, "unopened": {}, "runs": []}


def _none(state_dir: Path) -> Iterator[str]:
    yield "no agent runs now; one starts with the next training"
    yield f"state {shlex.quote(str(state_dir))}"


def _state_dir() -> Path:
    from rankside_agent.config import load

    try:
        return load(None).resolved_state_dir()
    except (ValueError, OSError) as error:
        fail(f"status: {error}", 2)


def _leaving() -> str:
    """That the agent is about to leave, where it has said so in its state folder."""
    try:
        pid = int((_state_dir() / "stopping").read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return ""
    return f"the agent with pid {pid} is stopping: it brings what it has to files and trackers, and leaves"


def _agent(agent: dict[str, Any]) -> Iterator[str]:
    stopping = ", stopping" if agent["stopping"] else ""
    yield f"agent {agent['version']}  pid {agent['pid']}{stopping}  {agent['endpoint']}"
    yield f"state {shlex.quote(agent['state_dir'])}"
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
        told.append(" ".join(remarks.lines(gpus["problem"], _LONGEST)))
    counts = {"timeouts": "polls without an answer", "restarts": "restarts"}
    told += [f"{gpus[name]} {what}" for name, what in counts.items() if gpus[name]]
    return "; ".join(told) or "none"


def _show(run: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print()
    title = f"{run['exp_name']}  {run['module']}  attempt {run['attempt']}  {run['status']}"
    console.print(Text(escape(title), style="bold"), soft_wrap=True)
    console.print(Text(escape(shlex.quote(run["exp_root"]))), soft_wrap=True)
    ranks = Table("rank", "pid", "state", "step", "last seen", "received", "dropped", "spool", box=None)
    for rank in run["ranks"]:
        label = f"{rank['label']}{' (forked)' if rank['forked'] else ''}"
        seen = "" if rank["last_seen"] is None else f"{rank['last_seen']:.1f} s ago"
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
            _say(reader["reader"], text)


def _show_ended(heading: str, runs: Iterable[dict[str, Any]]) -> None:
    """A line for each; what a tracker has to say is below it."""
    for number, run in enumerate(runs):
        if not number:
            typer.echo(f"\n{heading}")
        known = isinstance(run["ended"], int | float)
        when = time.strftime(" %Y-%m-%d %H:%M", time.localtime(run["ended"])) if known else ""
        name = f"{run['exp_name']}  {run['module']}  attempt {run['attempt']}  {run['status']}{when}"
        typer.echo(escape(f" {name}  {shlex.quote(run['exp_root'])}"))
        for told in run["remarks"]:
            _say(f"  {told['reader']}", told["remark"])


def _say(who: str, text: str) -> None:
    """Words, cut where they are long; a command on a line of its own, whole, to be copied."""
    for line in remarks.lines(f"{who}: {text}", _LONGEST, "... (the rest: --json)"):
        typer.echo(f" {line}")


def _words(reader: dict[str, Any], now: float) -> Iterator[str]:
    """What is to be said of a log file's writer or a sink, besides numbers."""
    if len(reader["state"]) > _LONGEST_STATE:
        yield escape(reader["state"])
    if reader.get("unusable"):
        yield f"cannot be used: {escape(reader['unusable'])}"
    if reader.get("remark"):
        yield str(reader["remark"])
    if reader.get("process_error") or (reader.get("exit") and not reader.get("pid")):
        why = reader.get("process_error") or f"exit status {reader['exit']}"
        yield f"its process ended ({why}) and was started {reader['starts']} times; it will be again"
    if reader.get("quiet"):
        yield f"a call of its tracker goes on since {reader['quiet']} s; it is ended after {SILENCE:.0f} s"
    if reader.get("next_try"):
        yield f"next try in {max(0.0, reader['next_try'] - now):.0f} s: {escape(reader['last_error'])}"
    elif reader["last_error"] and reader["last_error"] not in str(reader.get("remark")):
        yield f"last error: {escape(reader['last_error'])}"
