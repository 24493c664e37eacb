"""What `init` was given, and what that comes to: configuration from a file, a dict or keywords, resolved.

Separate from the table of parameters: this file knows where values come from, that one what they may be.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rankside.identity import safe_name
from rankside.parameters import LEVELS, PARAMETERS

LEVEL_NAMES = ("sink_level", "file_sink_level", "stderr_sink_level")
DEFAULT_FLUSH = 2.0  # seconds that leaving may wait for the agent
# Whoever sets one of these trains with TorchTitan; every rank's metrics are wanted by others, too
_TITAN = frozenset(name for name in PARAMETERS if "." in name) - {"metrics.save_for_all_ranks"}
_GROUPS = frozenset(name.partition(".")[0] for name in PARAMETERS if "." in name)


class ConfigError(ValueError):
    """A known parameter with a bad value, or a configuration that cannot be read. Names place and choices."""


class Config(NamedTuple):
    """Every parameter's value, and remarks for the log: of every rank, and of the one that speaks for all."""

    values: dict[str, Any]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def resolve(
    config: str | os.PathLike[str] | Mapping[str, Any] | None, overrides: Mapping[str, Any]
) -> Config:
    """Defaults, then the file or dict, then keywords. Raises ConfigError."""
    values = {name: copy.copy(parameter.default) for name, parameter in PARAMETERS.items()}
    notes: list[str] = []
    given_names: set[str] = set()
    place = "config"
    if config is not None and not isinstance(config, Mapping):
        place = os.fspath(config)
        config = _read(Path(place))
    for where, given in ((place, config or {}), ("init()", overrides)):
        known, unknown = _split(given)
        given_names.update(known)
        values.update({name: _checked(where, name, value) for name, value in known.items()})
        notes += _about_unknown(where, unknown)
    if "framework" not in given_names and given_names & _TITAN:
        values["framework"] = "torchtitan"
    return Config(values, tuple(notes), _forced(values))


def checked_levels(given: Mapping[str, Any]) -> dict[str, Any]:
    """Levels of another module. Raises ConfigError for a bad level, and for anything that is no level."""
    for name in given:
        if name not in LEVEL_NAMES:
            choices = ", ".join(LEVEL_NAMES)
            raise ConfigError(f"set_module(): {name}: is not allowed; choices: {choices}")
    return {name: _checked("set_module()", name, value) for name, value in given.items()}


def file_level(config: Mapping[str, Any]) -> int:
    """The lowest level that goes to files: `sink_level`, else `file_sink_level`."""
    name = str(config.get("sink_level") or config.get("file_sink_level") or "DEBUG")
    return LEVELS.get(name.upper(), 10)


def _forced(values: dict[str, Any]) -> tuple[str, ...]:
    """What one parameter makes of another, as Primus does; profiling without TensorBoard writes nothing."""
    if not values["profile"] or not values["disable_tensorboard"]:
        return ()
    values["disable_tensorboard"] = False
    return ("profile is true: disable_tensorboard is set to false",)


def _read(path: Path) -> Mapping[str, Any]:
    import json

    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else _yaml(path, text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"{path}: holds a {type(found).__name__}; names and values are wanted")
    return found or {}


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigError(f"{path}: reading YAML needs PyYAML: pip install pyyaml; or give a dict") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}") from error


def _split(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Known parameters by their full name, and the names that are none."""
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for key, value in given.items():
        name = str(key)
        if name in _GROUPS and isinstance(value, Mapping):
            inner, strange = _split({f"{name}.{sub}": item for sub, item in value.items()})
            known.update(inner)
            unknown += strange
        elif name in PARAMETERS:
            known[name] = value
        else:
            unknown.append(name)
    return known, unknown


def _checked(where: str, name: str, value: Any) -> Any:
    parameter = PARAMETERS[name]
    if value is None and parameter.default is None:
        return None
    try:
        return parameter.kind.check(value)
    except (ValueError, TypeError, OverflowError):
        raise ConfigError(
            f"{where}: {name}: {value!r} is not allowed; choices: {parameter.kind.choices}"
        ) from None


def _about_unknown(where: str, unknown: list[str]) -> list[str]:
    """One remark: a Primus file holds hundreds of names that are not ours."""
    if not unknown:
        return []
    import difflib

    guesses = {name: difflib.get_close_matches(name, PARAMETERS, 1, 0.8) for name in unknown}
    hints = [f"{name} (did you mean {guess[0]}?)" for name, guess in guesses.items() if guess]
    rest = len(unknown) - len(hints)
    plain = [name for name, guess in guesses.items() if not guess][: 5 if rest <= 5 else 3]
    more = [f"{rest - len(plain)} more"] if rest > len(plain) else []
    return [f"{where}: unknown parameters ignored: {', '.join(hints + plain + more)}"]


class Place(NamedTuple):
    """Where a run's files go, and the names of its parts."""

    exp_root: str
    exp_name: str
    team: str
    user: str


def find_place(
    exp_name: str | None,
    exp_root: str | os.PathLike[str] | None,
    workspace: str | os.PathLike[str] | None,
    work_group: str | None,
    user_name: str | None,
    environ: Mapping[str, str] = os.environ,
) -> Place:
    """`exp_root`, or {workspace}/{work_group}/{user_name}/{exp_name} as Primus builds it; absolute."""
    team = str(
        work_group or environ.get("PRIMUS_TEAM") or "default"
    )  # YAML makes a number of a name like 007
    user = str(user_name or environ.get("PRIMUS_USER") or _login())
    if exp_root is not None:
        root = os.path.abspath(os.fspath(exp_root))
        return Place(root, str(exp_name or os.path.basename(root) or "experiment"), team, user)
    name = str(exp_name or environ.get("PRIMUS_EXP_NAME") or "experiment")
    space = os.fspath(workspace) if workspace is not None else environ.get("PRIMUS_WORKSPACE") or "./output"
    parts = [safe_name(part) for text in (team, user, name) for part in text.split("/") if part]
    return Place(os.path.abspath(os.path.join(space, *parts)), name, team, user)


def check_limits(spool_bytes: Any, flush_seconds: Any, endpoint: Any) -> None:
    """Refuse what no spool or transport can work with. Raises ConfigError."""
    _demand(
        "spool_bytes", spool_bytes, _is_number(spool_bytes) and spool_bytes >= 1, "a number of bytes from 1"
    )
    _demand("flush_seconds", flush_seconds, _is_number(flush_seconds), "a number of seconds from 0")
    known = endpoint is None or (isinstance(endpoint, str) and (endpoint == "auto" or "://" in endpoint))
    _demand("endpoint", endpoint, known, "auto, ipc:///path, tcp://host:port")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")


def _demand(name: str, value: Any, good: bool, choices: str) -> None:
    if not good:
        raise ConfigError(f"init(): {name}: {value!r} is not allowed; choices: {choices}")


def _login() -> str:
    try:
        import getpass

        return getpass.getuser()
    except (OSError, KeyError):  # a container's uid without a name
        return str(os.getuid())
