"""How a run is named in W&B, and what a user's environment has to say about it.

Separate because these are the users' rules: Megatron's parameters, TorchTitan's variables, W&B's own.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from rankside.secrets import known_values, masked_text
from rankside_agent.sinks.flat import writable
from rankside_agent.sinks.points import Source
from rankside_agent.sinks.wandb_records import Identity, Labels

log = logging.getLogger(__name__)

_ILLEGAL = re.compile(r"[/\\#?%:\x00-\x1f\ud800-\udfff]")  # in a project's name
_LONGEST = 128
_IGNORED = ("WANDB_DIR", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SERVICE", "WANDB_SWEEP_ID", "WANDB_NAME")
_OFF = {"WANDB_DISABLED": ("true", "1", "yes"), "WANDB_MODE": ("disabled",)}
_KEPT = ("WANDB_BASE_URL", "WANDB_API_KEY")  # without them rows would go to another server, or to none


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
    if switched_off_by():
        return "disabled"
    said = os.environ.get("WANDB_MODE", "online").lower()
    return "offline" if said in ("dryrun", "offline") else "online"


def switched_off_by() -> str:
    """The variable that switches W&B off, with its value; empty where none does."""
    for name, values in _OFF.items():
        if (value := os.environ.get(name, "")).lower() in values:
            return f"{name}={value}"
    return ""


def settle_environ() -> None:
    """Make our environment fit for W&B's client, which would go elsewhere with some of it, or not at all."""
    for name in _IGNORED:
        os.environ.pop(name, None)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        os.environ[name] = os.environ[name].strip()  # the line's end of a file that a key was read from
    if mode() == "online":
        _drop_unusable()


def _drop_unusable() -> None:
    """W&B's client refuses to do anything for one setting; told of once, for it is then gone."""
    from wandb import Settings

    for name in sorted(name for name in os.environ if name.startswith("WANDB_") and name not in _KEPT):
        try:
            Settings().update_from_env_vars({name: os.environ[name]})
        except Exception as error:  # noqa: BLE001  W&B's client is foreign code
            value = masked_text(os.environ.pop(name), known_values(os.environ))
            log.warning("%s=%s is left out: %s", name, value, reason(error))


def reason(error: Exception) -> str:
    """In words; of a pydantic error its sentences, with the choices: the whole text quotes the value."""
    errors = getattr(error, "errors", None)
    told = errors() if callable(errors) else []
    sentences = [f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg')}" for each in told]
    return "; ".join(sentences) or f"{type(error).__name__}: {error}"
