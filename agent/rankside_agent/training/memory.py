"""A rank's GPU memory in a sample, and the fullest GPU there is.

Separate because it comes from two sides, the process and the node, and each says what it is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

GB = 1024**3  # as Primus prints it


class Memory(NamedTuple):
    """Bytes. `kind`: "hip" or "cuda" as the process sees it, "rocm" or "nvidia" as the node does."""

    kind: str
    used: int | None = None  # None where it is not known which GPU is the rank's
    total: int | None = None
    fullest: int | None = None  # bytes used of the fullest GPU
    fullest_total: int | None = None
    fullest_rank: str = "?"  # the rank that has it; "?" where that is not known
    unknown: str = ""  # why `used` is None

    @property
    def ratio(self) -> float:
        """Used of total, in percent."""
        return 100.0 * (self.used or 0) / self.total if self.total else 0.0

    @property
    def fullest_ratio(self) -> float:
        """The same of the fullest GPU."""
        return 100.0 * (self.fullest or 0) / self.fullest_total if self.fullest_total else 0.0

    def beside(self, other: Memory | None) -> Memory:
        """With the fullest GPU of both."""
        if other is None or (other.fullest or 0) <= (self.fullest or 0):
            return self
        return self._replace(
            fullest=other.fullest, fullest_total=other.fullest_total, fullest_rank=other.fullest_rank
        )

    def scalars(self) -> dict[str, float]:
        """Under Primus' names."""
        found: dict[str, float] = {}
        if self.used is not None and self.total:
            found = {
                f"{self.kind}_used_mem(GB)": self.used / GB,
                f"{self.kind}_free_mem(GB)": (self.total - self.used) / GB,
                f"{self.kind}_total_mem(GB)": self.total / GB,
                f"{self.kind}_mem_usage(%)": self.ratio,
            }
        if self.fullest is not None and self.fullest_total:
            found[f"{self.kind}_max_used_mem(GB)"] = self.fullest / GB
            found[f"{self.kind}_max_mem_usage(%)"] = self.fullest_ratio
        return found

    def segments(self) -> list[str]:
        """As they stand in the training line."""
        name = f"{self.kind} mem usage/free/total/usage_ratio"
        found = []
        if self.used is not None and self.total:
            free = self.total - self.used
            found.append(
                f"{name}: {self.used / GB:.2f}GB/{free / GB:.2f}GB/{self.total / GB:.2f}GB/{self.ratio:.2f}%"
            )
        elif self.unknown:
            found.append(f"{name}: unknown ({self.unknown})")
        if self.fullest is not None and self.fullest_total:
            found.append(
                f"rank-{self.fullest_rank} {self.kind} max mem usage/usage_ratio: "
                f"{self.fullest / GB:.2f}GB/{self.fullest_ratio:.2f}%"
            )
        return found


def of_process(fields: Mapping[str, Any]) -> Memory | None:
    """What the rank's own process saw: the fields `hip_free` and `hip_total`, or `cuda_...`, in bytes."""
    for kind in ("hip", "cuda"):
        free, total = fields.get(f"{kind}_free"), fields.get(f"{kind}_total")
        if isinstance(free, int | float) and isinstance(total, int | float) and 0 <= free <= total:
            return Memory(kind, int(total - free), int(total))
    return None
