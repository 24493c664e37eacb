"""Which GPU this process computes on, and its memory as the process sees it; asked of torch, if it is there.

Separate because it speaks with a framework that the client never imports: what the training has not loaded
and started already is left alone. Without it the agent works with masks, and with how many GPUs this process
sees: where the agent sees as many, both count along the same list.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_LONGEST = 1024  # characters of a mask
_NODES = "class/kfd/kfd/topology/nodes"
_MOST_FAILURES = 3  # then torch is not asked again: it would fail in every step


class Device:
    """Of one process. Nothing raises; what cannot be told is left out."""

    def __init__(self, memory: bool) -> None:
        """`memory`: whether anybody shows how full it is; asking costs some 10 us."""
        self._memory = memory
        self._told = False
        self._failures = 0

    def fields(self) -> dict[str, Any]:
        """For a throughput sample: `device`, once, and `hip_free`, `hip_total` (`cuda_...`) in bytes."""
        torch: Any = sys.modules.get("torch")
        if torch is None or self._failures >= _MOST_FAILURES or not (self._memory or not self._told):
            return {}
        try:
            if not torch.cuda.is_initialized():  # nor is it started by us
                return {}
            kind = "hip" if torch.version.hip else "cuda"
            found = self._identity(torch, kind)
            if self._memory:
                found[f"{kind}_free"], found[f"{kind}_total"] = map(int, torch.cuda.mem_get_info())
        except Exception:  # noqa: BLE001  a driver, and a half-initialised torch, may raise anything
            self._failures += 1
            return {}
        return found

    def _identity(self, torch: Any, kind: str) -> dict[str, Any]:
        if self._told:
            return {}
        found = torch.cuda.get_device_properties(torch.cuda.current_device())
        self._told = True
        uuid = getattr(found, "uuid", None)
        return {
            "device": {
                "vendor": "amd" if kind == "hip" else "nvidia",
                "name": str(getattr(found, "name", "")),
                "uuid": None if uuid is None else str(uuid),
                "pci": _pci(found),
            }
        }


def visible(environ: Mapping[str, str] = os.environ, sys_root: str = "/sys") -> dict[str, Any]:
    """The masks that are set, and as `kfd` the number of GPUs that AMD's driver shows to this process."""
    return {
        **{name: environ[name] for name in MASKS if name in environ},
        "kfd": _gpus(Path(sys_root, _NODES)),
    }


def checked_visible(value: Mapping[Any, Any]) -> dict[str, Any]:
    """A stranger's: what `visible` gives, and nothing else. Raises ValueError."""
    for name in MASKS:
        text = value.get(name, "")
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise ValueError(f"hello: gpus: {name} is no text of at most {_LONGEST} characters")
    if not isinstance(value.get("kfd", 0), int):
        raise ValueError("hello: gpus: kfd is no number")
    return {name: value[name] for name in (*MASKS, "kfd") if name in value}


def _gpus(nodes: Path) -> int:
    """Nodes with compute units. In a container those of other containers cannot be read, or are empty."""
    found = 0
    try:
        for node in nodes.iterdir():
            try:
                text = (node / "properties").read_text(errors="replace")
            except OSError:
                continue
            words = text.split()
            found += "simd_count" in words[:-1] and words[words.index("simd_count") + 1] != "0"
    except OSError:  # no AMD GPU in this machine
        return 0
    return found


def _pci(found: Any) -> str | None:
    """`0000:63:00.0`; without a domain where torch does not tell it, None where it tells nothing."""
    bus, device = getattr(found, "pci_bus_id", None), getattr(found, "pci_device_id", None)
    if not isinstance(bus, int) or not isinstance(device, int):
        return None
    domain = getattr(found, "pci_domain_id", None)
    place = f"{bus:02x}:{device:02x}.0"
    return f"{domain:04x}:{place}" if isinstance(domain, int) else place
