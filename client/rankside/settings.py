"""What `init` was given, and what that comes to: configuration from a file, a dict or keywords, resolved.

Separate from the table of parameters: this file knows where values come from, that one what they may be.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rankside import endpoint as endpoints
from rankside.layer import Layer, Source
from rankside.parameters import LEVELS, PARAMETERS

LEVEL_NAMES = ("sink_level", "file_sink_level", "stderr_sink_level")
_LONGEST = 200  # characters of a value or name in an error
_MOST_GUESSED = 1000  # unknown names that are compared with ours; Megatron has 600
_MOST_HINTS = 10
_ALIKE = 0.82  # Megatron's eval_interval is as like log_interval as 0.8
_MOST_SPOOL = 1 << 40
DEFAULT_FLUSH = 2.0  # seconds that leaving may wait for the agent
# Whoever sets one of these trains with TorchTitan; every rank's metrics are wanted by others, too
_TITAN = frozenset(name for name in PARAMETERS if "." in name) - {"metrics.save_for_all_ranks"}
GROUPS = frozenset(name.partition(".")[0] for name in PARAMETERS if "." in name)


class ConfigError(ValueError):
    """A known parameter with a bad value, or a configuration that cannot be read. Names place and choices."""


class Config(NamedTuple):
    """Every parameter's value, and remarks for the log: of every rank, and of the one that speaks for all."""

    values: dict[str, Any]
    notes: tuple[str, ...]
    remarks: tuple[str, ...]
    given: dict[str, str]  # by the name of a parameter: the file, "config" or "init()" that its value is from
    names: dict[str, str]  # of work_group, user_name, exp_name, workspace, those that the file or dict gives


