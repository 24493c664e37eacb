"""What differs between two snapshots, and what differs between any two starts and says nothing.

Separate from showing it, for the exit status and the JSON come from here too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from rankside_agent.snapshot.stored import GROUPS, Group, Snapshot

# Names of one start, process or login, by their group
_OF_A_START = {
    "environment": re.compile(
        r"TORCHELASTIC_(?:RUN_ID|RESTART_COUNT|ERROR_FILE)|MASTER_PORT|(?:PMIX?|OMPI_MCA|HYDI?|PRTE|SSH|XDG)_.*"
        r"|SLURM_(?:JOB_?ID|STEP_?ID|TASK_PID|RESTART_COUNT|SRUN_COMM_\w+|JOB_(?:START|END)_TIME|STEP_\w*PORT\w*)"
        r"|SHLVL|_|OLDPWD|WINDOWID|TMUX(?:_PANE)?|STY|TERM_SESSION_ID|INVOCATION_ID|JOURNAL_STREAM|LINES|COLUMNS"
        r"|DBUS_SESSION_BUS_ADDRESS|PYTEST_CURRENT_TEST"
    ),
    "command": re.compile(r"attempt|started|exp_name|exp_root"),
}


class Absent:
    """In the place of a value that one of the two does not have."""

    def __repr__(self) -> str:
        return "(none)"


ABSENT = Absent()
Pair = tuple[Any, Any]


class Difference(NamedTuple):
    """By group, the pairs of values of each name; the groups that only one has; names that were left out."""

    groups: dict[str, dict[str, Pair]]
    missing: dict[str, str]  # title of a group -> "first" or "second", which does not have it
    left_out: list[str]

    @property
    def same(self) -> bool:
        """Whether there is nothing to tell."""
        return not self.groups and not self.missing


def compare(first: Snapshot, second: Snapshot, everything: bool = False) -> Difference:
    """`everything`: also what differs with every start."""
    found = Difference({}, {}, [])
    for title in GROUPS:
        one, other = first.groups.get(title), second.groups.get(title)
        if one is None and other is None:
            continue
        if one is None or other is None:
            found.missing[title] = "first" if one is None else "second"
            continue
        pairs = _pairs(one, other)
        idle = None if everything else _OF_A_START.get(title)
        kept = {name: pair for name, pair in pairs.items() if idle is None or not idle.fullmatch(name)}
        if title == "environment":  # that an attempt has another number needs no word
            found.left_out.extend(name for name in pairs if name not in kept)
        if kept:
            found.groups[title] = kept
    return found


def _pairs(one: Group, other: Group) -> dict[str, Pair]:
    names = [*one, *sorted(name for name in other if name not in one)]
    pairs = {name: (one.get(name, ABSENT), other.get(name, ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if not _alike(*pair)}


def _alike(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
