"""KFD's topology: its order, what is a GPU, which partition a node is, and what is hidden."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import Gpu, Sys, cpx, mi300x, write

from rankside_agent.gpu import kfd


def test_gpus_are_the_nodes_with_simds_in_the_order_of_their_numbers(tmp_path):
    tree, gpus = mi300x(tmp_path)
    found = kfd.read(tree.root)
    assert [str(node.pci) for node in found.gpus] == [gpu.pci for gpu in gpus]
    assert [node.number for node in found.gpus] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert found.problem == ""


def test_ten_comes_after_nine(tmp_path):
    tree = Sys(tmp_path, cpus=4)
    gpus = [tree.add(Gpu(0x10 + at, 1 + at, card=at)) for at in range(9)]
    assert [str(node.pci) for node in kfd.read(tmp_path).gpus] == [gpu.pci for gpu in gpus]


def test_the_address_is_read_from_domain_and_location(tmp_path):
    Sys(tmp_path).add(Gpu(0x63, 1234567890123456789, domain=2))
    node = kfd.read(tmp_path).gpus[0]
    assert str(node.pci) == "0002:63:00.0"
    assert node.uuid == "112210f47de98115"
    assert (node.render_minor, node.partition, node.name) == (128, None, "aqua_vanjaram")


def test_a_gpu_without_unique_id_has_no_uuid(tmp_path):
    Sys(tmp_path).add(Gpu(0x63, 0))
    assert kfd.read(tmp_path).gpus[0].uuid is None


@pytest.mark.parametrize("bits", ["function", "high"])
def test_partitions_share_address_and_unique_id_and_have_numbers(tmp_path, bits):
    tree, gpu = cpx(tmp_path, partition_bits=bits)
    *parts, whole = kfd.read(tree.root).gpus
    assert {(str(node.pci), node.uuid) for node in parts} == {(gpu.pci, gpu.uuid)}
    assert [node.partition for node in parts] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [node.render_minor for node in parts] == [128, 129, 130, 131, 132, 133, 134, 135]
    assert whole.partition is None


def test_partitions_at_the_same_location_are_numbered_in_order(tmp_path):
    tree = Sys(tmp_path)
    for _ in range(4):
        tree.node({"simd_count": 104, "location_id": 0x500, "domain": 0, "unique_id": 7})
    assert [node.partition for node in kfd.read(tmp_path).gpus] == [0, 1, 2, 3]


def test_the_third_partition_alone_in_a_container_is_still_the_third(tmp_path):
    Sys(tmp_path).node({"simd_count": 38, "location_id": 0x503, "domain": 0, "unique_id": 7})
    assert [node.partition for node in kfd.read(tmp_path).gpus] == [3]


def test_two_dies_of_one_card_are_two_gpus(tmp_path):
    tree = Sys(tmp_path)
    tree.add(Gpu(0xC1, 5, card=0, gfx=90010))
    tree.add(Gpu(0xC6, 6, card=1, gfx=90010))
    assert [node.partition for node in kfd.read(tmp_path).gpus] == [None, None]


@pytest.mark.parametrize("gpu_id", ["", "0"])
def test_a_node_of_another_container_is_left_out_and_said(tmp_path, gpu_id):
    tree, gpus = mi300x(tmp_path)
    folder = tmp_path / "class/kfd/kfd/topology/nodes/4"
    (folder / "properties").write_text("")
    (folder / "gpu_id").write_text(gpu_id)
    found = kfd.read(tree.root)
    assert [str(node.pci) for node in found.gpus] == [gpu.pci for at, gpu in enumerate(gpus) if at != 2]
    assert found.hidden == (4,)
    assert "4 are hidden" in found.problem


def test_a_gpu_whose_properties_are_cut_off_is_said_to_be_unreadable(tmp_path):
    tree, _ = mi300x(tmp_path)
    write(tmp_path / "class/kfd/kfd/topology/nodes/5/properties", "cpu_cores_count 0\nsimd_count 4")
    found = kfd.read(tree.root)
    assert len(found.gpus) == 7
    assert found.broken == (5,)
    assert "could not be read" in found.problem


def test_no_kfd_is_an_empty_topology(tmp_path):
    found = kfd.read(tmp_path)
    assert found.gpus == ()
    assert found.problem == "no GPU in the KFD topology"


@given(st.binary(max_size=200))
def test_no_content_of_a_node_raises(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("sys")
    tree = Sys(root)
    tree.add(Gpu(0x63, 1))
    (tree.node({}) / "properties").write_bytes(content)
    assert str(kfd.read(root).gpus[0].pci) == "0000:63:00.0"
