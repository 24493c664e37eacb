"""AMD GPUs as the kernel's driver tells of them in /sys: no library, no group, no process.

Separate as one source among others: it works where amdsmi refuses a user who is in no group, and where no
ROCm is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from rankside_agent.gpu import attribute, kfd
from rankside_agent.gpu.apu import is_apu
from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.identity import Pci, amd_ids, pci
from rankside_agent.gpu.kfd import Node
from rankside_agent.gpu.source import Source, Unavailable

_AMD = "0x1002"
_CARD = re.compile(r"card[0-9]+")  # card1-DP-1 is a connector of one, renderD128 its second name
_SLOT = re.compile(r"^PCI_SLOT_NAME=(\S+)$", re.MULTILINE)
_ERRORS = re.compile(r"^(ue|ce):\s*([0-9]+)$", re.MULTILINE)
_LABELS = ("junction", "edge")  # temperatures, by what matters first; MI300 has no edge


class Sysfs(Source):
    """Every AMD GPU of the node, and every partition that KFD shows."""

    name: ClassVar[str] = "sysfs"

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._root = root

    def open(self) -> None:
        """Whether there is a GPU whose memory can be read."""
        self.read()

    def read(self) -> list[Card]:
        """The state of every GPU now. Nothing stays open."""
        folders = list(self._folders())
        cards = _joined([(_card(folder), folder) for folder in folders], kfd.read(self._root).gpus)
        if any(card.vram for card in cards):
            return cards
        if folders or cards:
            raise Unavailable(f"{self._root}: no AMD GPU tells its memory (mem_info_vram_*)")
        raise Unavailable(f"{self._root}/class/drm: no AMD GPU")

    def close(self) -> None:
        """There is nothing to let go of."""

    def _folders(self) -> Iterator[Path]:
        try:
            entries = sorted((self._root / "class" / "drm").iterdir(), key=_order)
        except OSError:
            return
        for entry in entries:
            folder = entry / "device"
            if (
                _CARD.fullmatch(entry.name)
                and attribute.text(folder / "vendor") == _AMD
                and _has_memory(folder)
            ):
                yield folder


def _is_amd(folder: Path) -> bool:
    return attribute.text(folder / "vendor") == _AMD


def _has_memory(folder: Path) -> bool:
    return any(os.path.exists(folder / f"mem_info_vram_{which}") for which in ("used", "total"))


def _order(entry: Path) -> tuple[int, str]:
    digits = re.sub(r"[^0-9].*", "", entry.name.removeprefix("card"))
    return int(digits or 0), entry.name


def _card(folder: Path) -> Card:
    """What the files of one device tell."""
    errors = dict(_ERRORS.findall(attribute.text(folder / "ras" / "umc_err_count") or ""))
    return Card(
        pci=_address(folder),
        uuid=next(iter(amd_ids(attribute.text(folder / "unique_id"))), None),
        name=attribute.text(folder / "product_name") or "",
        vram=_pool(folder, "vram"),
        gtt=_pool(folder, "gtt"),
        use_percent=_percent(folder / "gpu_busy_percent"),
        ecc_correctable=int(errors["ce"]) if "ce" in errors else None,
        ecc_uncorrectable=int(errors["ue"]) if "ue" in errors else None,
        **_sensors(folder / "hwmon"),
    )


def _address(folder: Path) -> str | None:
    try:
        found = pci(folder.resolve().name)
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError up to Python 3.12
        found = None
    if not found:
        slot = _SLOT.search(attribute.text(folder / "uevent") or "")
        found = pci(slot[1]) if slot else None
    return str(found) if found else None


def _pool(folder: Path, kind: str) -> Pool | None:
    used, total = (attribute.number(folder / f"mem_info_{kind}_{which}") for which in ("used", "total"))
    if used is None or total is None or not 0 <= used <= total or not total:
        return None
    return Pool(used, total)


def _percent(path: Path) -> float | None:
    found = attribute.number(path)
    return float(found) if found is not None and 0 <= found <= 100 else None


def _sensors(hwmon: Path) -> dict[str, Any]:
    try:
        monitors = sorted(hwmon.iterdir())
    except OSError:
        monitors = []
    paths = {
        "power_w": ([path / name for name in ("power1_average", "power1_input") for path in monitors], 1e6),
        "temperature_c": ([found for path in monitors for found in _temperatures(path)], 1e3),
        "clock_mhz": ([path / "freq1_input" for path in monitors], 1e6),
    }
    return {name: _first(choices, scale) for name, (choices, scale) in paths.items()}


def _first(paths: Iterable[Path], scale: float) -> float | None:
    for path in paths:
        if (found := attribute.number(path)) is not None:
            return found / scale
    return None


def _temperatures(monitor: Path) -> list[Path]:
    labelled = {attribute.text(path): path for path in sorted(monitor.glob("temp*_label"))}
    names = [labelled[label].name.replace("_label", "_input") for label in _LABELS if label in labelled]
    return [monitor / name for name in [*names, "temp1_input"]]


def _joined(devices: list[tuple[Card, Path]], nodes: Iterable[Node]) -> list[Card]:
    """Devices with what KFD adds; then the nodes of a card that have no files of their own."""
    by_pci: dict[str, list[Node]] = {}
    for node in nodes:
        by_pci.setdefault(str(node.pci), []).append(node)
    found: list[Card] = []
    for card, folder in devices:
        address = pci(card.pci)
        own = by_pci.pop(str(Pci(address.domain, address.bus, address.device, 0)), []) if address else []
        found.append(_with(card, folder, own[0] if own else None))
        found += [_bare(node) for node in own[1:]]
    return found + [_bare(node) for rest in by_pci.values() for node in rest]


def _with(card: Card, folder: Path, node: Node | None) -> Card:
    more: dict[str, Any] = {"apu": is_apu(node, attribute.data(folder / "gpu_metrics"), card.vram, card.gtt)}
    if node:
        more.update(uuid=card.uuid or node.uuid, name=card.name or node.name, partition=node.partition)
    return Card(**{**card.__dict__, **more})


def _bare(node: Node) -> Card:
    """A partition, or a GPU without a drm device: what is told of the whole card is not told of it."""
    return Card(pci=str(node.pci), uuid=node.uuid, name=node.name, partition=node.partition)
