"""A configuration file as Primus reads it: YAML, JSON or TOML, `extends` and `includes`, `${VAR:default}`.

Separate from what the names in it mean. Of every value it is known which file it came from, for errors are to
name that one. A file may be anything, so its size, depth and number of values are bounded, and no text of its
own gets into an error: it may hold keys.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rankside.settings import ConfigError

_MOST_BYTES = 512 << 10  # of one file, which take half a second to read; Primus' longest has 20 KB
_MOST_VALUES = 200_000  # of one file, written out; a few hundred bytes of YAML can stand for billions
_DEEPEST = 60  # of values in values, and of files that extend files
_VARIABLE = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")  # the same texts as Primus'
_BASES = ("includes", "extends")  # how older and newer Primus name the files that come before

Key = tuple[str, ...]


class Document(NamedTuple):
    """Values with all that they extend, and for each the file that it stands in."""

    values: dict[str, Any]
    origins: dict[Key, str]

    def place(self, key: Key, otherwise: str) -> str:
        """Where the value of `key`, or what it lies in, comes from."""
        for length in range(len(key), 0, -1):
            if key[:length] in self.origins:
                return self.origins[key[:length]]
        return otherwise

    def teller(self, place: str, above: Key = ()) -> Callable[[str], str]:
        """Says of a name below `above` which file and key it is; of no name, of `above` itself."""

        def tell(name: str) -> str:
            key = (*above, name) if name else above
            if name and key not in self.origins:
                key = (*above, *name.split("."))
            return f"{self.place(key, place)}: {dotted(key)}"

        return tell


class Loader:
    """Reads files with what they extend, each once, with the variables of one environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._known: dict[str, Document] = {}

    def load(
        self, path: Path, above: tuple[str, ...] = (), asked: str = "", doubled: bool = False
    ) -> Document:
        """The file with all it extends. Raises ConfigError.

        `above` are the files that led to it, `asked` is the file and key that name it. With `doubled` the
        last of two equal names counts, as PyYAML and so Primus has it.
        """
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):  # a NUL in it, a circle of links
            raise ConfigError(f"{asked}{_cut(str(path))}: cannot be a file") from None
        if real in above:
            raise ConfigError(f"{above[-1]}: extends: {_cut(str(path))} leads in a circle")
        if len(above) > _DEEPEST:
            raise ConfigError(f"{path}: extends: more than {_DEEPEST} files deep")
        if real not in self._known:
            found = read(path, asked, doubled)
            self._known[real] = self.build(found, str(path), path.parent, (*above, real), doubled)
        return self._known[real]

    def build(
        self,
        given: Mapping[Any, Any],
        place: str,
        folder: Path,
        above: tuple[str, ...] = (),
        doubled: bool = False,
    ) -> Document:
        """What `given` comes to with its variables and the files it extends, named from `folder` on."""
        values = _Substitution(place, self._environ).mapping(given)
        own = {name: value for name, value in values.items() if name not in _BASES}
        base = Document({}, {})
        for word in _BASES:
            for name in _named(values.get(word), f"{place}: {word}"):
                base = _merged(base, self.load(folder / name, above, f"{place}: {word}: ", doubled))
        if values.get("includes") is not None:  # whose groups are replaced whole; those of extends, joined
            base = Document(
                {name: each for name, each in base.values.items() if name not in own}, base.origins
            )
        return _merged(base, Document(own, dict.fromkeys(_keys(own), place)))


def read(path: Path, asked: str = "", doubled: bool = False) -> Mapping[Any, Any]:
    """What the file itself holds. Raises ConfigError; see `load`."""
    try:
        data = _bytes(path)
    except (OSError, ValueError) as error:  # a NUL in the path
        raise ConfigError(f"{asked}{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path}: has more than {_MOST_BYTES} bytes; this is no configuration")
    try:
        text = data.decode("utf-8-sig")  # an editor of Windows puts a mark before it
        found = _PARSERS.get(path.suffix.lower(), _yaml)(path, text, doubled)
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text: {error.reason} at byte {error.start}") from None
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"{path}: holds a {type(found).__name__}; names and values are wanted")
    return found or {}


