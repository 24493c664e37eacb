"""What an agent says of itself when asked: runs, ranks, counts, readers, in plain values.

Separate from the command that shows it because the agent answers without knowing how it is shown.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from rankside.version import __version__
from rankside_agent import files
from rankside_agent.progress import Channel
from rankside_agent.runs import Run
from rankside_agent.writer import Writer

if TYPE_CHECKING:
    from rankside_agent.agent import Agent
    from rankside_agent.sinks.supervisor import Supervisor


_LONGEST_QUIET = 45  # seconds: half as long again as an idle sink's process is quiet (forwarder.BEAT_SECONDS)


def report(agent: Agent) -> dict[str, Any]:
    """The whole state; times are unix seconds, ages seconds."""
    return {
        "agent": {
            "version": __version__,
            "pid": os.getpid(),
            "endpoint": agent.target,
            "state_dir": str(agent.state_dir),
            "started": agent.started,
            "auto": agent.auto,
            "stopping": agent.stopping_since is not None,
            "counts": dict(agent.receiver.counts),
            "gpus": agent.gauges.status(),
        },
        "unopened": dict(agent.registry.unopened),
        "runs": [_run(run) for run in agent.registry.runs.values()],
    }


def _run(run: Run) -> dict[str, Any]:
    attempts = run.facts["attempts"]
    latest = attempts[-1]["n"] if attempts else 0
    channels = sorted(
        run.channels.values(), key=lambda c: (c.attempt, c.hello.rank is None, c.hello.rank or 0)
    )
    return {
        "run_id": run.folder.name,
        "exp_name": run.facts["exp_name"],
        "exp_root": str(run.exp_root),
        "module": run.facts["module"],
        "world_size": run.facts["world_size"],
        "attempt": latest,
        "status": attempts[-1]["status"] if attempts else "starting",
        "ranks": [_rank(c) for c in channels if c.attempt == latest and not c.hello.outputs],
        "readers": [_log_files(run), *(_sink(run, name) for name in _sinks(run))],
    }


def _rank(channel: Channel) -> dict[str, Any]:
    progress, hello = channel.progress, channel.hello
    found = channel.ended and not channel.identity  # in its spool or journal: nobody has seen it alive
    return {
        "rank": hello.rank,
        "label": hello.label,
        "pid": hello.pid,
        "forked": hello.parent is not None,
        "host": hello.host,
        "state": channel.status if channel.ended else "alive",
        "step": progress.step,
        "last_seen": None if found else round(time.monotonic() - progress.seen, 3),
        "received": channel.last,
        "counts": dict(progress.counts),
        "dropped": max(progress.dropped, progress.announced_drops),
        "spool_bytes": progress.used,
    }


def _log_files(run: Run) -> dict[str, Any]:
    written = run.writer.files
    return {
        "reader": "logfiles",
        "state": _writer_state(run.writer),
        "received": run.logs.state.records,
        "written": written.records if written else 0,
        "behind": run.logs.state.records - (written.records if written else 0),
        "dropped": written.lost if written else 0,
        "last_error": written.last_error if written else "",
    }


def _writer_state(writer: Writer) -> str:
    behind = writer.files.behind if writer.files else []
    hangs = writer.hangs()
    if hangs:
        return f"no answer from the disk for {hangs:.0f} s"
    return writer.failed or ("waiting for " + ", ".join(behind) if behind else "ok")


def _sinks(run: Run) -> list[str]:
    """Those the run asked for, also where their tracker's package is missing."""
    return sorted({*run.facts["sinks"], *run.unusable})


def _sink(run: Run, name: str) -> dict[str, Any]:
    found = files.read_json(run.folder / "sinks" / f"{name}.json")
    told = found if isinstance(found, dict) else {}
    unusable = run.unusable.get(name, "")
    anchor = told.get("anchor")  # behind it a stand-in has the points, and the tracker has none
    remark = str(told.get("remark") or "")
    has = anchor if isinstance(anchor, dict) else told
    return {
        "reader": name,
        "state": "unusable" if unusable and not told else str(told.get("state") or "starting"),
        "received": run.points.state.records,
        "written": _count(has, "delivered"),
        "points": _count(has, "points"),
        "behind": max(0, run.points.state.records - _count(has, "read")),
        "dropped": _count(told, "failed"),
        "refused": _count(told, "refused"),
        "superseded": _count(told, "superseded"),
        "failures": _count(told, "failures"),
        "last_error": str(told.get("last_error") or (remark.partition("\n")[0] if has is anchor else "")),
        "remark": remark,
        "next_try": _number(told, "next_try"),
        "last_time": _number(told, "last_time"),
        "unusable": unusable,
        "quiet": _quiet(told, run.sinks.get(name)),
        **_process(run.sinks.get(name)),
    }


def _quiet(told: dict[str, Any], supervisor: Supervisor | None) -> int | None:
    """Since how many seconds its living process has given no sign: then a call of the tracker goes on."""
    updated = _number(told, "updated")
    if updated is None or supervisor is None or supervisor.pid is None:
        return None
    seconds = int(time.time() - updated)
    return seconds if seconds > _LONGEST_QUIET else None


def _process(supervisor: Supervisor | None) -> dict[str, Any]:
    """The sink's process: its pid while it lives, the last one's exit status, how many there have been."""
    if supervisor is None:
        return {"pid": None, "exit": None, "starts": 0, "process_error": ""}
    return {
        "pid": supervisor.pid,
        "exit": supervisor.last_exit,
        "starts": supervisor.starts,
        "process_error": supervisor.last_error,
    }


def _count(told: dict[str, Any], name: str) -> int:
    value = told.get(name)
    return value if isinstance(value, int) else 0


def _number(told: dict[str, Any], name: str) -> float | None:
    value = told.get(name)
    return value if isinstance(value, int | float) else None
