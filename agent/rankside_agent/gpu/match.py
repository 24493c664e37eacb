"""Which GPU belongs to which rank, and which GPU is the fullest.

Separate from the sources, which know no ranks. A wrong card is worse than none: where what a rank said does
not prove one card, the answer is a sentence that says why. An index alone proves nothing, for drivers, tools
and runtimes each count in an order of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rankside_agent.gpu import visible
from rankside_agent.gpu.card import Card
from rankside_agent.gpu.identity import is_uuid, pci, same_uuid
from rankside_agent.gpu.kfd import Topology
from rankside_agent.gpu.visible import CUDA, HIP, ROCR, Physical

Rank = TypeVar("Rank", bound=Hashable)
# pci, uuid, masks, local_rank, vendor, render_minor, partition; each may be None or missing
Identity = Mapping[str, Any]


def owner(
    ranks: Mapping[Rank, Identity], cards: Sequence[Card], topology: Topology
) -> dict[Rank, Card | str]:
    """For each rank its card, or why that is unknown. Two ranks may have the same card."""
    alone = {rank: _by_masks(told, cards, topology) for rank, told in ranks.items()}
    doubtful = _doubtful(ranks)
    for rank, why in doubtful.items():
        if not isinstance(alone[rank], str) and not _only_one(ranks[rank], cards, topology):
            alone[rank] = why
    return {rank: _owned(told, cards, topology, alone[rank]) for rank, told in ranks.items()}


def _owned(told: Identity, cards: Sequence[Card], topology: Topology, by_masks: Physical | str) -> Card | str:
    if not cards:
        return "no GPU is known"
    named = _named(told, cards)
    if isinstance(named, str):
        return named
    if named is None:
        return (
            by_masks if isinstance(by_masks, str) else _one(_of(by_masks, cards), "its masks", by_masks.pci)
        )
    if len(named) == 1 and (named[0].partition is None or _has_own_uuid(named[0], told, cards)):
        return named[0]
    proved = _partition(told, topology, by_masks, named)
    if proved is None:
        return (
            f"it names {named[0].pci or named[0].uuid}, which is cut into partitions, and not which of them"
        )
    return _one([card for card in named if card.partition == proved], "its partition", proved)


def _named(told: Identity, cards: Sequence[Card]) -> list[Card] | str | None:
    """The cards that the rank named by address and UUID; None where it named none in a form known here."""
    address, uuid, vendor = pci(told.get("pci")), told.get("uuid"), _vendor(told, cards)
    by_pci = [card for card in cards if address and (own := pci(card.pci)) and address.same_device(own)]
    by_uuid = [card for card in cards if same_uuid(uuid, card.uuid, card.vendor)]
    if by_pci and by_uuid:
        both = [card for card in by_pci if card in by_uuid]
        return both or f"its PCI address is that of one GPU ({by_pci[0].pci}), its UUID that of another"
    if by_pci and len({card.pci and str(pci(card.pci))[:-2] for card in by_pci}) > 1:
        return f"{told.get('pci')} is the address of several GPUs, in different PCI domains"
    if by_pci or by_uuid:
        return by_pci or by_uuid
    if address or is_uuid(uuid, vendor):
        return f"it has the GPU {told.get('pci') or uuid}, which is not among those that were read"
    return None


def _vendor(told: Identity, cards: Sequence[Card]) -> str | None:
    """Said by the rank, or the only one there is."""
    makes = {card.vendor for card in cards}
    return told.get("vendor") or (makes.pop() if len(makes) == 1 else None)


def _has_own_uuid(card: Card, told: Identity, cards: Sequence[Card]) -> bool:
    """Whether the UUID told is that of this partition and of no other card: so it is with MIG."""
    return [other for other in cards if same_uuid(told.get("uuid"), other.uuid, other.vendor)] == [card] and (
        card.vendor == "nvidia"
    )


def _partition(
    told: Identity, topology: Topology, by_masks: Physical | str, named: Sequence[Card]
) -> int | None:
    """The number of the partition, where the rank's words prove one.

    Function 0 proves nothing: who leaves the function out says 0 as well.
    """
    if isinstance(told.get("partition"), int):
        return int(told["partition"])
    minor = told.get("render_minor")
    for node in topology.gpus:
        if minor is not None and node.render_minor == minor:
            return node.partition
    address = pci(told.get("pci"))
    if address and address.function:
        return address.function
    if isinstance(by_masks, Physical) and _of(by_masks, named):
        return by_masks.partition
    return None


def _of(physical: Physical, cards: Iterable[Card]) -> list[Card]:
    """The cards that are this GPU: by address or UUID, and by the partition."""
    address = pci(physical.pci)
    found = [
        card
        for card in cards
        if (address and (own := pci(card.pci)) and address.same_device(own))
        or (same_uuid(physical.uuid, card.uuid, card.vendor) and not (address and card.pci))
    ]
    exact = [card for card in found if card.partition == physical.partition]
    return exact or [card for card in found if card.partition is None]  # a source that knows no partitions


def _one(found: Sequence[Card], what: str, which: object) -> Card | str:
    if len(found) == 1:
        return found[0]
    return f"{what} ({which}) is that of {len(found)} of the GPUs that were read"


def _by_masks(told: Identity, cards: Sequence[Card], topology: Topology) -> Physical | str:
    seen = _seen(told, cards, topology)
    return seen if isinstance(seen, str) else visible.chosen(seen, told.get("local_rank"))


def _seen(told: Identity, cards: Sequence[Card], topology: Topology) -> list[Physical] | str:
    masks, vendor = told.get("masks"), _vendor(told, cards)
    if not isinstance(masks, Mapping):
        return "it named no GPU, and its masks are not known"
    if vendor not in {"amd", "nvidia"}:
        return "it named no GPU, nor its maker, and there are GPUs of several"
    texts = {name: value for name, value in masks.items() if isinstance(value, str)}
    return visible.amd(texts, topology) if vendor == "amd" else visible.nvidia(texts, cards)


def _only_one(told: Identity, cards: Sequence[Card], topology: Topology) -> bool:
    seen = _seen(told, cards, topology)
    return not isinstance(seen, str) and len(seen) == 1


def _doubtful(ranks: Mapping[Rank, Identity]) -> dict[Rank, str]:
    """Ranks whose local rank may not be the number of their device.

    Where masks differ from rank to rank, each lists the rank's own GPUs, of which it uses the first; a local
    rank counts along a mask only if the ranks with that mask begin at 0, as those of a job of its own do.
    """
    groups: dict[tuple[Any, ...], dict[Rank, Identity]] = defaultdict(dict)
    for rank, told in ranks.items():
        if isinstance(masks := told.get("masks"), Mapping):
            groups[tuple(masks.get(name) for name in (ROCR, HIP, CUDA))][rank] = told
    if len(groups) < 2:
        return {}
    why = "masks differ from rank to rank, and leave it several GPUs"
    astray = [group for group in groups.values() if all(told.get("local_rank") for told in group.values())]
    return {rank: why for group in astray for rank in group}


@dataclass(frozen=True)
class Fullest:
    """The GPU of the node with the most bytes in use."""

    card: Card
    ranks: tuple[Any, ...] = ()  # that have it
    why: str = ""  # no rank is known to have it


def fullest(cards: Iterable[Card], owners: Mapping[Rank, Card | str]) -> Fullest | None:
    """By used bytes; None where no card tells its memory."""
    told = [(card.memory.used, card) for card in cards if card.memory]
    if not told:
        return None
    card = max(told, key=lambda pair: pair[0])[1]
    ranks = tuple(rank for rank, own in owners.items() if isinstance(own, Card) and _same(own, card))
    unknown = sum(isinstance(own, str) for own in owners.values())
    why = f"the GPU of {unknown} ranks is not known" if unknown else "no rank has said that it uses it"
    return Fullest(card, ranks, "" if ranks else why)


def _same(one: Card, other: Card) -> bool:
    """Whether both are of one GPU, though not of one moment."""
    names = [(card.pci, card.uuid, card.partition) for card in (one, other)]
    return one is other or (names[0] == names[1] and any(names[0][:2]))
