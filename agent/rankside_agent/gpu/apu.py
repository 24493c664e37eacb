"""Whether a GPU is part of the processor, so that its VRAM is a piece cut out of the host's memory.

Separate because no single file says so, and because the answer decides which pool of memory fills up. A large
GTT proves nothing: a card of 192 GiB in a host of 2 TiB has a GTT of 1 TiB.
"""

from __future__ import annotations

from rankside_agent.gpu.card import Pool
from rankside_agent.gpu.kfd import Node

# gfx_target_version of what is built into processors only: gfx902, 909, 90c, 1033, 1035, 1036, 1103, 115x
_BUILT_IN = {90002, 90009, 90012, 100303, 100305, 100306, 110003, 110500, 110501, 110502, 110503}
_HEADER = 4  # bytes of gpu_metrics: structure_size (2), format_revision, content_revision
_CARD_FORMAT, _APU_FORMATS = 1, {2, 3}  # the driver's gpu_metrics_v1_* are for cards, v2_* and v3_* for APUs
_SMALL, _TIMES = 1 << 30, 8  # no card with less than a GiB runs ROCm; carve-outs of firmware start at 256 MiB


def is_apu(node: Node | None, metrics: bytes | None, vram: Pool | None, gtt: Pool | None) -> bool:
    """By the node, the head of `gpu_metrics`, and, where both are silent, a VRAM too small for any card."""
    if node and (node.cpu_cores > 0 or node.gfx in _BUILT_IN):
        return True
    revision = metrics[2] if metrics and len(metrics) >= _HEADER else None
    if revision in _APU_FORMATS or revision == _CARD_FORMAT:
        return revision != _CARD_FORMAT
    return bool(vram and gtt and vram.total <= _SMALL and gtt.total >= _TIMES * vram.total)
