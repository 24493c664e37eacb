"""What `config=` is, a file or a dict of whatever form, as layers of values, the first below the next.

Separate from the settings, which check values: this file tells the forms apart, and finds whose experiment it
is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankside import config_file, primus_config
from rankside.layer import PLACE_NAMES, Layer, Source
from rankside.parameters import PARAMETERS
from rankside.settings import GROUPS, ConfigError, shown, split

_OF_FILES = frozenset((*PLACE_NAMES, "modules", "extends", "includes"))


def find(config: Any, module_name: str, environ: Mapping[str, str]) -> Source:
    """The layers of what `init` was given. Raises ConfigError."""
    loader = config_file.Loader(environ)
    others: tuple[str, ...] = ()
    if isinstance(config, Mapping):
        place, folder = "config", Path()
        given = _read(config)
        ours = {name: value for name, value in given.items() if _is_ours(name)}
        others = tuple(split({name: None for name in given if not _is_ours(name)})[1])
        document = loader.build(ours, place, folder)  # what the others hold is left alone
    else:
        path = _path(config)
        place, folder, document = str(path), path.parent, loader.load(path)
    names = _place_names(document, place)
    if primus_config.is_experiment(document.values):
        found = primus_config.experiment(document, place, module_name, folder, loader)
        others += primus_config.other_names(document.values)
        return Source(place, found.layers, others, names, found.remarks)
    flat = {name: value for name, value in document.values.items() if name not in PLACE_NAMES}
    return Source(place, (Layer(flat, document.teller(place)),), others, names)


def _read(config: Mapping[Any, Any]) -> dict[Any, Any]:
    try:
        return dict(config.items())
    except Exception as error:  # noqa: BLE001  a stranger's mapping may raise anything
        what = f"a {type(config).__name__} whose names and values cannot be read: {type(error).__name__}"
        raise ConfigError(f"init(): config: {what}") from None


def _path(config: Any) -> Path:
    try:
        if isinstance(config, str) and not config.strip():  # a variable that is not set, say
            raise TypeError
        return Path(config)
    except Exception:  # noqa: BLE001  a stranger's __fspath__ may raise anything
        what = shown(config) if isinstance(config, str) else f"a {type(config).__name__}"
        raise ConfigError(f"init(): config: {what} is not allowed; choices: a path, a dict") from None


def _is_ours(name: Any) -> bool:
    return isinstance(name, str) and (name in PARAMETERS or name in GROUPS or name in _OF_FILES)


def _place_names(document: Any, place: str) -> dict[str, str]:
    tell = document.teller(place)
    values = {name: document.values.get(name) for name in PLACE_NAMES}
    return {name: _name(tell(name), value) for name, value in values.items() if value is not None}


def _name(where: str, value: Any) -> str:
    """YAML makes a number of a name like 007; of `no`, it makes a false."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{where}: {shown(value)} is not allowed; choices: a text")
    return str(value)
