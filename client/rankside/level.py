"""What a caller means by a level: its number, and the name that people read.

Separate because log calls and the rank helpers must agree, and any value may come: a name in any case, a
number, a name that the program gave to logging or loguru, or nothing that is a level at all.
"""

from __future__ import annotations

import operator
import sys
from typing import Any, NamedTuple

from rankside.parameters import LEVELS

_HIGHEST = 2**31 - 1  # what every reader of a record takes for a number


class Level(NamedTuple):
    """As a record has it."""

    number: int
    name: str


class NoLevel(ValueError):
    """Says what was given, and what may be."""


INFO = Level(20, "INFO")
_NAMED = {name: Level(number, name) for name, number in LEVELS.items()}
_NUMBERED = {number: Level(number, name) for name, number in reversed(LEVELS.items())}


def of_call(given: Any) -> Level:
    """The level of that name or number. Raises NoLevel, and nothing else."""
    found = _NAMED.get(given) if type(given) is str else None
    try:
        found = found or (_by_name(given) if isinstance(given, str) else _by_number(given))
    except Exception:  # noqa: BLE001  a stranger's __index__, or a logging that somebody changed
        found = None
    if found is None:
        raise NoLevel(f"level {_shown(given)} is unknown; choices: {', '.join(LEVELS)}, or a number from 0")
    return found


def _by_name(given: str) -> Level | None:
    plain = given.strip()
    return _NAMED.get(plain.upper()) or _of_logging(plain) or _of_loguru(plain)


def _by_number(given: Any) -> Level | None:
    number = None if isinstance(given, bool) else operator.index(given)
    if number is None or not 0 <= number <= _HIGHEST:
        return None
    return _NUMBERED.get(number) or Level(number, _called(number))


def _called(number: int) -> str:
    """`Level 35`, as logging and loguru call it, unless the program named it."""
    logging = sys.modules.get("logging")
    return str(logging.getLevelName(number)) if logging else f"Level {number}"


def _of_logging(name: str) -> Level | None:
    logging = sys.modules.get("logging")
    for each in (name, name.upper()) if logging else ():
        number = logging.getLevelName(each)  # type: ignore[union-attr]  # and "Level X" where there is none
        if isinstance(number, int):
            return Level(number, each)
    return None


def _of_loguru(name: str) -> Level | None:
    loguru = sys.modules.get("loguru")
    for each in (name, name.upper()) if loguru else ():
        try:
            return Level(int(loguru.logger.level(each).no), each)  # type: ignore[union-attr]  # as above
        except ValueError:
            continue
    return None


def _shown(given: Any) -> str:
    try:
        return repr(given)[:100]
    except Exception:  # noqa: BLE001  a __repr__ may raise anything
        return f"of type {type(given).__name__}"
