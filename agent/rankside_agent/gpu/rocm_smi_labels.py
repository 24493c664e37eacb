"""What rocm-smi tells of its cards, by label: its JSON, CSV and text carry the same ones.

Separate because labels are what lasts: places, order and form change with each version.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rankside_agent.gpu import quantity
from rankside_agent.gpu.apu import is_apu
from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.documents import documents, without_notices
from rankside_agent.gpu.identity import amd_ids, pci_text

_DEVICE = re.compile(r"card\s*([0-9]+)", re.IGNORECASE)
_LINE = re.compile(r"GPU\[([0-9]+)\]\s*:\s*(.*?):\s+(.*)", re.ASCII)  # the value of a PCI bus has colons, too
_MHZ = re.compile(r"([0-9.]+)\s*mhz", re.IGNORECASE)
# For each value its labels, the better first; lower case, one space between words
_POOL = {"total": "{} total memory", "used": "{} (?:total )?used memory"}
_NAMES = ("card series", "device name", "card model")
_USE = (r"gpu use \(%\)",)
_POWERS = (
    r"current socket graphics package power \(w\)",
    r"average graphics package power \(w\)",
    r"(?:current|average).*power \(w\)",
)
_TEMPERATURES = (r"temperature \(sensor junction\) \(c\)", r"temperature \(sensor edge\) \(c\)")
_CLOCKS = (r"sclk clock speed:?", r"sclk clock level:?")

Labels = Mapping[str, Any]


def from_json(texts: Iterable[str]) -> list[Card]:
    """`--json`."""
    found: dict[str, dict[str, Any]] = {}
    for document in (document for text in texts for document in documents(text)):
        for device, labels in document.items() if isinstance(document, dict) else ():
            if _DEVICE.fullmatch(device) and isinstance(labels, dict):
                found.setdefault(device, {}).update(labels)
    return _cards(found)


def from_csv(texts: Iterable[str]) -> list[Card]:
    """`--csv`; a line with a column `device` is a header, and several tables may follow each other."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        header: list[str] = []
        for row in rows(without_notices(text)):
            if "device" in (names := [cell.strip().lower() for cell in row]):
                header = names
            elif header and _DEVICE.fullmatch(
                device := dict(zip(header, row, strict=False)).get("device", "")
            ):
                found.setdefault(device, {}).update(zip(header, row, strict=False))
    return _cards(found)


def rows(text: str) -> list[list[str]]:
    """Of a CSV text, up to where it is none."""
    found = []
    try:
        for row in csv.reader(text.replace("\0", "").splitlines(), skipinitialspace=True):
            found.append(row)
    except csv.Error:
        pass
    return found


def from_text(texts: Iterable[str]) -> list[Card]:
    """Lines of `GPU[0] : label: value`; all others are rules, titles and notices."""
    found: dict[str, dict[str, Any]] = {}
    for line in (line for text in texts for line in text.splitlines()):
        if match := _LINE.fullmatch(line.strip()):
            found.setdefault(f"card{match[1]}", {}).setdefault(match[2], match[3])
    return _cards(found)


def _cards(devices: Mapping[str, Labels]) -> list[Card]:
    def place(device: str) -> int:
        return int((_DEVICE.fullmatch(device.strip()) or ["", "0"])[1][:9])

    return [_card(devices[device]) for device in sorted(devices, key=place)]


def _card(told: Labels) -> Card:
    labels = {" ".join(str(label).lower().split()): value for label, value in told.items()}
    vram, gtt = _pool(labels, "vram"), _pool(labels, "gtt")
    return Card(
        pci=pci_text(labels.get("pci bus")),
        uuid=next(iter(amd_ids(labels.get("unique id"))), None),
        name=next((str(labels[name]).strip() for name in _NAMES if labels.get(name)), ""),
        vram=vram,
        gtt=gtt,
        apu=is_apu(None, None, vram, gtt),
        use_percent=_first(labels, _USE),
        power_w=_first(labels, _POWERS),
        temperature_c=_first(labels, _TEMPERATURES),
        clock_mhz=_clock(labels),
    )


def _pool(labels: Labels, kind: str) -> Pool | None:
    found = {}
    for part, pattern in _POOL.items():
        label = re.compile(pattern.format(kind) + r" \(([a-z]+)\)")
        matches = [(value, label.fullmatch(name)) for name, value in labels.items()]
        sizes = [quantity.size(value, match[1]) for value, match in matches if match]
        found[part] = next((size for size in sizes if size is not None), None)
    return pool(found["used"], found["total"])


def pool(used: int | None, total: int | None) -> Pool | None:
    """Of two values that may each be missing or half a value."""
    return Pool(used, total) if used is not None and total and used <= total else None


def _first(labels: Labels, patterns: Iterable[str]) -> float | None:
    for pattern in patterns:
        for name, value in labels.items():
            if re.fullmatch(pattern, name) and (found := quantity.number(value)) is not None:
                return found
    return None


def _clock(labels: Labels) -> float | None:
    """The value is `(132Mhz)`, or `1: (132Mhz)` with the number of the level first."""
    for pattern in _CLOCKS:
        for name, value in labels.items():
            if re.fullmatch(pattern, name) and (match := _MHZ.search(str(value))):
                return quantity.number(match[1])
    return None
