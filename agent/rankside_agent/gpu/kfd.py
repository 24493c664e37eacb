"""The GPUs in the order in which the compute driver (KFD) counts them, which is the order of the runtimes.

Separate because masks and device indices count along this order, while /sys/class/drm and the tools each have
one of their own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rankside_agent.gpu import attribute
from rankside_agent.gpu.identity import Pci, unique_id

_NODES = Path("class/kfd/kfd/topology/nodes")
_LINE = re.compile(r"^(\w+)[ \t]+(0x[0-9a-fA-F]+|[0-9]+)$", re.ASCII | re.MULTILINE)
_NEEDED = ("simd_count", "location_id")  # a GPU's properties without these were cut off


@dataclass(frozen=True)
class Node:
    """One GPU, or one partition of it, as KFD tells of it."""

    number: int
    pci: Pci  # of the card: partitions share it
    uuid: str | None = None
    name: str = ""
    render_minor: int | None = None
    partition: int | None = None  # None where the card is whole
    cpu_cores: int = 0  # on an APU of the older kind the GPU's node has them
    gfx: int = 0  # gfx_target_version: 90402 is gfx942


@dataclass(frozen=True)
class Topology:
    """The GPUs that this process may see, in KFD's order."""

    gpus: tuple[Node, ...] = ()
    hidden: tuple[int, ...] = ()  # nodes that are kept from us: devices of other containers
    broken: tuple[int, ...] = ()  # nodes that are GPUs and could not be read: indices are in doubt

    @property
    def problem(self) -> str:
        """What is missing, for people; empty where nothing is."""
        missing = {"are hidden from this process": self.hidden, "could not be read": self.broken}
        said = [f"KFD nodes {', '.join(map(str, nodes))} {what}" for what, nodes in missing.items() if nodes]
        return "; ".join(said) or ("" if self.gpus else "no GPU in the KFD topology")


def read(root: Path = Path("/sys")) -> Topology:
    """The topology as it is now. Never raises."""
    gpus: list[tuple[Node, int]] = []
    hidden: list[int] = []
    broken: list[int] = []
    for number, folder in _folders(root / _NODES):
        told = _properties(folder)
        gpu_id = attribute.number(folder / "gpu_id")
        if told.get("simd_count") == 0 or (gpu_id == 0 and told):
            continue  # a CPU
        if all(told.get(name) is not None for name in _NEEDED):
            gpus.append(_node(number, folder, told))
        else:
            (broken if gpu_id else hidden).append(number)
    return Topology(tuple(_numbered(gpus)), tuple(hidden), tuple(broken))


def _folders(nodes: Path) -> list[tuple[int, Path]]:
    try:
        found = [(int(path.name), path) for path in nodes.iterdir() if re.fullmatch(r"[0-9]{1,6}", path.name)]
    except OSError:
        return []
    return sorted(found)


def _properties(folder: Path) -> Mapping[str, int]:
    found = _LINE.findall(attribute.text(folder / "properties") or "")
    return {name: int(value, 0 if value.startswith("0x") else 10) for name, value in found}


def _node(number: int, folder: Path, told: Mapping[str, int]) -> tuple[Node, int]:
    """The node, and the bits of its location that hold the partition."""
    location = told["location_id"]
    address = Pci(told.get("domain", 0), location >> 8 & 0xFF, location >> 3 & 0x1F, 0)
    node = Node(
        number,
        address,
        unique_id(told.get("unique_id", 0)),
        attribute.text(folder / "name") or "",
        told.get("drm_render_minor") or None,
        None,
        told.get("cpu_cores_count", 0),
        told.get("gfx_target_version", 0),
    )
    # The driver puts the partition into bits 28 to 31, or adds it to the function, by its version
    return node, location >> 28 & 0xF or location & 0x7


def _numbered(gpus: Iterable[tuple[Node, int]]) -> list[Node]:
    """With the number of the partition, where a card has several nodes or its only one is not the first."""
    cards: dict[Pci, list[tuple[Node, int]]] = defaultdict(list)
    for node, bits in gpus:
        cards[node.pci].append((node, bits))
    found: list[Node] = []
    for nodes in cards.values():
        told = [bits for _, bits in nodes]
        numbers = told if len(set(told)) == len(told) else range(len(told))
        whole = len(nodes) == 1 and not told[0]
        for (node, _), at in zip(nodes, numbers, strict=True):
            found.append(replace(node, partition=None if whole else at))
    return sorted(found, key=lambda node: node.number)
