"""Cards that appear as several GPUs (CPX, DPX, TPX): which part is which, and what counts only once.

Separate because drivers tell the whole card's memory and power for each of its parts, or for the first alone,
and the sum over a node must not grow with the number of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rankside_agent.gpu.card import Card, Pool

ADDITIVE = ("gtt", "power_w", "ecc_correctable", "ecc_uncorrectable")  # of the card, whatever part tells them


def numbered(cards: list[Card], split: list[bool]) -> list[Card]:
    """With the number of each part where it can be told, and None for whole cards.

    `partition` comes in as the driver's number, which is 0 for a whole card too; `split` is what the driver
    says of the card's mode, and counts only where one part is to be seen.
    """
    settled = list(cards)
    for group in _groups(cards):
        known = [cards[at].partition for at in group]
        if len(group) > 1 and (None in known or len({*known}) < len(group)):
            known = _functions([cards[at].pci for at in group])
        elif len(group) == 1 and not split[group[0]]:
            known = [None]
        for at, partition in zip(group, known, strict=True):
            settled[at] = replace(cards[at], partition=partition)
    return settled


def counted_once(cards: list[Card], again: Callable[[int], Pool | None]) -> list[Card]:
    """Without what another part has told already. `again` reads the memory of one part anew."""
    settled = list(cards)
    for group in _groups(cards):
        if len(group) > 1:
            _memory(settled, group, again)
            for name in ADDITIVE:
                _first_only(settled, group, name)
    return settled


def _groups(cards: list[Card]) -> Iterator[list[int]]:
    """Places of the parts of each card, the lowest number first."""
    found: dict[object, list[int]] = {}
    for at, card in enumerate(cards):
        slot = card.pci.rpartition(".")[0] if card.pci else None
        found.setdefault((card.uuid, slot) if card.uuid or slot else at, []).append(at)
    for group in found.values():
        yield sorted(group, key=lambda at: (cards[at].partition is None, cards[at].partition or 0))


def _functions(addresses: list[str | None]) -> list[int | None]:
    """The kernel puts the number of the part in place of the PCI function; none where two are alike."""
    numbers: list[int | None] = [int(pci[-1], 16) if pci else None for pci in addresses]
    distinct = None not in numbers and len({*numbers}) == len(numbers)
    return numbers if distinct else [None] * len(numbers)


def _memory(cards: list[Card], group: list[int], again: Callable[[int], Pool | None]) -> None:
    telling = {at: pool for at in group if (pool := cards[at].vram) is not None}
    if len(telling) < 2:
        return
    first, *others = telling
    before = telling[first]
    after = again(first) if {*telling.values()} - {before} else before
    for at in others:
        if after is None or not _apart(telling[at], before, after):
            cards[at] = replace(cards[at], vram=None)


def _apart(pool: Pool, before: Pool, after: Pool) -> bool:
    """Whether it is proved to be another pool than the first part's, which was read before and after it.

    Where one is twice the other or more, the larger is the whole card's. Two of one size are one pool, unless
    what is used of them differs by more than the first one changed meanwhile.
    """
    small, large = sorted((pool.total, before.total))
    if large >= 2 * small:
        return False
    low, high = sorted((before.used, after.used))
    return small != large or not low <= pool.used <= high


def _first_only(cards: list[Card], group: list[int], name: str) -> None:
    telling = [at for at in group if getattr(cards[at], name) is not None]
    for at in telling[1:]:
        cards[at] = replace(cards[at], **{name: None})  # type: ignore[arg-type]  # names of ADDITIVE only
