"""Which rank has which card: by address, UUID and masks, and unknown where none of them proves it."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from trees import cpx, mi300x

from rankside_agent.gpu import kfd
from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.kfd import Topology
from rankside_agent.gpu.match import fullest, owner
from rankside_agent.gpu.sysfs import Sysfs

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
GIB = 1 << 30


@pytest.fixture
def node(tmp_path):
    """Eight cards: KFD's order is that of `gpus`, the source's is the reverse."""
    tree, gpus = mi300x(tmp_path)
    return gpus, Sysfs(tree.root).read(), kfd.read(tree.root)


@pytest.fixture
def parted(tmp_path):
    """One card in eight partitions, and another."""
    tree, gpu = cpx(tmp_path)
    return gpu, Sysfs(tree.root).read(), kfd.read(tree.root)


def as_torch(unique_id: str) -> str:
    return str(uuid.UUID(bytes=unique_id.encode()))


def alone(told, cards, topology=None) -> Card | str:
    return owner({0: told}, cards, topology or Topology())[0]


def addresses(found) -> list[str]:
    return [card if isinstance(card, str) else card.pci for card in found.values()]


# By what the rank names


def test_the_order_of_the_source_is_not_that_of_kfd(node):
    gpus, cards, topology = node
    assert [card.pci for card in cards] == [str(node.pci) for node in reversed(topology.gpus)]
    assert [card.pci for card in cards] == [gpu.pci for gpu in reversed(gpus)]


def test_by_address(node):
    gpus, cards, topology = node
    found = owner({at: {"pci": gpu.pci, "local_rank": 0} for at, gpu in enumerate(gpus)}, cards, topology)
    assert addresses(found) == [gpu.pci for gpu in gpus]


@pytest.mark.parametrize("form", ["{0:02x}:00", "{0:02X}:00.0", "00000000:{0:02X}:00.0"])
def test_by_an_address_without_domain_or_function_or_in_capitals(node, form):
    gpus, cards, topology = node
    assert alone({"pci": form.format(gpus[5].bus)}, cards, topology).pci == gpus[5].pci


@pytest.mark.parametrize("form", [str, "GPU-{}".format, as_torch, "0x{}".format, str.upper])
def test_by_uuid_in_every_form(node, form):
    gpus, cards, topology = node
    assert alone({"uuid": form(gpus[3].uuid)}, cards, topology).pci == gpus[3].pci


def test_an_address_in_several_domains_is_not_decided():
    cards = [Card(pci="0000:63:00.0"), Card(pci="0001:63:00.0")]
    assert "several GPUs" in str(alone({"pci": "63:00.0"}, cards))
    assert alone({"pci": "0001:63:00.0"}, cards) == cards[1]


def test_an_address_and_a_uuid_of_different_cards_are_not_decided(node):
    gpus, cards, topology = node
    told = {"pci": gpus[0].pci, "uuid": gpus[1].uuid}
    assert "UUID that of another" in str(alone(told, cards, topology))


def test_a_gpu_that_was_not_read_is_not_looked_for_by_masks(node):
    _, cards, topology = node
    told = {"pci": "0000:ee:00.0", "masks": {HIP: "3"}, "local_rank": 0}
    assert "not among those that were read" in str(alone(told, cards, topology))
    told = {"uuid": "GPU-dddddddddddddddd", "masks": {HIP: "3"}, "local_rank": 0}
    assert "not among those that were read" in str(alone(told, cards, topology))


def test_what_names_nothing_counts_as_nothing(node):
    gpus, cards, topology = node
    told = {"pci": "", "uuid": "GPU-XX", "masks": {HIP: "3"}, "local_rank": 0}
    assert alone(told, cards, topology).pci == gpus[3].pci


def test_two_ranks_may_have_one_card(node):
    gpus, cards, topology = node
    found = owner({0: {"pci": gpus[2].pci}, 1: {"uuid": gpus[2].uuid}}, cards, topology)
    assert found[0] is found[1]


def test_where_the_source_tells_no_addresses_uuids_match(node):
    gpus, cards, topology = node
    cards = [replace(card, pci=None) for card in cards]
    assert alone({"uuid": gpus[2].uuid}, cards, topology).uuid == gpus[2].uuid
    assert alone({"masks": {HIP: "2"}}, cards, topology).uuid == gpus[2].uuid


def test_where_the_source_names_no_card_nothing_is_proved():
    cards = [Card(vram=Pool(1, 2)), Card(vram=Pool(1, 2))]
    assert isinstance(alone({"pci": "0000:63:00.0"}, cards), str)
    assert isinstance(alone({"local_rank": 0, "masks": {}}, cards), str)


def test_a_rank_that_says_nothing_is_unknown_whatever_its_local_rank(node):
    _, cards, topology = node
    assert "masks are not known" in str(alone({"local_rank": 3}, cards, topology))
    assert "masks are not known" in str(alone({}, cards, topology))
    assert alone({"pci": "0000:63:00.0"}, []) == "no GPU is known"


# By masks


@pytest.mark.parametrize(
    ("masks", "right"),
    [
        ({}, [0, 1, 2, 3]),
        ({HIP: "4,5,6,7"}, [4, 5, 6, 7]),
        ({CUDA: "4,5,6,7"}, [4, 5, 6, 7]),
        ({ROCR: "4,5,6,7"}, [4, 5, 6, 7]),
        ({ROCR: "4,5,6,7", HIP: "3,2,1,0"}, [7, 6, 5, 4]),
        ({ROCR: "GPU-A000000000000003,GPU-a000000000000001,7,6"}, [2, 0, 7, 6]),
    ],
    ids=str,
)
def test_four_ranks_by_masks_and_local_ranks(node, masks, right):
    gpus, cards, topology = node
    ranks = {at: {"pci": None, "uuid": None, "masks": masks, "local_rank": at} for at in range(4)}
    assert addresses(owner(ranks, cards, topology)) == [gpus[at].pci for at in right]


def test_each_rank_with_a_mask_of_its_own_has_the_one_gpu_in_it(node):
    gpus, cards, topology = node
    ranks = {at: {"masks": {HIP: str(7 - at)}, "local_rank": at} for at in range(8)}
    assert addresses(owner(ranks, cards, topology)) == [gpu.pci for gpu in reversed(gpus)]


def test_masks_of_several_gpus_that_differ_from_rank_to_rank_prove_nothing(node):
    gpus, cards, topology = node
    ranks = {at: {"masks": {HIP: f"{2 * at},{2 * at + 1}"}, "local_rank": at} for at in range(2)}
    found = owner(ranks, cards, topology)
    assert found[0].pci == gpus[0].pci
    assert "masks differ" in str(found[1])


def test_two_jobs_with_masks_of_their_own_are_told(node):
    gpus, cards, topology = node
    ranks = {
        (job, at): {"masks": {HIP: mask}, "local_rank": at}
        for job, mask in (("a", "0,1"), ("b", "6,7"))
        for at in range(2)
    }
    assert addresses(owner(ranks, cards, topology)) == [gpus[at].pci for at in (0, 1, 6, 7)]


def test_a_mask_that_leaves_nothing_says_so(node):
    _, cards, topology = node
    assert alone({"masks": {HIP: "-1"}, "local_rank": 0}, cards, topology) == "its masks leave no GPU"


def test_among_makers_a_rank_has_to_say_whose_gpu_it_has(node):
    gpus, cards, topology = node
    own = Card(pci="0000:17:00.0", uuid="GPU-1", vendor="nvidia", name="L40")
    cards = [*cards, own]
    assert "nor its maker" in str(alone({"masks": {}, "local_rank": 0}, cards, topology))
    assert alone({"masks": {}, "local_rank": 0, "vendor": "nvidia"}, cards, topology) is own
    assert alone({"masks": {}, "local_rank": 0, "vendor": "amd"}, cards, topology).pci == gpus[0].pci
    assert alone({"pci": "17:00"}, cards, topology) is own


def test_what_else_stands_among_the_masks_is_passed_over(node):
    gpus, cards, topology = node
    told = {"masks": {HIP: "3", ROCR: None, CUDA: 7, "kfd": 8}, "local_rank": 0}
    assert alone(told, cards, topology).pci == gpus[3].pci


# Partitions


def test_an_address_that_partitions_share_names_none_of_them(parted):
    gpu, cards, topology = parted
    for told in ({"pci": gpu.pci}, {"uuid": as_torch(gpu.uuid)}, {"pci": gpu.pci, "uuid": gpu.uuid}):
        assert "cut into partitions" in str(alone(told, cards, topology))


@pytest.mark.parametrize(
    "more",
    [{"masks": {HIP: "3"}}, {"render_minor": 131}, {"partition": 3}, {"masks": {}, "local_rank": 3}],
    ids=str,
)
def test_masks_render_minor_or_number_tell_partitions_apart(parted, more):
    gpu, cards, topology = parted
    for told in ({}, {"pci": gpu.pci}, {"uuid": gpu.uuid}):
        found = alone({**told, **more}, cards, topology)
        if told or "masks" in more:
            assert (found.pci, found.partition) == (gpu.pci, 3)


def test_a_function_other_than_0_is_the_partition(parted):
    _, cards, topology = parted
    assert alone({"pci": "0000:05:00.6"}, cards, topology).partition == 6


def test_eight_ranks_on_eight_partitions_have_one_each(parted):
    gpu, cards, topology = parted
    ranks = {at: {"pci": gpu.pci, "masks": {}, "local_rank": at} for at in range(8)}
    assert [card.partition for card in owner(ranks, cards, topology).values()] == list(range(8))


def test_masks_that_lead_to_another_card_prove_no_partition(parted):
    gpu, cards, topology = parted
    assert "cut into partitions" in str(alone({"pci": gpu.pci, "masks": {HIP: "8"}}, cards, topology))


def test_a_source_that_tells_the_whole_card_only_gives_it_to_each_of_its_partitions(parted):
    gpu, _, topology = parted
    whole = Card(pci=gpu.pci, uuid=gpu.uuid, vram=Pool(1, 2))
    assert alone({"pci": gpu.pci}, [whole], topology) is whole
    assert alone({"masks": {HIP: "3"}}, [whole], topology) is whole


def test_a_source_that_writes_partitions_as_functions_is_matched_by_number(parted):
    gpu, _, topology = parted
    cards = [Card(pci=f"0000:05:00.{at}", uuid=gpu.uuid, partition=at) for at in range(8)]
    assert alone({"pci": gpu.pci, "masks": {HIP: "3"}}, cards, topology) is cards[3]
    assert "cut into partitions" in str(alone({"pci": gpu.pci}, cards, topology))


def test_mig_instances_are_told_apart_by_their_uuid():
    cards = [
        Card(
            pci="0000:17:00.0",
            uuid=f"MIG-{at}932f937-d72c-4106-c12f-20bd9faed9f6",
            vendor="nvidia",
            partition=at,
        )
        for at in range(2)
    ]
    told = {"pci": "0000:17:00.0", "uuid": "1932f937-d72c-4106-c12f-20bd9faed9f6"}
    assert alone(told, cards) is cards[1]
    assert "cut into partitions" in str(alone({"pci": "0000:17:00.0", "masks": {}}, cards))
    assert alone({"masks": {CUDA: cards[0].uuid}}, cards) is cards[0]


# The fullest


def test_the_fullest_card_is_the_one_with_most_bytes_in_use_and_has_its_rank(node):
    gpus, cards, topology = node
    ranks = {at: {"pci": gpu.pci} for at, gpu in enumerate(gpus)}
    found = fullest(cards, owner(ranks, cards, topology))
    assert (found.card.pci, found.ranks, found.why) == (gpus[7].pci, (7,), "")


def test_bytes_count_and_not_the_share():
    cards = [Card(pci="0000:01:00.0", vram=Pool(9, 10)), Card(pci="0000:02:00.0", vram=Pool(50, 1000))]
    assert fullest(cards, {}).card is cards[1]


def test_on_an_apu_the_pool_that_fills_up_counts():
    apu = Card(pci="0000:c4:00.0", apu=True, vram=Pool(489 << 20, 512 << 20), gtt=Pool(3 * GIB, 124 * GIB))
    card = Card(pci="0000:01:00.0", vram=Pool(2 * GIB, 16 * GIB), gtt=Pool(9 * GIB, 64 * GIB))
    assert fullest([card, apu], {}).card is apu


def test_the_fullest_card_without_a_known_rank_says_so(node):
    _, cards, topology = node
    assert fullest(cards, {}).why == "no rank has said that it uses it"
    found = fullest(cards, owner({0: {}, 1: {}}, cards, topology))
    assert (found.ranks, found.why) == ((), "the GPU of 2 ranks is not known")


def test_a_card_of_a_later_reading_still_has_its_rank(node):
    gpus, cards, topology = node
    owners = owner({7: {"pci": gpus[7].pci}}, cards, topology)
    later = [replace(card, vram=replace(card.vram, used=card.vram.used + 1)) for card in cards]
    assert fullest(later, owners).ranks == (7,)


def test_all_ranks_of_the_fullest_card_are_told():
    card = Card(pci="0000:01:00.0", vram=Pool(9, 10))
    assert fullest([card], owner({3: {"pci": "01:00"}, 4: {"pci": "01:00"}}, [card], Topology())).ranks == (
        3,
        4,
    )


def test_cards_that_tell_no_memory_are_never_the_fullest():
    assert fullest([Card(pci="0000:01:00.0")], {}) is None
    assert fullest([], {}) is None
