"""What a source tells of one GPU: plain values, so that they cross the pipe from the process that asks.

Separate because sources of every make give it, and whoever matches GPUs to ranks knows nothing else of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pool:
    """Bytes of one kind of memory."""

    used: int
    total: int


@dataclass(frozen=True)
class Card:
    """One GPU, or one partition of it. What a source does not tell is None: never guessed, never zero."""

    pci: str | None = None  # "0000:63:00.0", lower case, with the domain
    uuid: str | None = None  # 16 lower-case hex digits of AMD's unique id; NVIDIA's "GPU-..." as it is
    name: str = ""
    vendor: str = "amd"  # or "nvidia"
    partition: int | None = None  # of a card in CPX, DPX or TPX mode; None where it is whole
    vram: Pool | None = None
    gtt: Pool | None = None  # system memory that the GPU may use
    apu: bool = False  # whether its VRAM is a piece cut out of the host's memory
    use_percent: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: float | None = None
    ecc_correctable: int | None = None
    ecc_uncorrectable: int | None = None

    @property
    def memory(self) -> Pool | None:
        """The pool that fills up: VRAM; on an APU the larger of the two. They are never added."""
        if self.apu and self.gtt and self.vram:
            return max(self.gtt, self.vram, key=lambda pool: pool.total)
        return self.vram

    def plain(self) -> dict[str, Any]:
        """For the pipe."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Card:
        """From the pipe."""
        pools = {name: Pool(**plain[name]) for name in ("vram", "gtt") if plain.get(name)}
        return cls(**{**plain, **pools})


@dataclass(frozen=True)
class Reading:
    """All GPUs of the node at one moment, by one source."""

    source: str = ""
    time: float = 0.0  # wall clock
    cards: tuple[Card, ...] = field(default=())
    problem: str = ""  # why there are none, for people
