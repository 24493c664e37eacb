"""The training's own tracker variables (where its server is, and the key to it), kept for the sinks of a run.

Separate because they hold secrets: they are in no journal, in one file that only the agent's user can read,
and once the run is put away without what is secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankside.launch import is_of_tracker
from rankside.secrets import safe_environ
from rankside_agent import files

_ATTEMPT = "attempt"
_INSTEAD = {  # of variables that a tracker's own client would heed
    "WANDB_RUN_ID": "starts with one exp_name are one run",
    "WANDB_RESUME": "starts with one exp_name are one run",
    "WANDB_NAME": "the parameter wandb_exp_name, else exp_name",
    "WANDB_DIR": "{exp_root}/wandb",
    "MLFLOW_RUN_ID": "starts with one exp_name are one run",
    "MLFLOW_EXPERIMENT_NAME": "the parameter mlflow_experiment_name, else exp_name",
    "MLFLOW_EXPERIMENT_ID": "the parameter mlflow_experiment_name, else exp_name",
}
CALLERS = "RANKSIDE_REPLAY"  # the names of variables, in the process of a replay


def path(run_dir: Path) -> Path:
    """Of the file: {"NAME": "value"} and the attempt that said it, mode 0600."""
    return run_dir / "sinks" / "environ.json"


def load(run_dir: Path) -> dict[str, str]:
    """What the trainings of this run have said; in a replay, what its user has said goes before."""
    found = files.read_json(path(run_dir))
    callers = os.environ.get(CALLERS, "").split(",")
    told = _ours(found) if isinstance(found, dict) else {}
    return {name: value for name, value in told.items() if name not in callers}


def store(run_dir: Path, environ: Mapping[str, str], attempt: int = 1, prefixes: Sequence[str] = ()) -> bool:
    """Keep what a rank said; whether something that was said before counts no more. Raises OSError.

    Of the trackers that an attempt turns on (whose variables begin with `prefixes`) the newest attempt's
    environment counts as a whole: what it no longer sets is gone. Ranks of one attempt add to each other.
    """
    found = files.read_json(path(run_dir))
    told = found if isinstance(found, dict) else {}
    known, ours, newest = _ours(told), _ours(environ), _number(told.get(_ATTEMPT))
    if attempt < newest:
        return False
    stays = {n: v for n, v in known.items() if attempt == newest or not n.startswith(tuple(prefixes))}
    wanted = {**stays, **ours}
    if (wanted, attempt) != (known, newest):
        files.replace_json(path(run_dir), {_ATTEMPT: attempt, **wanted}, private=True)
    return attempt > newest and any(wanted.get(name) != value for name, value in known.items())


def ignored(environ: Mapping[str, Any], prefixes: Sequence[str]) -> str:
    """What the training has set for its trackers in vain, and what counts instead; empty where nothing."""
    told = [
        f"{name} (instead: {instead})"
        for name, instead in _INSTEAD.items()
        if environ.get(name) and name.startswith(tuple(prefixes))
    ]
    return f"variables that are set and not used: {'; '.join(told)}" if told else ""


def forget_secrets(run_dir: Path) -> None:
    """Of a run that is over; a replay is given the caller's."""
    known = load(run_dir)
    if known:
        try:
            files.replace_json(path(run_dir), safe_environ(known), private=True)
        except OSError:  # a full disk: rather nothing than a secret
            with suppress(OSError):
                path(run_dir).unlink()


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _ours(environ: Mapping[str, Any]) -> dict[str, str]:
    """A stranger's LD_PRELOAD is none of them."""
    return {
        name: value
        for name, value in environ.items()
        if isinstance(name, str) and isinstance(value, str) and is_of_tracker(name)
    }
