"""NVIDIA's GPUs through NVML, for the nodes on which people develop.

Separate as one source among others, named for what it is. The package `nvidia-ml-py` is an optional extra,
and its calls are foreign code: each is caught alone, in one place.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.identity import pci_text
from rankside_agent.gpu.source import Source, Unavailable

_MOST = 64  # MIG devices of a card; NVIDIA's own limit is 7


class Nvml(Source):
    """Every GPU that NVML shows; of a card in MIG mode its instances."""

    name: ClassVar[str] = "nvml"

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> None:
        self._load = load
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._started = False

    def open(self) -> None:
        """Start the library and get the handles, which are kept."""
        self.close()
        try:
            self._nvml = self._load()
        except Exception as error:
            raise Unavailable(f"the package nvidia-ml-py cannot be imported: {error}") from error
        try:
            self._nvml.nvmlInit()
            self._started = True
            count = self._nvml.nvmlDeviceGetCount()
        except Exception as error:
            self.close()
            raise Unavailable(f"NVML: {error}") from error
        handles = [self._ask("nvmlDeviceGetHandleByIndex", at) for at in range(count)]
        self._handles = [handle for handle in handles if handle is not None]
        if not self._handles:
            self.close()
            raise Unavailable("NVML shows no GPU that this user may ask")

    def read(self) -> list[Card]:
        """The state of every GPU now."""
        if not self._started:
            raise Unavailable("NVML is not started")
        cards = [card for handle in self._handles for card in self._cards(handle)]
        if not any(card.vram for card in cards):
            raise Unavailable("NVML tells the memory of no GPU any more")
        return cards

    def close(self) -> None:
        """Stop the library, if it was started."""
        self._handles = []
        if self._started:
            self._started = False
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()

    def _cards(self, handle: Any) -> Iterator[Card]:
        """The card, or its instances: the first carries what is measured of the whole card only."""
        state = self._state(handle)
        parts = list(self._instances(handle))
        if not parts:
            yield self._card(handle, None, state)
        for part, number in parts:
            yield self._card(part, number, {**state, "use_percent": None})
            state = {"pci": state["pci"], "name": state["name"]}

    def _instances(self, handle: Any) -> Iterator[tuple[Any, int]]:
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        if not mode or not mode[0]:
            return
        for at in range(min(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, _MOST)):
            part = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, at)
            if part is not None:
                yield part, at

    def _card(self, handle: Any, partition: int | None, state: dict[str, Any]) -> Card:
        return Card(
            uuid=_text(self._ask("nvmlDeviceGetUUID", handle)) or None,
            vendor="nvidia",
            partition=partition,
            vram=self._memory(handle),
            **state,
        )

    def _memory(self, handle: Any) -> Pool | None:
        """By version 2 where it is there: version 1 counts what the driver reserves as used."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        told = self._ask("nvmlDeviceGetMemoryInfo", handle, version) if version else None
        told = told or self._ask("nvmlDeviceGetMemoryInfo", handle)
        return Pool(int(told.used), int(told.total)) if told and 0 <= told.used <= told.total > 0 else None

    def _state(self, handle: Any) -> dict[str, Any]:
        place = self._ask("nvmlDeviceGetPciInfo", handle)
        use = self._ask("nvmlDeviceGetUtilizationRates", handle)
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        return {
            "pci": pci_text(_text(place.busId)) if place else None,
            "name": _text(self._ask("nvmlDeviceGetName", handle)),
            "use_percent": float(use.gpu) if use else None,
            "power_w": power / 1000 if power is not None else None,  # milliwatts
            "temperature_c": self._temperature(handle),
            "clock_mhz": _float(self._ask("nvmlDeviceGetClockInfo", handle, "NVML_CLOCK_SM")),
            "ecc_correctable": self._errors(handle, "NVML_MEMORY_ERROR_TYPE_CORRECTED"),
            "ecc_uncorrectable": self._errors(handle, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
        }

    def _temperature(self, handle: Any) -> float | None:
        """By the new call, which older drivers lack, else by the one that goes away with CUDA 14."""
        told = self._ask("nvmlDeviceGetTemperatureV", handle, "NVML_TEMPERATURE_GPU")
        if told is None:
            told = self._ask("nvmlDeviceGetTemperature", handle, "NVML_TEMPERATURE_GPU")
        return _float(told)

    def _errors(self, handle: Any, kind: str) -> int | None:
        """Since the driver started, as AMD's driver counts."""
        told = self._ask("nvmlDeviceGetTotalEccErrors", handle, kind, "NVML_VOLATILE_ECC")
        return int(told) if told is not None else None

    def _ask(self, name: str, *arguments: Any) -> Any:
        """The one place where the library is asked; constants are given by name. None: it does not tell."""
        try:
            values = [getattr(self._nvml, given) if isinstance(given, str) else given for given in arguments]
            return getattr(self._nvml, name)(*values)
        except Exception:  # noqa: BLE001  foreign code: not supported, no permission, a lost GPU, an old package
            return None


def _text(told: Any) -> str:
    """Older packages give bytes."""
    return (
        told.decode("ascii", "replace") if isinstance(told, bytes) else told if isinstance(told, str) else ""
    )


def _float(told: Any) -> float | None:
    return float(told) if told is not None else None
