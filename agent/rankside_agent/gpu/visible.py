"""Which GPU a rank has, worked out from the masks in its environment and its local rank alone.

Separate because the rules are those of three runtimes (ROCR, HIP, CUDA) and not ours; each is told where it
is applied. They hold for a rank that sees the same GPUs as this process: masks of a rank in a container with
other devices count along another list, and are not to be given here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankside_agent.gpu.card import Card
from rankside_agent.gpu.identity import pci
from rankside_agent.gpu.kfd import Node, Topology

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
# C's strtol with base 0, which ROCR uses: 0x for hexadecimal, a leading 0 for octal
_ROCR_INDEX = re.compile(r"([+-]?)(0X[0-9A-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
_HIP_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_CUDA_INDEX = re.compile(r"\s*\+?([0-9]{1,9})", re.ASCII)
_WHOLE_UUID = re.compile(r"GPU-[0-9a-f]{16}", re.IGNORECASE)
_ROCR_UUID = range(5, 21)  # characters: "GPU-" and one to sixteen digits


@dataclass(frozen=True)
class Physical:
    """A GPU, or one partition of it."""

    pci: str | None
    uuid: str | None
    partition: int | None = None


def chosen(seen: Sequence[Physical], local_rank: int | None) -> Physical | str:
    """The one GPU that is left, whatever the local rank; of several the one with its number."""
    if not seen:
        return "its masks leave no GPU"
    if len(seen) == 1:
        return seen[0]
    if local_rank is None:
        return f"{len(seen)} GPUs are visible to it, and its local rank is not known"
    if not 0 <= local_rank < len(seen):
        return f"its local rank is {local_rank}, and {len(seen)} GPUs are visible to it"
    return seen[local_rank]


def amd(masks: Mapping[str, str], topology: Topology) -> list[Physical] | str:
    """ROCR cuts KFD's list first; HIP then counts along what is left, and knows CUDA's mask as its own."""
    if not topology.gpus:
        return f"masks cannot be resolved: {topology.problem}"
    given = {name: masks[name] for name in (ROCR, HIP, CUDA) if masks.get(name) is not None}
    if topology.broken and not _by_uuid_alone(given):
        return f"masks cannot be resolved: {topology.problem}"
    nodes = list(topology.gpus)
    if ROCR in given:
        nodes = _rocr(given[ROCR], nodes)
    second = given.get(HIP) or given.get(CUDA)
    if given.get(HIP, given.get(CUDA)) == "" and nodes:
        return "its HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES is empty: HIP shows all GPUs then, torch none"
    if second is not None:
        nodes = _hip(second, nodes)
    return [Physical(str(node.pci), node.uuid, node.partition) for node in nodes]


def _by_uuid_alone(given: Mapping[str, str]) -> bool:
    """Whether the first mask names its GPUs by whole UUIDs: those hold without knowing what else there is."""
    first = given.get(ROCR) or given.get(HIP) or given.get(CUDA) or ""
    return all(_WHOLE_UUID.fullmatch(token.strip()) for token in first.split(","))


def _rocr(mask: str, nodes: Sequence[Node]) -> list[Node]:
    """What is invalid, ambiguous or a repetition ends the list; an empty mask leaves nothing."""
    tokens = [token.strip().upper() for token in mask.split(",")]
    uuids = [f"GPU-{node.uuid}".upper() if node.uuid else "" for node in nodes]
    found: list[int] = []
    for token in tokens[: len(nodes)]:  # ROCR looks at no more tokens than there are GPUs
        at = _rocr_uuid(token, uuids) if token.startswith("G") else _rocr_index(token)
        if at is None or not 0 <= at < len(nodes) or at in found:
            break
        found.append(at)
    return [nodes[at] for at in found]


def _rocr_uuid(token: str, uuids: Sequence[str]) -> int | None:
    """The beginning of one UUID. Partitions share theirs, so that it names none of them."""
    matches = [at for at, uuid in enumerate(uuids) if uuid.startswith(token)]
    return matches[0] if len(matches) == 1 and len(token) in _ROCR_UUID else None


def _rocr_index(token: str) -> int | None:
    match = _ROCR_INDEX.fullmatch(token)
    if not match:
        return None
    sign, digits = match.groups()
    base = 16 if digits.startswith("0X") else 8 if digits.startswith("0") else 10
    return int(digits[:20], base) * (-1 if sign == "-" else 1)


def _hip(mask: str, nodes: Sequence[Node]) -> list[Node]:
    """A repetition is passed over; anything but a plain index or a part of a UUID ends the list."""
    found: list[int] = []
    for token in mask.split(","):
        at = int(token) if _HIP_INDEX.fullmatch(token) else _hip_uuid(token, nodes)
        if at is None or at >= len(nodes):
            break
        if at not in found:
            found.append(at)
    return [nodes[at] for at in found]


def _hip_uuid(token: str, nodes: Sequence[Node]) -> int | None:
    """The first GPU whose UUID contains it, in HIP's own spelling: capitals match nothing."""
    if "GPU-" not in token:
        return None
    return next((at for at, node in enumerate(nodes) if node.uuid and token in f"GPU-{node.uuid}"), None)


def nvidia(masks: Mapping[str, str], cards: Iterable[Card]) -> list[Physical] | str:
    """CUDA's rules: a repetition hides everything, an invalid entry ends the list, UUIDs may be cut short."""
    own = sorted((card for card in cards if card.vendor == "nvidia"), key=_place)
    mask = masks.get(CUDA)
    if not own:
        return "masks cannot be resolved: no NVIDIA GPU is known"
    if mask is not None and mask.startswith(("GPU-", "MIG-")):
        return _cuda_uuids(mask, own)
    doubt = _cuda_order(own, masks.get(_ORDER) == "PCI_BUS_ID")
    return doubt if doubt and mask != "" else _cuda_indices(mask, own)


def _cuda_order(own: Sequence[Card], by_bus: bool) -> str:
    """Why an index cannot be resolved; empty where it can."""
    models = {card.name for card in own}
    if any(card.partition is not None for card in own):
        return "cards are in MIG mode: only a mask of UUIDs says which instance is meant"
    if len(own) > 1 and any(card.pci is None for card in own):
        return "the order of CUDA's devices is not known: the source tells no PCI addresses"
    if len(own) > 1 and not by_bus and (len(models) > 1 or "" in models):
        return "CUDA counts the fastest GPU first, and models differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
    return ""


def _place(card: Card) -> tuple[int, int, int]:
    found = pci(card.pci)
    return (found.domain or 0, found.bus, found.device) if found else (0, 0, 0)


def _cuda_indices(mask: str | None, own: Sequence[Card]) -> list[Physical]:
    found: list[int] = []
    for token in mask.split(",") if mask is not None else map(str, range(len(own))):
        match = _CUDA_INDEX.match(token)  # what follows the digits is passed over, as strtoul does
        if not match or int(match[1]) >= len(own):
            break
        if int(match[1]) in found:
            return []
        found.append(int(match[1]))
    return [_physical(own[at]) for at in found]


def _cuda_uuids(mask: str, own: Sequence[Card]) -> list[Physical]:
    found: list[Card] = []
    for token in mask.split(","):
        matches = [card for card in own if card.uuid and card.uuid.lower().startswith(token.strip().lower())]
        if len(matches) != 1 or not token.strip()[4:]:
            break
        if matches[0] in found:
            return []
        found.append(matches[0])
    return [_physical(card) for card in found]


def _physical(card: Card) -> Physical:
    return Physical(card.pci, card.uuid, card.partition)