def resolve(
    config: str | os.PathLike[str] | Mapping[str, Any] | None,
    overrides: Mapping[str, Any],
    module_name: str = "pretrain",
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Defaults, then the file or dict, then keywords. Raises ConfigError, in which nothing secret stands."""
    try:
        return _resolved(config, overrides, str(module_name), environ)
    except ConfigError as error:
        raise ConfigError(_masked(str(error), environ)) from None


def _resolved(
    config: Any, overrides: Mapping[str, Any], module_name: str, environ: Mapping[str, str]
) -> Config:
    source = Source("config") if config is None else _found(config, module_name, environ)
    values = {name: copy.copy(parameter.default) for name, parameter in PARAMETERS.items()}
    theirs = [name for layer in source.layers if layer.own for name in split(layer.values, layer.where)[1]]
    notes = _about_unknown(source.place, list(dict.fromkeys((*theirs, *source.others))), environ)
    given: dict[str, str] = {}
    for layer in (*source.layers, Layer(overrides, "init(): {}".format)):
        known, unknown = split(layer.values, layer.where)
        for name, value in known.items():
            if value is None and layer.nulls:
                values[name] = copy.copy(PARAMETERS[name].default)
            else:
                values[name] = _checked(layer.where(name), name, value)
            given[name] = layer.where(name).rpartition(": ")[0]
    notes += _about_unknown("init()", unknown, environ)
    if "framework" not in given and (given.keys() & _TITAN or source.place.endswith(".toml")):
        values["framework"] = "torchtitan"
    remarks = (
        *(_masked(text, environ) for text in source.remarks),
        *_forced(values),
        *_about_secrets(values, given, environ),
    )
    return Config(values, tuple(notes), remarks, given, dict(source.names))


def _found(config: Any, module_name: str, environ: Mapping[str, str]) -> Source:
    try:
        from rankside import config_source  # a start without a file has no use for it
    except OSError as error:  # a process may have no file descriptors left
        raise ConfigError(f"init(): config: cannot be read: {error.strerror}") from None
    return config_source.find(config, module_name, environ)


def with_levels(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in another module, as Primus takes its levels: what is not given stays as it was.

    A `sink_level` of the module before is what the other two were; it does not hold against one of them now.
    Raises ConfigError for a bad level, and for anything that is no level.
    """
    levels = checked_levels(given)
    both = config.get("sink_level")
    if both and any(levels.values()) and "sink_level" not in levels:
        config = {**config, "sink_level": None, "file_sink_level": both, "stderr_sink_level": both}
    return {**config, **levels}


def checked_levels(given: Mapping[str, Any]) -> dict[str, Any]:
    """Levels of another module. Raises ConfigError for a bad level, and for anything that is no level."""
    for name in given:
        if name not in LEVEL_NAMES:
            choices = ", ".join(LEVEL_NAMES)
            raise ConfigError(f"set_module(): {name}: is not allowed; choices: {choices}")
    return {name: _checked(f"set_module(): {name}", name, value) for name, value in given.items()}


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


def split(
    given: Mapping[Any, Any], where: Callable[[str], str] = "config: {}".format
) -> tuple[dict[str, Any], list[str]]:
    """Known parameters by their full name, and the names that are none.

    Raises ConfigError where one that is a section holds a plain value; `where` tells its place.
    """
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for key, value in given.items():
        name = _as_text(key)
        if name in GROUPS:
            inner, strange = split(_section(where(name), name, value), where)
            known.update(inner)
            unknown += strange
        elif name in PARAMETERS:
            known[name] = value
        else:
            unknown.append(name)
    return known, unknown


def _section(place: str, group: str, value: Any) -> dict[str, Any]:
    """What a section holds, by full names; nothing at all in an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        choices = ", ".join(name.partition(".")[2] for name in PARAMETERS if name.startswith(f"{group}."))
        raise ConfigError(f"{place}: {shown(value)} is not allowed, it is a section; it may hold {choices}")
    return {f"{group}.{_as_text(name)}": item for name, item in value.items()}


def _as_text(name: Any) -> str:
    try:
        return str(name)
    except Exception:  # noqa: BLE001  a stranger's type
        return type(name).__name__


def _checked(where: str, name: str, value: Any) -> Any:
    parameter = PARAMETERS[name]
    if parameter.default is None and (value is None or (type(value) is str and value == "null")):
        return None  # the word, too: Primus takes it so where a variable's default is null
    try:
        return parameter.kind.check(value)
    except Exception:  # noqa: BLE001  a value may be of any type, and its methods raise anything
        raise ConfigError(
            f"{where}: {shown(value)} is not allowed; choices: {parameter.kind.choices}"
        ) from None


def shown(value: Any) -> str:
    """For an error: a dict may hold keys, a text may be a whole file."""
    from rankside import record, secrets

    try:
        plain = type(value) in (dict, list, str)
        text = repr(secrets.masked_params(value)) if plain else secrets.masked_text(repr(value))
    except Exception:  # noqa: BLE001  a stranger's repr, or values in a circle
        text = f"a {type(value).__name__}"
    return record.cut(text, _LONGEST)


def _masked(text: str, environ: Mapping[str, str]) -> str:
    from rankside import secrets

    return secrets.masked_plain(text, secrets.known_values(environ))


def _about_secrets(
    values: Mapping[str, Any], given: Mapping[str, str], environ: Mapping[str, str]
) -> Iterator[str]:
    """A project that is named as a secret is: masked, it would be another project; so it is told of."""
    texts = {name: values[name] for name in given if type(values[name]) is str}
    if not texts:
        return
    from rankside import secrets

    known = secrets.known_values(environ)
    for name, text in texts.items():
        if any(value in text for value in known):
            yield (
                f"{given[name]}: {name}: holds the value of a secret variable of the environment; it is kept "
                "in the agent's folder and given to the trackers as it is"
            )


def _about_unknown(where: str, unknown: list[str], environ: Mapping[str, str]) -> list[str]:
    """One remark: a Primus file holds hundreds of names that are not ours."""
    if not unknown:
        return []
    import difflib

    looked = unknown[:_MOST_GUESSED]
    guesses = {name: difflib.get_close_matches(name[:100], PARAMETERS, 1, _ALIKE) for name in looked}
    hints = [f"{name} (did you mean {guess[0]}?)" for name, guess in guesses.items() if guess][:_MOST_HINTS]
    rest = len(unknown) - len(hints)
    plain = [name for name, guess in guesses.items() if not guess][: 5 if rest <= 5 else 3]
    more = [f"{rest - len(plain)} more"] if rest > len(plain) else []
    listed = ", ".join([*(name[:_LONGEST] for name in hints + plain), *more])
    return [_masked(f"{where}: unknown parameters ignored: {listed}", environ)]


def check_limits(spool_bytes: Any, flush_seconds: Any, endpoint: Any) -> None:
    """Refuse what no spool or transport can work with. Raises ConfigError."""
    _demand(
        "spool_bytes",
        spool_bytes,
        _is_number(spool_bytes) and 1 <= spool_bytes <= _MOST_SPOOL,
        f"a number of bytes from 1 to {_MOST_SPOOL}",
    )
    _demand("flush_seconds", flush_seconds, _is_number(flush_seconds), "a number of seconds from 0")
    try:
        endpoints.of_ranks(endpoints.AUTO if endpoint is None else endpoint)
    except ValueError as error:
        raise ConfigError(f"init(): {error}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")


def _demand(name: str, value: Any, good: bool, choices: str) -> None:
    if not good:
        raise ConfigError(f"init(): {name}: {value!r} is not allowed; choices: {choices}")
