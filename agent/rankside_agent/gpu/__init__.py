"""Where GPUs' memory and state come from: the table of sources, in the order in which they are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankside_agent import choices

if TYPE_CHECKING:
    from rankside_agent.gpu.source import Source

SOURCES = {
    "amdsmi": "rankside_agent.gpu.amdsmi:AmdSmi",
    "sysfs": "rankside_agent.gpu.sysfs:Sysfs",
    "rocm-smi": "rankside_agent.gpu.rocm_smi:RocmSmi",
    "nvml": "rankside_agent.gpu.nvml:Nvml",
}


def load(name: str) -> type[Source]:
    """The class of a source. Raises ValueError with the choices, and whatever its import raises."""
    found: type[Source] = choices.load("gpu_sources", SOURCES, name)
    return found
