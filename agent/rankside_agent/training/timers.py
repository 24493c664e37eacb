"""Timers of all ranks of the node, as Megatron prints them on the last rank.

Separate because they are joined from several ranks, without a collective: what has come by then counts.
Which level a timer has, and the three forms, are Megatron's (megatron/core/timers.py, training.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_WIDTH = 48  # of a name with its dots
_LEVELS = {
    0: (
        *("interval", "iteration", "eval", "save-checkpoint", "load-checkpoint"),
        *("model-and-optimizer-setup", "train/valid/test-data-iterators-setup"),
    ),
    1: (
        *("forward-backward", "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "all-grads-sync"),
        *("params-all-gather", "optimizer", "optimizer-copy-to-main-grad", "optimizer-unscale-and-check-inf"),
        *("optimizer-clip-main-grad", "optimizer-count-zeros", "optimizer-inner-step"),
        *("optimizer-copy-main-to-model-params", "conditional-embedder-grads-all-reduce"),
        "non-tensor-parallel-grads-all-reduce",
    ),
}
_LEVEL_OF = {name: level for level, names in _LEVELS.items() for name in names}
_OTHERS = 2  # forward-compute, backward-recv and their like

Times = Mapping[str, Mapping[str, float]]  # seconds, by timer and by rank


def timers_text(times: Times, level: int, option: str) -> str:
    """The lines of all timers up to `level`, or nothing. `option`: "max", "minmax" or "all"."""
    shown = {name: ranks for name, ranks in times.items() if ranks and _level(name) <= level}
    if not shown:
        return ""
    title, rows = _FORMS[option]
    return "\n".join([title, *(row for name in shown for row in rows(name, shown[name]))])


def wanted(times: Mapping[str, Any], level: int) -> bool:
    """Whether any of these would be shown."""
    return any(_level(name) <= level for name in times)


def _level(name: str) -> int:
    return _LEVEL_OF.get(name.removesuffix("-time"), _OTHERS)


def _max(name: str, ranks: Mapping[str, float]) -> Iterator[str]:
    yield f"    {_dotted(name)}: {_milli(max(ranks.values()))}"


def _minmax(name: str, ranks: Mapping[str, float]) -> Iterator[str]:
    least, most = min(ranks.values()), max(ranks.values())
    yield f"    {_dotted(name)}: ({_milli(least)}, {_milli(most)})"


def _all(name: str, ranks: Mapping[str, float]) -> Iterator[str]:
    yield f"  {name}:"
    for rank in sorted(ranks, key=lambda label: (len(label), label)):
        yield f"     rank {rank:>2}: {_milli(ranks[rank])}"


def _dotted(name: str) -> str:
    return (name + " ").ljust(_WIDTH, ".")


def _milli(seconds: float) -> str:
    return f"{seconds * 1000.0:.2f}"


_FORMS: dict[str, tuple[str, Callable[[str, Mapping[str, float]], Iterator[str]]]] = {
    "max": ("max time across ranks (ms):", _max),
    "minmax": ("(min, max) time across ranks (ms):", _minmax),
    "all": ("times across ranks (ms):", _all),
}
