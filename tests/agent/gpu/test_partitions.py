"""Parts of a card: numbered where that is proved, and what belongs to the card counted once (B23)."""

from __future__ import annotations

import pytest

from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.partitions import counted_once, numbered

GIB = 1 << 30


def part(number, function=0, used=1, total=192, **more):
    """A part of the card at 05:00."""
    vram = Pool(used * GIB, total * GIB) if total else None
    return Card(pci=f"0000:05:00.{function}", uuid="a" * 16, partition=number, vram=vram, **more)


def never(_at):
    raise AssertionError("nothing has to be read again")


def test_whole_cards_have_no_number():
    cards = [Card(pci=f"0000:0{bus}:00.0", uuid=f"{bus:016x}", partition=0) for bus in range(1, 4)]
    assert [card.partition for card in numbered(cards, [False] * 3)] == [None] * 3


def test_cards_without_address_and_uuid_are_cards_of_their_own():
    cards = [Card(vram=Pool(1, 10)), Card(vram=Pool(1, 10))]
    assert counted_once(cards, never) == cards


@pytest.mark.parametrize(
    ("told", "functions", "numbers"),
    [
        ((0, 1, 2), (0, 0, 0), [0, 1, 2]),
        ((0, 0, 0), (0, 1, 2), [0, 1, 2]),
        ((None, 1, 2), (1, 2, 3), [1, 2, 3]),
        ((None, None, None), (0, 0, 0), [None] * 3),
        ((0, None, 0), (0, 0, 1), [None] * 3),
    ],
)
def test_numbers_come_from_the_driver_or_the_function_or_not_at_all(told, functions, numbers):
    cards = [part(number, function) for number, function in zip(told, functions, strict=True)]
    assert [card.partition for card in numbered(cards, [True] * 3)] == numbers


def test_a_single_part_of_a_split_card_keeps_its_number():
    assert numbered([part(5)], [True])[0].partition == 5
    assert numbered([part(5)], [False])[0].partition is None


def test_the_whole_cards_memory_stays_with_its_first_part_in_whatever_order():
    cards = [part(number) for number in (2, 0, 1)]
    assert [card.vram is not None for card in counted_once(cards, never)] == [False, True, False]


def test_the_first_that_tells_is_the_first():
    cards = [part(0, total=0), part(1), part(2)]
    assert [card.vram is not None for card in counted_once(cards, never)] == [False, True, False]


def test_one_pool_that_grows_while_it_is_read_stays_one():
    cards = [part(0, used=10), part(1, used=11), part(2, used=12)]
    settled = counted_once(cards, lambda at: Pool(13 * GIB, 192 * GIB))
    assert [card.vram for card in settled] == [Pool(10 * GIB, 192 * GIB), None, None]


def test_pools_of_one_size_are_several_where_what_is_used_proves_it():
    cards = [part(0, used=10, total=24), part(1, used=3, total=24), part(2, used=10, total=24)]
    settled = counted_once(cards, lambda at: Pool(10 * GIB, 24 * GIB))
    assert [card.vram is not None for card in settled] == [True, True, False]  # the last may be the first


def test_nothing_is_proved_where_the_first_is_silent_the_second_time():
    cards = [part(0, used=10), part(1, used=3)]
    assert counted_once(cards, lambda at: None)[1].vram is None


@pytest.mark.parametrize(("totals", "kept"), [((192, 24), [1, 0]), ((96, 192), [1, 0]), ((128, 127), [1, 1])])
def test_a_much_larger_pool_is_the_whole_cards(totals, kept):
    cards = [part(number, total=total) for number, total in enumerate(totals)]
    settled = counted_once(cards, lambda at: cards[at].vram)
    assert [card.vram is not None for card in settled] == [bool(one) for one in kept]


def test_power_and_errors_are_the_cards_and_use_and_heat_are_told_by_each():
    more = {"power_w": 700.0, "ecc_correctable": 2, "ecc_uncorrectable": 0, "gtt": Pool(1, 9)}
    first, second = counted_once([part(n, use_percent=50, temperature_c=60, **more) for n in (0, 1)], never)
    assert (first.power_w, first.ecc_correctable, first.gtt) == (700.0, 2, Pool(1, 9))
    assert (second.power_w, second.ecc_correctable, second.ecc_uncorrectable, second.gtt) == (None,) * 4
    assert (second.use_percent, second.temperature_c) == (50, 60)


def test_cards_beside_each_other_are_not_parts_of_each_other():
    cards = [Card(pci=f"0000:{bus}:00.0", uuid="b" * 16, vram=Pool(1, 10)) for bus in ("05", "06")]
    assert counted_once(cards, never) == cards  # virtual machines show several with one serial number
