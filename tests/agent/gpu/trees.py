"""Fixture trees of /sys: nodes as AMD's driver shows them, built where a test wants them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GIB = 1 << 30
MI300X = 206141652992  # bytes: 192 GiB less 16 MiB


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


@dataclass
class Gpu:
    """One PCI device with its drm card, and the KFD nodes that it has."""

    bus: int
    unique_id: int = 0
    card: int | None = 1  # number below /sys/class/drm; None: no drm entry
    domain: int = 0
    total: int = MI300X
    used: int = 301989888
    gtt_total: int = 540000000000
    gtt_used: int = 0
    partitions: int = 1
    partition_bits: str = "function"  # or "high": where location_id holds the partition
    cpu_cores: int = 0
    gfx: int = 90402
    name: str = "aqua_vanjaram"
    minor: int = 128
    vendor: str = "0x1002"
    files: dict[str, Any] = field(default_factory=dict)  # more, or others, of the device

    @property
    def pci(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:00.0"

    @property
    def uuid(self) -> str:
        return f"{self.unique_id:016x}"


class Sys:
    """A tree; `add` puts a GPU into it, in the order in which KFD counts."""

    def __init__(self, root: Path, cpus: int = 2) -> None:
        self.root = root
        self.nodes = 0
        (root / "class" / "drm").mkdir(parents=True)
        for _ in range(cpus):
            self.node(
                {"cpu_cores_count": 64, "simd_count": 0, "vendor_id": 0, "drm_render_minor": 0}, gpu_id=0
            )

    def node(self, properties: dict[str, int], gpu_id: int = 41236, name: str = "") -> Path:
        folder = self.root / "class/kfd/kfd/topology/nodes" / str(self.nodes)
        self.nodes += 1
        write(folder / "properties", "\n".join(f"{key} {value}" for key, value in properties.items()))
        write(folder / "gpu_id", gpu_id)
        write(folder / "name", name)
        return folder

    def add(self, gpu: Gpu) -> Gpu:
        if gpu.card is not None:
            self.device(gpu)
        for part in range(gpu.partitions):
            location = gpu.bus << 8 | (part << 28 if gpu.partition_bits == "high" else part)
            self.node(
                {
                    "cpu_cores_count": gpu.cpu_cores,
                    "simd_count": 416,
                    "gfx_target_version": gpu.gfx,
                    "vendor_id": 4098,
                    "location_id": location,
                    "domain": gpu.domain,
                    "drm_render_minor": gpu.minor + part,
                    "unique_id": gpu.unique_id,
                    "local_mem_size": 0,
                },
                gpu_id=1000 + self.nodes,
                name=gpu.name,
            )
        return gpu

    def device(self, gpu: Gpu) -> Path:
        """The PCI device, and the link to it below class/drm."""
        folder = self.root / "devices/pci0000:00" / gpu.pci
        monitor = folder / "hwmon" / "hwmon3"
        values = {
            "vendor": gpu.vendor,
            "mem_info_vram_total": gpu.total,
            "mem_info_vram_used": gpu.used,
            "mem_info_gtt_total": gpu.gtt_total,
            "mem_info_gtt_used": gpu.gtt_used,
            "unique_id": gpu.uuid,
            "gpu_busy_percent": 94,
            **gpu.files,
        }
        for name, value in values.items():
            if value is not None:
                write(folder / name, value)
        if "mem_info_vram_total" in values and "hwmon" not in gpu.files:
            write(monitor / "power1_average", 142000000)
            write(monitor / "temp1_input", 42000)
            write(monitor / "freq1_input", 132000000)
        self.link(f"card{gpu.card}", folder)
        return folder

    def link(self, name: str, device: Path) -> None:
        entry = self.root / "class/drm" / name
        entry.mkdir(parents=True)
        (entry / "device").symlink_to(device)

    def clutter(self, gpu: Gpu) -> None:
        """What else lies below class/drm: connectors, render nodes, partitions' render nodes, a text file."""
        device = self.root / "devices/pci0000:00" / gpu.pci
        self.link(f"card{gpu.card}-DP-1", device)
        self.link("renderD128", device)
        partition = self.root / "devices/platform/amdgpu_xcp.29"
        partition.mkdir(parents=True)
        self.link("renderD162", partition)
        write(self.root / "class/drm/version", "drm 1.1.0 20060810")


def ast(tree: Sys, card: int = 0) -> None:
    """The server's own VGA, which takes card0."""
    folder = tree.root / "devices/pci0000:00/0000:03:00.0"
    write(folder / "vendor", "0x1a03")
    tree.link(f"card{card}", folder)


BUSES = (0x0C, 0x22, 0x38, 0x5C, 0x9F, 0xAF, 0xBF, 0xDF)


def mi300x(root: Path, **more: Any) -> tuple[Sys, list[Gpu]]:
    """Eight cards; drm counts them the other way round than KFD, after the VGA."""
    tree = Sys(root)
    ast(tree)
    gpus = [
        Gpu(bus, 0xA000000000000001 + at, card=8 - at, used=(at + 1) * GIB, minor=128 + 8 * at, **more)
        for at, bus in enumerate(BUSES)
    ]
    for gpu in gpus:
        tree.add(gpu)
    tree.clutter(gpus[0])
    return tree, gpus


def cpx(root: Path, **more: Any) -> tuple[Sys, Gpu]:
    """One card cut into eight; one more node has no drm entry."""
    tree = Sys(root)
    gpu = tree.add(Gpu(5, 1234567890123456789, partitions=8, minor=128, **more))
    tree.add(Gpu(0x63, 77, card=None, minor=140))
    return tree, gpu
