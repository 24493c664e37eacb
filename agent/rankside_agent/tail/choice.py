"""Which files answer a question: the node log, or the ranks' own level files. One table, with its reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rankside_agent.tail.folder import FLOORS, Folder


class Question(NamedTuple):
    """What of a question bears on the choice."""

    level: int = 0
    some_ranks: bool = False  # and not all that are there


class Rule(NamedTuple):
    """When a source is taken, and why."""

    source: str
    applies: Callable[[Folder, Question], object]
    why: str


RULES = (
    Rule(
        "ranks",
        lambda folder, asked: asked.some_ranks and folder.ranks,
        "a rank's own file holds nothing else; in the node log all other ranks would be read past",
    ),
    Rule(
        "ranks",
        lambda folder, asked: asked.level >= FLOORS["warning"] and folder.ranks,
        "these are rare: warning.log and error.log are the index to them in any number of gigabytes",
    ),
    Rule(
        "node",
        lambda folder, asked: folder.has_node,
        "one file for a host instead of one for a rank, with microseconds, in order of arrival",
    ),
    Rule(
        "ranks",
        lambda folder, asked: folder.ranks,
        "folders written by Primus itself have no node log, and ours may have been deleted or emptied",
    ),
    Rule("node", lambda folder, asked: True, "empty so far, but it is where records will come"),
)


def choose(folder: Folder, asked: Question) -> Rule:
    """The first rule that applies."""
    return next(rule for rule in RULES if rule.applies(folder, asked))
