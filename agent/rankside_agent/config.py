"""Settings of a node's agent: a YAML file, with defaults that need none. Separate from a run's parameters,
which come from the training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rankside import endpoint
from rankside_agent.gpu import SOURCES


class SettingsError(ValueError):
    """A bad agent configuration; names the file, the key and what is allowed."""


class Settings(BaseModel):
    """Every key of configs/agent.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str = ""
    """Where ranks connect; empty: this user's socket, ipc:///tmp/rankside-{uid}/agent.sock."""
    state_dir: str = ""
    """Journals and cursors; empty: $RANKSIDE_STATE_DIR, else /var/tmp/rankside-{uid}/node. A local disk."""
    spool_dirs: tuple[str, ...] = ()
    """Further folders searched for spools of dead ranks; the ranks' defaults are always searched."""
    allowed_roots: tuple[str, ...] = ()
    """Folders below which runs may write, links resolved; empty: wherever the agent's user may."""
    rotation_bytes: Annotated[int, Field(ge=4096)] = 10_000_000
    """A log file that would grow beyond this is rotated first."""
    keep_rotated: Annotated[int, Field(ge=0)] | None = None
    """Rotated files kept of each log file; null: all."""
    gzip_rotated: bool = False
    """Compress rotated files."""
    journal_limit_bytes: Annotated[int, Field(ge=1 << 20)] = 8 << 30
    """Logs held for one run whose files cannot be written; beyond it the oldest are given up, counted."""
    segment_bytes: Annotated[int, Field(ge=1 << 16)] = 16 << 20
    """Size of one journal file."""
    keep_finished_days: Annotated[float, Field(ge=0)] = 14.0
    """How long a finished run's points stay, for a later replay."""
    stop_grace_seconds: Annotated[float, Field(ge=0)] = 15.0
    """After SIGTERM or SIGINT: how long living ranks are still served."""
    stop_flush_seconds: Annotated[float, Field(ge=0)] = 5.0
    """After that: how long files and trackers may take to catch up."""
    idle_exit_seconds: Annotated[float, Field(ge=0)] = 10.0
    """An agent that a rank started leaves this long after its last run is done and delivered."""
    lost_after_seconds: Annotated[float, Field(ge=1)] = 60.0
    """Silence after which a rank that cannot be watched (another host, over tcp) counts as lost."""
    system_seconds: Annotated[float, Field(ge=0)] = 15.0
    """Between two looks at the node's CPU, memory, disks, network and GPUs, for system/...; 0: never."""
    gpu_sources: tuple[str, ...] = tuple(SOURCES)
    """Where GPUs are read from, in the order in which they are tried."""
    finish_after_seconds: Annotated[float, Field(ge=0)] = 2.0
    """How long after its last rank a run is taken for finished."""

    @field_validator("gpu_sources")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in SOURCES]:
            raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(SOURCES)}")
        return names

    def resolved_endpoint(self) -> str:
        """Raises OSError where the socket folder is somebody else's, ValueError for what is no endpoint."""
        target = endpoint.wanted(self.endpoint)
        return endpoint.default_endpoint() if target == endpoint.AUTO else target

    def resolved_state_dir(self) -> Path:
        """The folder that one agent owns."""
        return Path(self.state_dir) if self.state_dir else default_state_dir(self.resolved_endpoint())


def default_state_dir(target: str) -> Path:
    """$RANKSIDE_STATE_DIR, else a folder of the node's that outlives a reboot; one for each endpoint."""
    named = os.environ.get("RANKSIDE_STATE_DIR")
    if named:
        return Path(named)
    group = endpoint.spool_group(target)
    return Path(f"/var/tmp/rankside-{os.getuid()}") / group


def load(path: str | None, **overrides: Any) -> Settings:
    """From `path` or $RANKSIDE_CONFIG, with command-line values on top. Raises SettingsError."""
    named = path or os.environ.get("RANKSIDE_CONFIG")
    values = _read(Path(named)) if named else {}
    values.update({key: value for key, value in overrides.items() if value is not None})
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_message(named or "settings", error)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise SettingsError(f"{path}: holds a {type(found).__name__}; keys and values are wanted")
    return {key: value for key, value in (found or {}).items() if value is not None or key == "keep_rotated"}


def _message(place: str, error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key {key!r}; known: {', '.join(Settings.model_fields)}"
    return f"{place}: {key}: {problem['input']!r}: {problem['msg']}"
