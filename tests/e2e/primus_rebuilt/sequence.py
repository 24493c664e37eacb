"""What a training may log, drawn by a seed: the same on every side, whoever writes it down.

Separate from the program that says it, so that what is tried can be read at a glance.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple


class Act(NamedTuple):
    """One call: its kind, the module and line it stands in, the text, the level, the error."""

    kind: str
    module: str
    line: int
    text: str
    level: str
    number: int
    error: str


TEXTS = (
    "saving checkpoint",
    "",
    " ",
    "iteration       12/     100 | lm loss: 9.102345E+00 | ",
    "cfg {'lr': 0.1} and a lone {",
    "{} {0.__class__} {{}} }",
    "%s %d 50% %% %(name)s",
    "<red>tags</red> </> <level> \\<escaped>",
    "\x1b[31mcoloured\x1b[0m",
    "größer 漢字 🚀 \u202eright to left\u202c e\u0301",
    "half of a pair \ud83d end",
    "\udcff\udc80 bytes of a file's name",
    "two\nlines",
    "\nbegins and ends with a line's end\n",
    "windows\r\nlines\r\n",
    "a bar  1%|# |\r  2%|# |",
    "tabs\tand \x00 nul \x07 bell \x7f",
    "\u2028 \u2029 \x85 \x0b \x0c separate lines for some",
    "[20260102 03:04:05][user/team] like a line",
    "[---------a.py:1] : like a place",
    "\\n \\x1b 'quoted' \"twice\"",
    "long " * 4000,
)
MODULES = ("a", "train", "trainer", "checkpoint_manager", "torchtitan_train_loop_of_somebody", "mod" * 30)
LEVELS = ("TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL")
NAMELESS = (5, 11, 15, 24, 26, 35, 45, 60)
ERRORS = ("plain", "cause", "context", "silent", "deep", "syntax", "lines", "nothing", "never raised")
BLOCKS: tuple[Any, ...] = (
    {},
    {"b": 2, "longest_name": None, "a": 1.5e-8},
    {10: "ten", 9: "nine", 100: "hundred"},
    SimpleNamespace(lr=0.1, path="/a b", nested=[1, {"x": 2}], text="two\nlines"),
)
DEEPER = SimpleNamespace(model=SimpleNamespace(name="llama3", layers=32), lr=0.1, data={"path": "x", "n": {}})
FIRST = 200  # acts in which places grow one by one
_PLAIN_TEXTS = tuple(text for text in TEXTS if len(text) < 1000)


def acts(seed: int, count: int, kinds: list[str]) -> Iterator[Act]:
    """Each text and each kind at least once, then what chance brings."""
    chance = random.Random(seed)
    for number in range(count):
        # every kind with every text, long ones seldom
        text = TEXTS[number % len(TEXTS)] if number % 7 == 0 else chance.choice(_PLAIN_TEXTS)
        # the field is seen at many widths: the longest names come late
        known = MODULES[: 1 + number * len(MODULES) // max(count, FIRST)]
        kind = kinds[number % len(kinds)] if number < 3 * len(kinds) else chance.choice(kinds)
        # nobody but the console learns of these, so they must not widen the files' field either
        module = "short" if kind == "console_only" else chance.choice(known)
        yield Act(
            kind,
            module,
            chance.choice((1, 7, 99, 215)),
            text,
            chance.choice(LEVELS),
            chance.choice(NAMELESS),
            chance.choice(ERRORS),
        )
