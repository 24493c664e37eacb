"""The ranks' shares of what the node's gauges show: whose GPU is which, and what is known of it.

Separate because only here do GPUs and ranks meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rankside.device import MASKS
from rankside.identity import Hello
from rankside_agent.gauges import Seen
from rankside_agent.gpu import match
from rankside_agent.gpu.card import Card
from rankside_agent.gpu.kfd import Topology
from rankside_agent.gpu.match import Identity
from rankside_agent.training.memory import GB, Memory

_KINDS = {"amd": "rocm", "nvidia": "nvidia"}
_LONGEST = 200  # characters of what a rank says of its GPU
_FIGURES = {
    "gpu_use_percent": "use_percent",
    "gpu_power_w": "power_w",
    "gpu_temperature_c": "temperature_c",
    "gpu_clock_mhz": "clock_mhz",
    "gpu_ecc_correctable": "ecc_correctable",
    "gpu_ecc_uncorrectable": "ecc_uncorrectable",
}
_POOLS = {"gpu_memory": "memory", "gpu_vram": "vram", "gpu_gtt": "gtt"}


def said_device(told: Any) -> dict[str, Any] | None:
    """What a rank's process found out of its GPU, made plain; None where it said nothing."""
    if not isinstance(told, dict):
        return None
    words = ("vendor", "name", "uuid", "pci")
    return {name: told[name][:_LONGEST] for name in words if isinstance(told.get(name), str)}


def memory_of(
    seen: Seen | None, label: str, hellos: Sequence[Hello], devices: Mapping[str, Mapping[str, Any]]
) -> Memory | None:
    """Of the rank `label`, and the fullest GPU of the node; None where no GPU tells its memory."""
    cards = seen.reading.cards if seen else ()
    if seen is None or not any(card.memory for card in cards):
        return None
    owners = match.owner(_identities(hellos, devices, seen.topology), cards, seen.topology)
    full = match.fullest(cards, owners)
    own = owners.get(label, "the rank is not known")
    kind = _KINDS.get((own if isinstance(own, Card) else cards[0]).vendor, "rocm")
    memory = Memory(kind, unknown=own) if isinstance(own, str) else _of(kind, own)
    if full is None or full.card.memory is None:
        return memory
    ranks = ",".join(sorted(map(str, full.ranks), key=lambda rank: (len(rank), rank))) or "?"
    used, total = full.card.memory.used, full.card.memory.total
    return memory._replace(fullest=used, fullest_total=total, fullest_rank=ranks)


def figures_of(
    seen: Seen | None, hellos: Sequence[Hello], devices: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """`system/rank-3/gpu_power_w` and so on; of a GPU that is no rank's here, by its address."""
    if seen is None:
        return {}
    cards = seen.reading.cards
    owners = match.owner(_identities(hellos, devices, seen.topology), cards, seen.topology)
    found: dict[str, float] = {}
    for number, card in enumerate(cards):
        for place in _places(number, card, owners):
            found.update({f"system/{place}/{name}": value for name, value in _figures(card)})
    return found


def _figures(card: Card) -> Iterator[tuple[str, float]]:
    for name, attribute in _FIGURES.items():
        value = getattr(card, attribute)
        if value is not None:
            yield name, float(value)
    for name, attribute in _POOLS.items():  # each on its own: they are never added
        pool = getattr(card, attribute)
        if pool is not None and pool.total > 0 and (attribute != "vram" or card.apu):
            yield f"{name}_used_gb", pool.used / GB
            yield f"{name}_percent", 100.0 * pool.used / pool.total


def _of(kind: str, card: Card) -> Memory:
    if card.memory is None:
        return Memory(kind, unknown="this GPU does not tell its memory")
    return Memory(kind, card.memory.used, card.memory.total)


def _places(number: int, card: Card, owners: Mapping[str, Card | str]) -> list[str]:
    mine = [rank for rank, own in owners.items() if own is card or own == card]
    if mine:
        return [f"rank-{rank}" for rank in mine]
    part = "" if card.partition is None else f".{card.partition}"
    return [f"gpu-{card.pci or card.uuid or number}{part}"]


def _identities(
    hellos: Sequence[Hello], devices: Mapping[str, Mapping[str, Any]], topology: Topology
) -> dict[str, Identity]:
    """What each rank said.

    Masks count only where the rank sees the GPUs that we see: in a container, or under Slurm's device cgroup,
    they count along another list.
    """
    found: dict[str, Identity] = {}
    for hello in hellos:
        same = hello.gpus.get("kfd") == len(topology.gpus)
        masks = {name: hello.gpus.get(name) for name in MASKS} if same and hello.gpus else None
        found[hello.label] = {
            **devices.get(hello.label, {}),
            "masks": masks,
            "local_rank": hello.local_rank,
        }
    return found
