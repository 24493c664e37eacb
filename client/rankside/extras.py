"""What a program ties to a log record beside its text: loguru's bound values, stdlib's `extra=`.

Separate from both captures because it is the same for both: what Primus binds is in every line already, the
rest goes with the record as plain values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

from rankside import record

_MOST = 50  # of one record
_MOST_ITEMS, _MOST_CHARACTERS = 1000, 64 << 10  # in these, together
# Bound by Primus' logger, or by rankside itself: they stand in the line, or steer it
_IN_THE_LINE = frozenset(
    ("user", "team", "exp", "module_name", "node_ip", "rank", "world_size", "console_only", "file", "line")
)
_OF_LOGGING = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName")) | _IN_THE_LINE
_PLAIN = len(vars(logging.makeLogRecord({})))


def bound(extra: Mapping[Any, Any]) -> dict[str, Any] | None:
    """loguru's, where there are any."""
    names = extra.keys() - _IN_THE_LINE
    return _plain({name: extra[name] for name in extra if name in names}) if names else None


def attached(found: logging.LogRecord) -> dict[str, Any] | None:
    """stdlib's, where there are any."""
    values = vars(found)
    if len(values) <= _PLAIN:
        return None
    return _plain({name: values[name] for name in values if name not in _OF_LOGGING}) or None


def _plain(values: dict[Any, Any]) -> dict[str, Any]:
    if len(values) > _MOST:
        values = dict(islice(values.items(), _MOST))
    plain = record.tree(values, _MOST_ITEMS, _MOST_CHARACTERS)
    return plain if isinstance(plain, dict) else {"extra": plain}
