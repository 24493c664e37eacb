"""Masks resolved by the rules of their runtimes: ROCR first, then HIP or CUDA, then the local rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.gpu import visible
from rankside_agent.gpu.card import Card
from rankside_agent.gpu.identity import Pci
from rankside_agent.gpu.kfd import Node, Topology
from rankside_agent.gpu.visible import Physical, chosen

ROCR, HIP, CUDA = visible.ROCR, visible.HIP, visible.CUDA


def node(at: int, uuid: str | None = None, partition: int | None = None, bus: int | None = None) -> Node:
    return Node(
        at + 2,
        Pci(0, 0x10 + at if bus is None else bus, 0, 0),
        uuid or f"a{at}00000000000000",
        "",
        None,
        partition,
    )


EIGHT = Topology(tuple(node(at) for at in range(8)))
PARTS = Topology(tuple(node(at, "b000000000000000", at, bus=5) for at in range(8)))


def seen(topology: Topology = EIGHT, **masks: str) -> list[int] | str:
    """The visible GPUs by their place in KFD's order."""
    found = visible.amd({f"{name}_VISIBLE_DEVICES": mask for name, mask in masks.items()}, topology)
    if isinstance(found, str):
        return found
    places = [Physical(str(node.pci), node.uuid, node.partition) for node in topology.gpus]
    return [places.index(physical) for physical in found]


def test_without_masks_all_are_visible_in_kfds_order():
    assert seen() == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("name", ["ROCR", "HIP", "CUDA"])
@pytest.mark.parametrize(
    ("mask", "right"),
    [
        ("4,5,6,7", [4, 5, 6, 7]),
        ("7,0,3", [7, 0, 3]),  # in the order of the mask
        ("3", [3]),
        ("3,", [3]),
        ("-1", []),
        ("0,-1,2", [0]),
        ("0,8,1", [0]),
        ("0,x,1", [0]),
        ("none", []),
        ("0,,1", [0]),
        ("NoDevFiles", []),
    ],
)
def test_a_mask_of_indices(name, mask, right):
    assert seen(**{name: mask}) == right


def test_rocr_takes_spaces_hexadecimal_and_octal_as_strtol_does():
    assert seen(ROCR=" 1, 0x2 ,03,+4") == [1, 2, 3, 4]
    assert seen(ROCR="1,08") == [1]


def test_hip_takes_plain_numbers_only():
    assert seen(HIP="1, 2") == [1]
    assert seen(HIP="01") == []
    assert seen(HIP="+1") == []


def test_a_repetition_ends_rocrs_list_and_is_passed_over_by_hip():
    assert seen(ROCR="2,2,3") == [2]
    assert seen(HIP="2,2,3") == [2, 3]


def test_rocr_looks_at_no_more_entries_than_there_are_gpus():
    two = Topology(EIGHT.gpus[:2])
    assert seen(two, ROCR="1,0,1") == [1, 0]


def test_an_empty_rocr_mask_hides_all():
    assert seen(ROCR="") == []
    assert chosen([], 0) == "its masks leave no GPU"


def test_an_empty_hip_mask_means_all_to_hip_and_none_to_torch_and_is_not_decided():
    assert "is empty" in str(seen(HIP=""))
    assert "is empty" in str(seen(CUDA=""))
    assert "is empty" in str(seen(HIP="", CUDA="3"))
    assert seen(HIP="2", CUDA="") == [2]


def test_rocr_takes_uuids_of_any_length_and_case():
    assert seen(ROCR="GPU-a300000000000000") == [3]
    assert seen(ROCR="GPU-A3,gpu-a1") == [3, 1]
    assert seen(ROCR="GPU-a3,5") == [3, 5]


@pytest.mark.parametrize("mask", ["GPU-", "GPU-a", "GPU-ff", "GPU-XX", "GPU-a3000000000000000", "G"])
def test_rocr_takes_no_uuid_that_names_several_or_none(mask):
    assert seen(ROCR=mask) == []
    assert seen(ROCR=f"1,{mask},2") == [1]


def test_hip_takes_uuids_in_its_own_spelling():
    assert seen(HIP="GPU-a300000000000000,1") == [3, 1]
    assert seen(HIP="GPU-A3") == []
    assert seen(HIP="GPU-ff,1") == []


def test_a_gpu_without_unique_id_is_named_by_no_uuid():
    nameless = Topology((Node(1, Pci(0, 5, 0, 0)),))
    assert seen(nameless, ROCR="GPU-XX") == []
    assert seen(nameless, HIP="GPU-0") == []
    assert seen(nameless, ROCR="0") == [0]


def test_hip_counts_along_what_rocr_left():
    assert seen(ROCR="4,5,6,7", HIP="2,0") == [6, 4]
    assert seen(ROCR="4,5,6,7", CUDA="3") == [7]
    assert seen(ROCR="4,5", HIP="2") == []
    assert seen(ROCR="GPU-a6,GPU-a2", HIP="1") == [2]
    assert seen(ROCR="6,2", HIP="GPU-a2") == [2]
    assert seen(ROCR="6,2", HIP="GPU-a3") == []


def test_hip_goes_before_cuda():
    assert seen(HIP="1", CUDA="2") == [1]


