"""What is asked of the `amdsmi` package for each field of a card: a table, for names differ by version.

Separate from the source, which decides when to ask; here stands only what a call is named and what its
answer means. Each field has one or more ways, tried in order until one tells something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rankside_agent.gpu.card import Pool
from rankside_agent.gpu.identity import pci_text, unique_id

Way = Callable[[Any, Any], Any]  # (package, handle) -> value; raises whatever the package raises

PARTITIONED = ("DPX", "TPX", "QPX", "CPX")
# The library fills what it does not know with ones, and not each version of the package says "N/A" for it.
_UNKNOWN = {2**bits - 1 for bits in (16, 32, 64)} | {2**bits - 1 for bits in (31, 63)} | {-(2**63)}
_MEGABYTE = 1 << 20
_HOTTEST = 200  # degrees; versions before 6 tell some in thousandths


def number(value: object, low: float = 0, high: float = 2**64) -> Any:
    """The value, where it is a number and may be one; the others mean that it is not known."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value in _UNKNOWN:
        return None
    return value if low <= value <= high else None


def _pci(package: Any, handle: Any) -> str | None:
    return pci_text(package.amdsmi_get_gpu_device_bdf(handle))


def _asic(package: Any, handle: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = package.amdsmi_get_gpu_asic_info(handle)
    return found


def _uuid(package: Any, handle: Any) -> str | None:
    serial = number(int(str(_asic(package, handle)["asic_serial"]), 16))  # "N/A" is a ValueError
    return unique_id(serial or 0)


def _name(package: Any, handle: Any) -> str | None:
    name = str(_asic(package, handle)["market_name"]).strip()
    return name if name not in ("", "N/A") else None


def _partition(package: Any, handle: Any) -> int | None:
    found: int | None = number(package.amdsmi_get_gpu_kfd_info(handle)["current_partition_id"], 0, 63)
    return found


def _split(package: Any, handle: Any) -> bool:
    return str(package.amdsmi_get_gpu_compute_partition(handle)).strip().upper() in PARTITIONED


def _apu(package: Any, handle: Any) -> bool:
    """Memory of the kinds that hosts have; a card of its own has GDDR or HBM."""
    kind = package.amdsmi_get_gpu_vram_info(handle)["vram_type"]
    names = package.amdsmi_wrapper.amdsmi_vram_type_t__enumvalues  # numbers differ by version, names do not
    return str(names[kind]).rpartition("TYPE_")[2].startswith(("DDR", "LPDDR"))


def _pool(used: object, total: object, unit: int = 1) -> Pool | None:
    held, whole = number(used), number(total, 1)
    if held is None or whole is None or held > whole:
        return None
    return Pool(int(held) * unit, int(whole) * unit)


def _bytes_of(package: Any, handle: Any, kind: str) -> Pool | None:
    which = package.AmdSmiMemoryType[kind]
    used = package.amdsmi_get_gpu_memory_usage(handle, which)
    return _pool(used, package.amdsmi_get_gpu_memory_total(handle, which))


def _vram(package: Any, handle: Any) -> Pool | None:
    return _bytes_of(package, handle, "VRAM")


def _vram_megabytes(package: Any, handle: Any) -> Pool | None:
    """Fields of 32 bits, which hold megabytes."""
    found = package.amdsmi_get_gpu_vram_usage(handle)
    return _pool(found["vram_used"], found["vram_total"], _MEGABYTE)


def _gtt(package: Any, handle: Any) -> Pool | None:
    return _bytes_of(package, handle, "GTT")


def _use(package: Any, handle: Any) -> float | None:
    found: float | None = number(package.amdsmi_get_gpu_activity(handle)["gfx_activity"], 0, 100)
    return found


def _power(package: Any, handle: Any) -> float | None:
    """Each series of GPUs fills another of the three; none runs on no power at all."""
    found = package.amdsmi_get_power_info(handle)
    names = ("socket_power", "current_socket_power", "average_socket_power")
    told = [number(found.get(name), 1, 1e5) for name in names]
    return next((watts for watts in told if watts is not None), None)


def _sensor(kind: str) -> Way:
    def ask(package: Any, handle: Any) -> float | None:
        sensor = package.AmdSmiTemperatureType[kind]
        now = package.AmdSmiTemperatureMetric.CURRENT
        value: float | None = number(package.amdsmi_get_temp_metric(handle, sensor, now), 0, _HOTTEST * 1000)
        return value / 1000 if value is not None and value > _HOTTEST else value

    ask.__name__ = f"temperature {kind}"
    return ask


def _clock(package: Any, handle: Any) -> float | None:
    found = package.amdsmi_get_clock_info(handle, package.AmdSmiClkType.GFX)
    speed: float | None = number(found.get("clk", found.get("cur_clk")), 0, 1e5)
    return speed


def _ecc(package: Any, handle: Any) -> tuple[int | None, int | None]:
    found = package.amdsmi_get_gpu_total_ecc_count(handle)
    return number(found["correctable_count"]), number(found["uncorrectable_count"])


# Asked until told, then known for as long as the handles are
LASTING: dict[str, tuple[Way, ...]] = {
    "pci": (_pci,),
    "uuid": (_uuid,),
    "name": (_name,),
    "partition": (_partition,),
    "split": (_split,),
    "apu": (_apu,),
}
# Asked at every poll
STATE: dict[str, tuple[Way, ...]] = {
    "vram": (_vram, _vram_megabytes),
    "gtt": (_gtt,),
    "use_percent": (_use,),
    "power_w": (_power,),
    "temperature_c": (_sensor("HOTSPOT"), _sensor("JUNCTION"), _sensor("EDGE")),
    "clock_mhz": (_clock,),
    "ecc": (_ecc,),
}
