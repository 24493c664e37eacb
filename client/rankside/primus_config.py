"""An experiment of Primus': whose it is, which module section counts, and the presets that this one names.

Separate from reading files because it knows how Primus arranges them. Presets are looked for beside the
experiment and where Primus has its own; as there, a module's preset goes before the model's, and `overrides`
before both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rankside.config_file import Document, Loader
from rankside.layer import PLACE_NAMES, Layer
from rankside.parameters import FRAMEWORKS
from rankside.settings import ConfigError

# The sections that Primus' own commands take for a phase, and those of its examples
_SECTIONS = {
    "pretrain": ("pre_trainer",),
    "sft": ("sft_trainer", "post_trainer"),
    "posttrain": ("post_trainer", "sft_trainer"),
}
# Frameworks whose presets lie in the folder of another
_FOLDERS = {"light-megatron": "megatron"}
_PRESETS = {"model": "models", "config": "modules"}  # the first is the base: the module's keep their values
_BESIDE = frozenset((*PLACE_NAMES, "modules", "platform", "env", "name"))
_OF_SECTION = frozenset(("name", "module", "framework", "overrides", "params", *_PRESETS))


class Experiment(NamedTuple):
    """What a file says of one module, the first layer below the next, and what is worth saying of it."""

    layers: tuple[Layer, ...]
    remarks: tuple[str, ...]


def is_experiment(values: Mapping[str, Any]) -> bool:
    """Whether the parameters lie in sections of modules."""
    return "modules" in values


def experiment(document: Document, place: str, module_name: str, folder: Path, loader: Loader) -> Experiment:
    """The layers of the module that `module_name` stands for. Raises ConfigError."""
    sections = _sections(document, place)
    name, why = _chosen(sections, module_name, document.place(("modules",), place))
    where = document.teller(place, ("modules", name))
    section = _mapping(sections[name], where(""))
    framework = section.get("framework")
    if framework is not None and not isinstance(framework, str):
        raise ConfigError(f"{where('framework')}: is not allowed; choices: {', '.join(FRAMEWORKS)}")
    own = {each: value for each, value in section.items() if each not in _OF_SECTION}
    remarks = [f"{place}: {why}section modules.{name} is taken, framework {framework or 'not named'}"]
    if framework in FRAMEWORKS:
        own["framework"] = framework
    elif framework:
        remarks.append(
            f"{where('framework')}: {framework} is not known; its training line has Megatron's form"
        )
    presets = {
        kind: _preset(section[kind], kind, framework or "megatron", where, folder, loader)
        for kind in _PRESETS
        if section.get(kind) is not None
    }
    layers = [layer for layer in presets.values() if layer is not None]
    missing = [str(section[kind]) for kind, layer in presets.items() if layer is None]
    if missing:
        remarks[0] += f"; no Primus is here to have {' and '.join(missing)}: defaults count in their stead"
    layers.append(Layer(own, where, nulls=True))
    for word in ("params", "overrides"):
        more = _mapping(section.get(word), where(word))
        layers.append(Layer(more, document.teller(place, ("modules", name, word)), nulls=True))
    return Experiment(tuple(layers), tuple(remarks))


def other_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Names beside the modules that Primus does not know either."""
    return tuple(name for name in values if name not in _BESIDE)


def _sections(document: Document, place: str) -> dict[str, Any]:
    found = document.values["modules"]
    where = f"{document.place(('modules',), place)}: modules"
    if isinstance(found, list):  # as in one form of Primus: each says its name
        named = [_mapping(item, where) for item in found]
        found = {str(item.get("name") or item.get("module")): item for item in named}
    return _mapping(found, where)


def _chosen(sections: Mapping[str, Any], module_name: str, place: str) -> tuple[str, str]:
    """The section, and why it is that one where it is another than the module's."""
    for name in (module_name, *_SECTIONS.get(module_name, ()), f"{module_name}_trainer"):
        if name in sections:
            return name, ""
    trainers = [name for name in sections if "trainer" in name]
    if len(trainers) == 1:
        return trainers[0], f"no section for module {module_name}, "
    choices = ", ".join(sections) or ", ".join(_SECTIONS.get(module_name, ("pre_trainer", "post_trainer")))
    raise ConfigError(f"{place}: modules: holds no section for module {module_name}; choices: {choices}")


def _preset(
    name: Any, kind: str, framework: str, where: Callable[[str], str], folder: Path, loader: Loader
) -> Layer | None:
    """What the file of that name holds; None where only Primus has it, and Primus is not here."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise ConfigError(f"{where(kind)}: is not allowed; choices: the name of a preset, a relative path")
    file = name if name.endswith((".yaml", ".yml", ".json")) else f"{name}.yaml"
    homes = [home / "configs" / _PRESETS[kind] for home in _homes(folder)]
    places = [folder / file, *(home / _FOLDERS.get(framework, framework) / file for home in homes)]
    found = next(filter(_is_file, places), None)
    if found is not None:
        document = loader.load(found, doubled=True)  # Primus' own may hold some
        return Layer(document.values, document.teller(str(found)), nulls=True, own=False)
    if homes or "/" in name:
        choices = ", ".join(dict.fromkeys(map(str, places)))
        raise ConfigError(f"{where(kind)}: {name!r} cannot be found; choices: {choices}")
    return None


def _homes(folder: Path) -> list[Path]:
    """Folders of Primus' package: that of the import, a named one, the one the experiment lies in."""
    candidates = [*_imported(), Path(os.environ.get("PRIMUS_PATH") or "/nonexistent") / "primus"]
    candidates += [above / "primus" for above in Path(os.path.abspath(folder)).parents]
    return [home for home in dict.fromkeys(candidates) if (home / "configs" / "modules").is_dir()]


def _imported() -> Iterator[Path]:
    try:
        module = sys.modules.get("primus")
        spec = getattr(module, "__spec__", None) or (None if module else find_spec("primus"))
        yield from map(Path, getattr(spec, "submodule_search_locations", None) or ())
    except (ImportError, ValueError, AttributeError):  # a module of that name that is something else
        return


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: holds a {type(value).__name__}; choices: names and values")
    return value
