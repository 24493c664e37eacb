"""What parameters and environment are worth saying when a run starts: deprecations, contradictions, no key.

Separate from the settings because nothing here changes a value, and one rank says it for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from rankside.parameters import LEVELS

# Given all the same, they change nothing: where it goes instead
_DEPRECATED = {"wandb_save_dir": "wandb", "tensorboard_dir": "tensorboard"}
_UPLOADS = ("mlflow_upload_traces", "mlflow_upload_logs", "mlflow_upload_performance_metrics")
_WANDB_HOST = "api.wandb.ai"
_NETRC_BYTES = 64 << 10
# Instead of a key, W&B also takes the file of an identity
_WANDB_WITHOUT_KEY = ("disabled", "offline", "dryrun")
_WANDB_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")


def at_start(values: Mapping[str, Any], exp_root: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """One text each, for the log; `values` are resolved."""
    return tuple(text for look in _LOOKS for text in look(values, exp_root, environ))


def _about_deprecated(values: Mapping[str, Any], exp_root: str, _environ: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is deprecated and ignored: the files go to {exp_root}/{folder}"
        for name, folder in _DEPRECATED.items()
        if values[name] is not None
    ]


def _about_wandb(values: Mapping[str, Any], exp_root: str, environ: Mapping[str, str]) -> list[str]:
    on = not values["disable_wandb"] or values["metrics.enable_wandb"]
    meant = environ.get("WANDB_MODE", "").strip().lower() in _WANDB_WITHOUT_KEY
    if not on or meant or _has_wandb_key(environ):
        return []
    return [f"WANDB_API_KEY is not set: W&B writes offline files to {exp_root}/wandb"]


def _has_wandb_key(environ: Mapping[str, str]) -> bool:
    if any(environ.get(name, "").strip() for name in _WANDB_KEYS):
        return True
    address = environ.get("WANDB_BASE_URL", "").strip() or f"https://{_WANDB_HOST}"
    host = address.rpartition("//")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]
    home = Path(environ.get("HOME") or "/nonexistent")
    named = environ.get("NETRC")
    return any(
        _in_netrc(path, host) for path in ([Path(named)] if named else [home / ".netrc", home / "_netrc"])
    )


def _in_netrc(path: Path, host: str) -> bool:
    """Whether it holds an entry of this host; not more than a look, for the tracker reads it itself."""
    try:
        with path.open("rb") as file:
            words = file.read(_NETRC_BYTES).decode("utf-8", "replace").split()
    except OSError:
        return False
    return any(pair == ("machine", host) for pair in pairwise(words))


def _about_mlflow(values: Mapping[str, Any], exp_root: str, environ: Mapping[str, str]) -> list[str]:
    if values["disable_mlflow"]:
        idle = [name for name in _UPLOADS if values[name]]
        return [f"disable_mlflow is true, without effect: {', '.join(idle)}"] if idle else []
    if any(environ.get(name, "").strip() for name in ("DATABRICKS_HOST", "MLFLOW_TRACKING_URI")):
        return []
    store = f"sqlite:///{os.path.join(exp_root, 'mlflow.db')}"
    return [f"MLFLOW_TRACKING_URI is not set, and neither is DATABRICKS_HOST: MLflow writes to {store}"]


def _about_console(_values: Mapping[str, Any], _exp_root: str, environ: Mapping[str, str]) -> list[str]:
    said = environ.get("PRIMUS_LOG_LEVEL", "").strip()
    if not said or said.upper() in LEVELS:
        return []
    return [f"PRIMUS_LOG_LEVEL: {said[:100]!r} is no level and was ignored; choices: {', '.join(LEVELS)}"]


_LOOKS: tuple[Callable[[Mapping[str, Any], str, Mapping[str, str]], list[str]], ...] = (
    _about_deprecated,
    _about_wandb,
    _about_mlflow,
    _about_console,
)
