"""What a process says it has called, call by call, on a file of its own: the oracle of the chaos runs.

Separate from the rank because the checker reads it, and neither may lean on rankside: one write with O_APPEND
before and one after each call, so that a SIGKILL between any two instructions leaves a true account.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

LEVELS = {"DEBUG": 10, "INFO": 20, "SUCCESS": 25, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


class Call(NamedTuple):
    """One call: its number in its stream, what it was (log, event, metrics, throughput), and with what."""

    number: int
    kind: str
    what: dict[str, Any]


class Witness:
    """The writing side, one a process."""

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        path = folder / f"{facts['start']}-{facts['rank']}-{os.getpid()}.jsonl"
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._say(["facts", facts])

    def begun(self, stream: str, call: Call) -> None:
        """Right before the call."""
        self._say(["begun", stream, *call])

    def returned(self, stream: str, number: int) -> None:
        """Right after it."""
        self._say(["returned", stream, number])

    def _say(self, value: Any) -> None:
        os.write(self._fd, (json.dumps(value) + "\n").encode())


@dataclass
class Account:
    """The reading side: what one process began, and which of that returned, by stream."""

    facts: dict[str, Any] = field(default_factory=dict)
    begun: dict[str, list[Call]] = field(default_factory=dict)
    returned: set[tuple[str, int]] = field(default_factory=set)

    def calls(self, *kinds: str) -> list[tuple[str, Call, bool]]:
        """(stream, call, whether it returned) in the order of each stream."""
        return [
            (stream, call, (stream, call.number) in self.returned)
            for stream, calls in self.begun.items()
            for call in calls
            if call.kind in kinds
        ]


def accounts(folder: Path) -> list[Account]:
    """Of all processes that came to say who they are, in the order of their starts and ranks."""
    found = [_account(path) for path in folder.glob("*.jsonl")]
    return sorted(
        (each for each in found if each.facts),
        key=lambda each: (each.facts["start"], each.facts["rank"], each.facts["born"]),
    )


def _account(path: Path) -> Account:
    account = Account()
    for line in path.read_text().splitlines():
        word, *rest = json.loads(line)
        if word == "facts":
            account.facts = rest[0]
        elif word == "begun":
            account.begun.setdefault(rest[0], []).append(Call(*rest[1:]))
        else:
            account.returned.add((rest[0], rest[1]))
    return account


def text_of(stream: str, number: int, filler: str) -> str:
    """A log record's text: it says whose it is, and proves that it is whole."""
    return f"rec {stream} {number} {filler} #{zlib.crc32(filler.encode()):08x}"