def test_partitions_are_told_apart_by_index_and_not_by_the_uuid_that_they_share():
    assert seen(PARTS, ROCR="3,5") == [3, 5]
    assert seen(PARTS, ROCR="GPU-b000000000000000") == []
    assert visible.amd({HIP: "6"}, PARTS) == [Physical("0000:05:00.0", "b000000000000000", 6)]


def test_without_a_topology_masks_prove_nothing():
    assert "masks cannot be resolved" in str(seen(Topology(), HIP="0"))


def test_with_a_gpu_that_could_not_be_read_indices_prove_nothing_and_uuids_do():
    broken = Topology(EIGHT.gpus[:7], broken=(9,))
    assert "9 could not be read" in str(seen(broken, HIP="0"))
    assert "9 could not be read" in str(seen(broken))
    assert seen(broken, ROCR="GPU-a300000000000000") == [3]
    assert seen(broken, ROCR="GPU-a300000000000000", HIP="0") == [3]
    for mask in ("GPU-a3", "GPU-a300000000000000,1", "1"):
        assert "9 could not be read" in str(seen(broken, ROCR=mask, HIP="GPU-a300000000000000"))


def test_gpus_of_other_containers_are_not_counted():
    assert seen(Topology(EIGHT.gpus[4:], hidden=(2, 3, 4, 5)), HIP="1") == [1]


# The local rank


def test_the_one_visible_gpu_is_meant_whatever_the_local_rank():
    (only,) = visible.amd({HIP: "5"}, EIGHT)
    assert chosen([only], 3) == chosen([only], None) == chosen([only], 0) == only


def test_of_several_the_one_with_the_number_of_the_local_rank():
    four = visible.amd({HIP: "4,5,6,7"}, EIGHT)
    assert [chosen(four, rank) for rank in range(4)] == list(four)


@pytest.mark.parametrize("local_rank", [None, 4, -1])
def test_of_several_none_where_the_local_rank_names_none(local_rank):
    assert "visible to it" in str(chosen(visible.amd({HIP: "4,5,6,7"}, EIGHT), local_rank))


# NVIDIA


def card(at: int, name: str = "H200", **more) -> Card:
    uuid = f"GPU-{at}932f937-d72c-4106-c12f-20bd9faed9f6"
    return Card(
        **{"pci": f"0000:{0x10 + at:02x}:00.0", "uuid": uuid, "name": name, "vendor": "nvidia", **more}
    )


CARDS = [card(2), card(0), card(3), card(1)]  # in no order


def cuda(mask: str | None, cards=CARDS, order: str | None = None) -> list[str | None] | str:
    masks = {name: value for name, value in ((CUDA, mask), ("CUDA_DEVICE_ORDER", order)) if value is not None}
    found = visible.nvidia(masks, cards)
    return found if isinstance(found, str) else [physical.pci for physical in found]


def bus(*places: int) -> list[str]:
    return [f"0000:{0x10 + at:02x}:00.0" for at in places]


@pytest.mark.parametrize(
    ("mask", "right"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2,0", [2, 0]),
        (" 2, 0", [2, 0]),
        ("0,-1,2", [0]),
        ("1,9,2", [1]),
        ("1,1", []),
        ("1gpu2,2ampere", [1, 2]),
        ("GPU-2932f937", [2]),
        ("GPU-2932f937,GPU-0932", [2, 0]),
        ("GPU-2932f937,GPU-2932", []),
        ("GPU-2932f937,1", [2]),
        ("GPU-", []),
        ("GPU-f", []),
    ],
)
def test_cudas_mask_over_cards_of_one_model(mask, right):
    assert cuda(mask) == bus(*right)


def test_of_several_models_the_fastest_comes_first_which_is_not_known():
    mixed = [card(0, "A30"), card(1, "H200")]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in str(cuda("0", mixed))
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in str(cuda("0", mixed, "FASTEST_FIRST"))
    assert cuda("0", mixed, "PCI_BUS_ID") == bus(0)
    assert cuda("GPU-1", mixed) == bus(1)
    assert cuda("", mixed) == []


def test_without_addresses_there_is_no_order():
    assert "no PCI addresses" in str(cuda("0", [card(0, pci=None), card(1, pci=None)]))
    assert cuda("0", [card(0, pci=None)]) == [None]


def test_mig_instances_are_named_by_uuid_alone():
    parts = [card(0, uuid="MIG-aaaa", partition=0), card(0, uuid="MIG-bbbb", partition=1)]
    assert "MIG mode" in str(cuda("0", parts))
    assert visible.nvidia({CUDA: "MIG-bbbb"}, parts) == [Physical("0000:10:00.0", "MIG-bbbb", 1)]


def test_no_nvidia_gpu_is_no_answer():
    assert "no NVIDIA GPU" in str(cuda("0", [Card()]))


TOKENS = st.lists(
    st.sampled_from(["0", "1", "7", "8", "-1", "", " 2", "GPU-a1", "GPU-", "x", "0x1", "9" * 30]), max_size=5
)


@given(TOKENS.map(",".join), TOKENS.map(",".join), st.text(max_size=8))
def test_no_mask_raises_or_shows_a_gpu_twice(first, second, third):
    for masks in ({ROCR: first, HIP: second}, {ROCR: third, CUDA: first}, {CUDA: third}):
        for found in (visible.amd(masks, EIGHT), visible.nvidia(masks, CARDS)):
            assert isinstance(found, str) or len(set(found)) == len(found)
