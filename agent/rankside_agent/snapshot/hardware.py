"""What a node is made of: processors, memory, kernel, GPUs and their drivers, as plain files tell it.

Separate from the gauges, which measure and may start a driver's library for it: this asks nobody, and takes
what the gauges have seen where they were asked.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankside_agent.gpu.card import Card, Reading
from rankside_agent.gpu.source import Unavailable
from rankside_agent.gpu.sysfs import Sysfs

_GIB = 1 << 30
_MOST = 64 << 10  # bytes of a file that are looked at
_MOST_CPUINFO = 4 << 20  # 512 processors have 700 KB
# The first file that is there, and its first line
_FILES = {
    "amdgpu": ("sys/module/amdgpu/version",),
    "rocm": ("opt/rocm/.info/version", "opt/rocm/.info/version-dev"),
    "nvidia": ("sys/module/nvidia/version",),
}
_NVIDIA = "proc/driver/nvidia/gpus"


def read(host: str, reading: Reading | None = None, root: Path = Path("/")) -> dict[str, Any]:
    """Plain values; what cannot be told is left out. `reading`: the GPUs as the gauges have seen them."""
    gpus = _gpus(reading, root)
    found = {
        "host": host,
        "cpu": _cpu(root),
        "cpus": os.cpu_count(),
        "memory_gib": _memory(root),
        "machine": platform.machine(),
        "kernel": os.uname().release,
        "system": _field(root / "etc/os-release", "PRETTY_NAME").strip('"'),
        **{name: _first(root, paths) for name, paths in _FILES.items()},
    }
    return {**{name: value for name, value in found.items() if value}, "gpus": gpus}


def _gpus(reading: Reading | None, root: Path) -> list[dict[str, Any]]:
    cards = list(reading.cards) if reading is not None else []
    if not cards:
        try:
            cards = Sysfs(root / "sys").read()
        except (Unavailable, OSError, ValueError):
            cards = list(_nvidia(root))
    return [_gpu(card) for card in cards]


def _gpu(card: Card) -> dict[str, Any]:
    memory = card.memory
    told = {
        "name": card.name,
        "pci": card.pci,
        "uuid": card.uuid,
        "vendor": card.vendor,
        "partition": card.partition,
        "memory_gib": round(memory.total / _GIB) if memory else None,
    }
    return {name: value for name, value in told.items() if value not in (None, "")}


def _nvidia(root: Path) -> Iterator[Card]:
    try:
        folders = sorted((root / _NVIDIA).iterdir())
    except OSError:
        return
    for folder in folders:
        name, pci = (_field(folder / "information", key) for key in ("Model", "Bus Location"))
        yield Card(pci=pci or folder.name, name=name, vendor="nvidia")


def _cpu(root: Path) -> str:
    return _field(root / "proc/cpuinfo", "model name", _MOST_CPUINFO) or platform.processor()


def _memory(root: Path) -> int | None:
    """In whole GiB: the rest of it differs from boot to boot."""
    found = re.match(r"(\d+) kB", _field(root / "proc/meminfo", "MemTotal"))
    return round(int(found[1]) * 1024 / _GIB) if found else None


def _first(root: Path, paths: tuple[str, ...]) -> str:
    texts = (_text(root / path).partition("\n")[0].strip() for path in paths)
    return next(filter(None, texts), "")


def _field(path: Path, name: str, most: int = _MOST) -> str:
    """Of a file of lines `name: value` or `name=value`."""
    found = re.search(rf"^{name}\s*[:=]\s*(.*)$", _text(path, most), re.MULTILINE)
    return found[1].strip()[:500] if found else ""


def _text(path: Path, most: int = _MOST) -> str:
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
