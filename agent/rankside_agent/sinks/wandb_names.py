"""How a run is named in W&B, and what a user's environment has to say about it.

Separate because these are the users' rules: Megatron's parameters, TorchTitan's variables, W&B's own.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from rankside_agent.sinks.flat import writable
from rankside_agent.sinks.points import Source
from rankside_agent.sinks.wandb_records import Identity, Labels

log = logging.getLogger(__name__)

_ILLEGAL = re.compile(r"[/\\#?%:\x00-\x1f\ud800-\udfff]")  # in a project's name
_LONGEST = 128
_IGNORED = ("WANDB_DIR", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SERVICE", "WANDB_SWEEP_ID", "WANDB_NAME")


def wanted(config: Mapping[str, Any]) -> bool:
    """Megatron's switch, or TorchTitan's."""
    return config.get("disable_wandb") is False or config.get("metrics.enable_wandb") is True


def identity(source: Source, key: str) -> Identity:
    """Of the run that a channel belongs to; the same for all attempts that continue each other."""
    suffix = f"-{source.beside}" if source.beside else ""
    config, environ = source.config, os.environ
    if config.get("disable_wandb") is False:
        project = str(config.get("wandb_project") or f"{source.team}_{source.user}")
        name = str(config.get("wandb_exp_name") or source.exp_name)
        entity = str(config.get("wandb_entity") or environ.get("WANDB_ENTITY") or "")
    else:
        project = environ.get("WANDB_PROJECT") or f"Primus-Titan-Pretrain-{source.team}_{source.user}"
        name = environ.get("WANDB_RUN_NAME") or source.exp_name
        entity = environ.get("WANDB_TEAM") or environ.get("WANDB_ENTITY") or ""
    return Identity(key + suffix, legal(project), writable(name + suffix)[:_LONGEST], entity)


def legal(project: str) -> str:
    """As W&B takes it: what it refuses becomes `-`."""
    made = _ILLEGAL.sub("-", project)[:_LONGEST] or "uncategorized"
    if made != project:
        log.warning("W&B takes no project of the name %r; it is called %r there", project, made)
    return made


def labels() -> Labels:
    """What W&B's client reads from the environment by itself, for a folder that it does not write."""
    environ = os.environ
    tags = tuple(tag.strip() for tag in environ.get("WANDB_TAGS", "").split(",") if tag.strip())
    return Labels(
        tags,
        environ.get("WANDB_NOTES", ""),
        environ.get("WANDB_RUN_GROUP", ""),
        environ.get("WANDB_JOB_TYPE", ""),
    )


def mode() -> str:
    """online, offline or disabled, as the environment wants it."""
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes"):
        return "disabled"
    said = os.environ.get("WANDB_MODE", "online").lower()
    return {"dryrun": "offline", "offline": "offline", "disabled": "disabled"}.get(said, "online")


def ignore_environ() -> None:
    """Take out of our environment what would lead W&B's client to another run or folder than ours."""
    for name in _IGNORED:
        os.environ.pop(name, None)
