"""What amd-smi tells of its cards, by key: its JSON, CSV and text hold the same keys, nested or flat.

Separate because keys are what lasts: JSON comes as a list or wrapped in `gpu_data`, values bare or with
units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from rankside_agent.gpu import quantity
from rankside_agent.gpu.apu import is_apu
from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.documents import documents, without_notices
from rankside_agent.gpu.identity import amd_ids, pci_text
from rankside_agent.gpu.rocm_smi_labels import pool, rows

_UNIT = "mb"  # of memory without one: `amd-smi metric -m` counts in these
_DEPTH = 8  # of nested keys; real ones have four
_LINE = re.compile(r"( *)([^:]+):(?:\s+(.*))?")
# For each value its keys, the better first; of a key with dots the last parts of the way to it
_USE = ("gfx_activity", "gfx_usage")
_POWERS = ("socket_power", "current_socket_power", "average_socket_power")
_TEMPERATURES = ("temperature.hotspot", "hotspot_temperature", "hotspot", "temperature.edge", "edge")
_CLOCKS = ("gfx_0.clk", "gfx_0_clk", "gfx.clk", "gfx.cur_clk", "gfx_clock")
_PARTED = {"cpx", "dpx", "tpx", "qpx"}

Tree = dict[str, Any]


def from_json(texts: Iterable[str]) -> list[Card]:
    """`--json`, of one call or of several whose cards are joined by their number."""
    return _cards(tree for text in texts for document in documents(text) for tree in _trees(document, _DEPTH))


def _trees(document: Any, depth: int) -> Iterator[Tree]:
    """Whatever has a key `gpu`, in a list, in `gpu_data` or by itself."""
    if isinstance(document, dict) and "gpu" in document:
        yield document
    elif depth and isinstance(document, (list, dict)):
        for inner in document.values() if isinstance(document, dict) else document:
            yield from _trees(inner, depth - 1)


def from_csv(texts: Iterable[str]) -> list[Card]:
    """`--csv`; a line with a column `gpu` is a header."""
    found: list[Tree] = []
    for text in texts:
        header: list[str] = []
        for row in rows(without_notices(text)):
            if "gpu" in (names := [cell.strip().lower() for cell in row]):
                header = names
            elif header:
                found.append(dict(zip(header, row, strict=False)))
    return _cards(found)


def from_text(texts: Iterable[str]) -> list[Card]:
    """Keys nested by indentation; `GPU: 0` begins a card."""
    found: list[Tree] = []
    for text in texts:
        open_: list[tuple[int, Tree]] = []  # the sections around a line, each with its indentation
        for match in filter(None, map(_LINE.fullmatch, map(str.rstrip, without_notices(text).splitlines()))):
            indent, key, value = len(match[1]), match[2].strip().lower(), match[3]
            if key == "gpu":
                found.append({})
                open_ = [(indent - 1, found[-1])]
            while len(open_) > 1 and open_[-1][0] >= indent:
                open_.pop()
            if open_:
                _add(open_, indent, key, value)
    return _cards(found)


def _add(open_: list[tuple[int, Tree]], indent: int, key: str, value: str | None) -> None:
    if value:
        open_[-1][1].setdefault(key, value)
        return
    inner = open_[-1][1].setdefault(key, {})
    if isinstance(inner, dict):
        open_.append((indent, inner))


def _cards(trees: Iterable[Tree]) -> list[Card]:
    found: dict[int, list[Tree]] = {}
    for tree in trees:
        number = quantity.count(tree.get("gpu"))
        if number is not None:
            found.setdefault(number, []).append(tree)
    return [_card(dict(_leaves(found[number]))) for number in sorted(found)]


def _leaves(tree: Any, way: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Every value with the way to it; a value with its unit is one."""
    if isinstance(tree, list):
        for inner in tree if depth else ():
            yield from _leaves(inner, way, depth - 1)
    elif isinstance(tree, dict) and "value" not in tree:
        for key, inner in tree.items() if depth else ():
            yield from _leaves(inner, f"{way}.{str(key).strip().lower()}", depth - 1)
    elif way:
        yield way, tree


def _find(leaves: Tree, *keys: str) -> Iterator[Any]:
    for key in keys:
        yield from (value for way, value in leaves.items() if way.endswith(f".{key}"))


def _card(leaves: Tree) -> Card:
    name = next((value for value in _find(leaves, "market_name") if isinstance(value, str)), "")
    vram, gtt = _pool(leaves, "vram"), _pool(leaves, "gtt")
    return Card(
        pci=next(filter(None, map(pci_text, _find(leaves, "bdf"))), None),
        uuid=next((found for told in _find(leaves, "asic_serial") for found in amd_ids(told)), None),
        name="" if name == "N/A" else name,
        partition=_partition(leaves),
        vram=vram,
        gtt=gtt,
        apu=is_apu(None, None, vram, gtt),
        use_percent=_number(leaves, _USE),
        power_w=_number(leaves, _POWERS),
        temperature_c=_number(leaves, _TEMPERATURES),
        clock_mhz=_number(leaves, _CLOCKS),
        ecc_correctable=_count(leaves, "total_correctable_count"),
        ecc_uncorrectable=_count(leaves, "total_uncorrectable_count"),
    )


def _pool(leaves: Tree, kind: str) -> Pool | None:
    used, total = (
        next(filter(_is_told, (quantity.size(told, _UNIT) for told in _find(leaves, f"{part}_{kind}"))), None)
        for part in ("used", "total")
    )
    return pool(used, total)


def _number(leaves: Tree, keys: tuple[str, ...]) -> float | None:
    return next(filter(_is_told, map(quantity.number, _find(leaves, *keys))), None)


def _count(leaves: Tree, key: str) -> int | None:
    return next(filter(_is_told, map(quantity.count, _find(leaves, key))), None)


def _partition(leaves: Tree) -> int | None:
    """Its number, where the card is cut up; a whole one has the number 0, too."""
    modes = {
        str(mode).strip().lower() for mode in _find(leaves, "compute_partition", "accelerator_partition")
    }
    return _count(leaves, "partition_id") if modes & _PARTED else None


def _is_told(value: object) -> bool:
    return value is not None
