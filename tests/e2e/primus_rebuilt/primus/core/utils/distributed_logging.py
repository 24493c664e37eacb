"""Primus' rank helpers of before module_utils.py, rebuilt: the block of names and values as it was then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from primus.core.utils import logger
from primus.core.utils.module_utils import SPEAKERS, log_rank_0


def debug_rank_all(msg: object, *args: Any, **kwargs: Any) -> None:
    module, line = logger.caller()
    logger.debug_with_caller(msg, module, "", line)


def log_dict_aligned(title: str, data: Any, indent: str = "  ", rank_filter: str = "rank_0") -> None:
    """Below a title with their number: names in a column, and values."""
    say = SPEAKERS.get(rank_filter, log_rank_0)
    values = vars(data) if isinstance(data, SimpleNamespace) else data
    say(f"{title}: ({len(values)} parameters)" if values else f"{title}: (empty)")
    width = max((len(str(name)) for name in values), default=0)
    for name, value in sorted(values.items()):
        say(f"{indent}{name!s:<{width}} : {value}")
