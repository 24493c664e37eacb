"""The host's CPU, memory, disks and network as `system/...` values, for the metrics beside a training's own.

Separate from the GPUs because it needs no driver: a few files of /proc, no process list, and no look at any
mounted file system, for a dead NFS would hold it for ever.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

SHORTEST = 0.1  # seconds; rates over less say more of the clock than of the disk
_MB, _GB = 1e6, 1e9

log = logging.getLogger(__name__)

Counts = dict[str, tuple[float, ...]]  # device -> counters that only grow


class Host:
    """Keeps the counters of the last call. `ask` and `sys` are seams: psutil, and the list of devices."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        ask: Any = psutil,
        sys: Path = Path("/sys"),
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._sys = sys
        self._last: dict[str, tuple[float, Counts]] = {}
        self._devices_of: dict[str, dict[str, bool]] = {}
        self._silent: set[str] = set()
        self._parts = {
            "cpu": self._cpu,
            "memory": self._memory,
            "disk": self._disk,
            "network": self._network,
        }

    def read(self) -> dict[str, float]:
        """Values by name. A rate needs an earlier call; what cannot be told is left out."""
        found: dict[str, float] = {}
        for name, part in self._parts.items():
            try:
                found.update(part())
            except Exception as error:  # noqa: BLE001  psutil parses what a kernel or a container shows
                if name not in self._silent:
                    self._silent.add(name)
                    log.warning("host: %s cannot be read: %s: %s", name, type(error).__name__, error)
        return found

    def _cpu(self) -> dict[str, float]:
        times = self._ask.cpu_times()._asdict()
        guest = times.get("guest", 0.0) + times.get("guest_nice", 0.0)  # in user and nice, too
        whole = sum(times.values()) - guest
        idle = times["idle"] + times.get("iowait", 0.0)
        grown = self._grown("cpu", {"all": (whole, whole - idle)})
        if grown is None or grown[1][0] <= 0:
            return {}
        whole, busy = grown[1]
        return {"system/cpu_percent": min(100.0, 100.0 * busy / whole)}

    def _memory(self) -> dict[str, float]:
        memory = self._ask.virtual_memory()
        used = memory.total - memory.available  # what psutil calls `used` differs by version
        return {
            "system/memory_used_gb": used / _GB,
            "system/memory_percent": 100.0 * used / memory.total,
        }

    def _disk(self) -> dict[str, float]:
        found = self._ask.disk_io_counters(perdisk=True, nowrap=False) or {}
        return self._rates("disk", ("read", "write"), self._disks(found))

    def _network(self) -> dict[str, float]:
        found = self._ask.net_io_counters(pernic=True, nowrap=False) or {}
        return self._rates("network", ("received", "sent"), self._interfaces(found))

    def _disks(self, found: Mapping[str, Any]) -> Counts:
        """Devices alone: partitions, LVM and RAID count the same bytes again."""
        names = self._devices("block", found)
        return {name: (found[name].read_bytes, found[name].write_bytes) for name in names}

    def _interfaces(self, found: Mapping[str, Any]) -> Counts:
        """Devices alone, for bonds count again; in a container, where there are none, all but lo."""
        names = self._devices("class/net", found) or [name for name in found if name != "lo"]
        return {name: (found[name].bytes_recv, found[name].bytes_sent) for name in names}

    def _devices(self, kind: str, names: Iterable[str]) -> list[str]:
        """Those with a device behind them; each is looked at when it is new, for containers come and go."""
        known = self._devices_of.get(kind, {})
        folder = self._sys / kind
        found = {
            name: known[name] if name in known else (folder / name.replace("/", "!") / "device").exists()
            for name in names
        }
        self._devices_of[kind] = found
        return [name for name, real in found.items() if real]

    def _rates(self, kind: str, ways: tuple[str, str], counts: Counts) -> dict[str, float]:
        grown = self._grown(kind, counts)
        if grown is None:
            return {}
        seconds, amounts = grown
        return {
            f"system/{kind}_{way}_mb_s": amount / seconds / _MB
            for way, amount in zip(ways, amounts, strict=True)
        }

    def _grown(self, kind: str, counts: Counts) -> tuple[float, tuple[float, ...]] | None:
        """Seconds since the last call, and by how much the counters grew in sum.

        None where there is no last call, or where a counter was set back: a driver was loaded again, or the
        counter has too few bits for its traffic.
        """
        now = self._clock()
        then, before = self._last.get(kind, (now, {}))
        seconds = now - then
        if kind in self._last and seconds < SHORTEST:
            return None
        self._last[kind] = (now, counts)
        both = [name for name in counts if name in before]
        steps = [tuple(b - a for a, b in zip(before[name], counts[name], strict=True)) for name in both]
        gone = len(both) < len(before)
        if not steps or gone or any(step < 0 for each in steps for step in each):
            return None
        return seconds, tuple(sum(each) for each in zip(*steps, strict=True))
