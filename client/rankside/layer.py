"""Values of one place in a configuration, and all that a file or dict says: what settings are made of.

Separate from reading them, which a start without a file has no need of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PLACE_NAMES = ("work_group", "user_name", "exp_name", "workspace")


class Layer(NamedTuple):
    """Values of one place. `where` tells file and key of a name in it, for errors."""

    values: Mapping[Any, Any]
    where: Callable[[str], str]
    nulls: bool = False  # whether a null stands for the default, as in Primus' files
    own: bool = True  # whether its user wrote it, and is told of unknown names in it


class Source(NamedTuple):
    """All that a file or dict says, the first layer below the next."""

    place: str
    layers: tuple[Layer, ...] = ()
    others: tuple[str, ...] = ()  # names in it that belong to no layer
    names: Mapping[str, str] = {}  # of PLACE_NAMES: whose experiment it is
    remarks: tuple[str, ...] = ()