def _bytes(path: Path) -> bytes:
    """One more than may be. A pipe that nobody writes to is not waited for; it would hold a start up."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise OSError("Is a directory" if stat.S_ISDIR(mode) else "is not a regular file")
        return file.read(_MOST_BYTES + 1)


def _json(path: Path, text: str, doubled: bool) -> Any:
    import json

    def named(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs) and not doubled:
            twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
            raise ConfigError(f"{path}: the name {twice[:100]!r} stands twice in one group")
        return found

    try:
        return json.loads(text, object_pairs_hook=named)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ConfigError:
        raise
    except ValueError:  # a number of more digits than Python reads
        raise ConfigError(f"{path}: holds a value that cannot be read") from None


def _toml(path: Path, text: str, _doubled: bool) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib

        try:
            return tomllib.loads(text)
        except ValueError as error:
            where = re.search(r"\(at .*\)\Z", str(error))
            raise ConfigError(f"{path}: is no TOML {where[0] if where else ''}".rstrip()) from None
    raise ConfigError(f"{path}: reading TOML needs Python 3.11; or give YAML, or a dict")


def _yaml(path: Path, text: str, doubled: bool) -> Any:
    from rankside import config_yaml

    try:
        return config_yaml.parsed(text, doubled)
    except ImportError:
        raise ConfigError(f"{path}: reading YAML needs PyYAML: pip install pyyaml; or give a dict") from None
    except config_yaml.NotYaml as error:
        raise ConfigError(f"{path}: {error}") from None


_PARSERS: dict[str, Callable[[Path, str, bool], Any]] = {".json": _json, ".toml": _toml}


class _Substitution:
    """Copies values with their variables replaced, up to a number of values."""

    def __init__(self, place: str, environ: Mapping[str, str]) -> None:
        self._place = place
        self._environ = environ
        self._left = _MOST_VALUES

    def mapping(self, given: Mapping[Any, Any], key: Key = ()) -> dict[str, Any]:
        """With names as texts. Raises ConfigError."""
        where = f"{self._place}: {dotted(key)}" if key else self._place
        return {name: self._value(value, (*key, name)) for name, value in _named_by_text(given, where)}

    def _value(self, value: Any, key: Key) -> Any:
        self._left -= 1
        if self._left < 0 or len(key) > _DEEPEST:
            raise ConfigError(f"{self._place}: {dotted(key)}: too many values, or too deep")
        if isinstance(value, Mapping):
            return self.mapping(value, key)
        if type(value) is list:
            return [self._value(item, (*key, str(number))) for number, item in enumerate(value)]
        return _VARIABLE.sub(lambda found: self._variable(found, key), value) if type(value) is str else value

    def _variable(self, found: re.Match[str], key: Key) -> str:
        name, default = found[1], found[2]
        value = self._environ.get(name, default)
        if value is None:
            raise ConfigError(
                f"{self._place}: {dotted(key)}: the variable {_cut(name)} is not set; "
                f"choices: set it, or give a default: ${{{_cut(name)}:default}}"
            )
        return value


def dotted(key: Key) -> str:
    """As people write it; a deep one is cut."""
    return _cut(".".join(key))


def _merged(base: Document, over: Document) -> Document:
    return Document(_joined(base.values, over.values), {**base.origins, **over.origins})


def _named_by_text(given: Mapping[Any, Any], where: str) -> list[tuple[str, Any]]:
    try:
        return [(str(name), value) for name, value in given.items()]
    except Exception as error:  # noqa: BLE001  a mapping or a name of a stranger's type
        what = f"its names and values cannot be read: {type(error).__name__}"
        raise ConfigError(f"{where}: {what}") from None


def _named(given: Any, where: str) -> list[str]:
    """The files that an `extends` names."""
    names = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{where}: is not allowed; choices: a path, a list of paths")
    return list(names)


def _joined(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for name, value in over.items():
        known = found.get(name)
        found[name] = _joined(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return found


def _keys(values: dict[str, Any], above: Key = ()) -> set[Key]:
    """Of everything that is no group, and of empty groups."""
    found: set[Key] = set()
    for name, value in values.items():
        inner = _keys(value, (*above, name)) if isinstance(value, dict) else set()
        found |= inner or {(*above, name)}
    return found


def _cut(text: str) -> str:
    plain = text.encode("utf-8", "backslashreplace").decode()
    plain = plain if plain.isprintable() else repr(plain)[1:-1]
    return plain if len(plain) <= 200 else f"{plain[:200]}..."
