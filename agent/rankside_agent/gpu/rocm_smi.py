"""AMD's command-line tools, rocm-smi and amd-smi, for nodes where neither amdsmi nor sysfs answers.

Separate as one source among others, and the last of AMD's: each reading starts a process of one to three
seconds. What was found to work when it was opened is asked again each time; nothing else is tried.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rankside_agent.gpu import amd_smi_tree, command, rocm_smi_labels
from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.partitions import counted_once, numbered
from rankside_agent.gpu.rocm_smi_table import from_table
from rankside_agent.gpu.source import Source, Unavailable

_TOOLS = ("rocm-smi", "amd-smi")
_FOLDER = "/opt/rocm/bin"  # where ROCm puts them, often without a line in PATH
_TIMEOUT = 8.0  # seconds; a tool takes one to three. Below the 10 after which the poller gives us up
_MEMORY = ("--showmeminfo", "vram", "gtt", "--showbus", "--showuniqueid")
_MORE = ("--showuse", "--showpower", "--showtemp", "--showclocks", "--showproductname")
_METRIC, _STATIC = ("metric",), ("static", "--asic", "--bus", "--partition")


@dataclass(frozen=True)
class Ask:
    """A way to ask: `each` time one call, `once` another for what does not change, and who reads both."""

    tool: str
    each: tuple[str, ...]
    read: Callable[[Sequence[str]], list[Card]]
    once: tuple[str, ...] = ()


# From what tells most to what tells least. An unknown option fails a whole call, so shorter ones follow
ASKS = (
    Ask("rocm-smi", (*_MEMORY, *_MORE, "--json"), rocm_smi_labels.from_json),
    Ask("rocm-smi", (*_MEMORY, "--json"), rocm_smi_labels.from_json),
    Ask("amd-smi", (*_METRIC, "--json"), amd_smi_tree.from_json, (*_STATIC, "--json")),
    Ask("amd-smi", (*_METRIC, "--json"), amd_smi_tree.from_json, (*_STATIC[:-1], "--json")),
    Ask("rocm-smi", (*_MEMORY, "--csv"), rocm_smi_labels.from_csv),
    Ask("rocm-smi", _MEMORY, rocm_smi_labels.from_text),
    Ask("amd-smi", (*_METRIC, "--csv"), amd_smi_tree.from_csv, (*_STATIC[:-1], "--csv")),
    Ask("amd-smi", _METRIC, amd_smi_tree.from_text, _STATIC[:-1]),
    Ask("rocm-smi", ("--showmeminfo", "vram", "--json"), rocm_smi_labels.from_json),
    Ask("rocm-smi", (), from_table),
)


class RocmSmi(Source):
    """Every AMD GPU that a tool lists."""

    name: ClassVar[str] = "rocm-smi"

    def __init__(
        self, commands: Mapping[str, Sequence[str]] | None = None, *, timeout: float = _TIMEOUT
    ) -> None:
        """`commands` gives for each tool how to start it; the default looks for them."""
        self._given = commands
        self._timeout = timeout
        self._commands: Mapping[str, Sequence[str]] = {}
        self._ask: Ask | None = None
        self._known: list[str] = []  # what was asked once

    def open(self) -> None:
        """Find a tool, and the way to ask it that tells most."""
        self.close()
        self._commands = _installed() if self._given is None else self._given
        if not self._commands:
            raise Unavailable(f"neither {' nor '.join(_TOOLS)} in PATH or {_FOLDER}")
        best, stuck = _NOTHING, {}
        for ask in ASKS:
            if ask.tool in stuck or ask.tool not in self._commands or best == _ALL:
                continue
            try:
                known = [self._call(ask, ask.once)] if ask.once else []
                told = _told(ask.read([self._call(ask, ask.each), *known]))
            except command.TookTooLong as error:
                stuck[ask.tool] = str(error)
            except Unavailable:
                continue
            else:
                if told > best:
                    best, self._ask, self._known = told, ask, known
        if not self._ask:
            raise Unavailable(
                "; ".join(stuck.values()) or f"{' and '.join(self._commands)}: no AMD GPU in the answer"
            )

    def read(self) -> list[Card]:
        """The state of every GPU now, asked in the way that worked."""
        if not self._ask:
            raise Unavailable("not open")
        cards = self._cards(self._ask)
        if not cards:
            raise Unavailable(f"{self._ask.tool} lists no GPU any more")
        again = _Again(lambda: self._cards(self._ask) if self._ask else [])
        return counted_once(numbered(cards, [card.partition is not None for card in cards]), again)

    def close(self) -> None:
        """Forget what worked. No process is left to end."""
        self._ask, self._known = None, []

    def _cards(self, ask: Ask) -> list[Card]:
        return ask.read([self._call(ask, ask.each), *self._known])

    def _call(self, ask: Ask, options: tuple[str, ...]) -> str:
        return command.output([*self._commands[ask.tool], *options], self._timeout)


class _Again:
    """A second answer, asked for once, and only where parts of a card tell memory that may be the same."""

    def __init__(self, ask: Callable[[], list[Card]]) -> None:
        self._ask = ask
        self._cards: list[Card] | None = None

    def __call__(self, at: int) -> Pool | None:
        if self._cards is None:
            try:
                self._cards = self._ask()
            except Unavailable:
                self._cards = []
        return self._cards[at].vram if at < len(self._cards) else None


_NOTHING, _ALL = 0, 3


def _told(cards: Sequence[Card]) -> int:
    """How much: cards at all, their memory, and which cards they are."""
    named = any(card.vram and (card.pci or card.uuid) for card in cards)
    return bool(cards) + any(card.vram for card in cards) + named


def _installed() -> dict[str, list[str]]:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), _FOLDER])
    return {tool: [found] for tool in _TOOLS if (found := shutil.which(tool, path=path))}
