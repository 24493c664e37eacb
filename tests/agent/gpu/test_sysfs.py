"""AMD GPUs from /sys: which devices count, what each file gives, and what stays unknown."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trees import GIB, MI300X, Gpu, Sys, ast, cpx, mi300x, write

from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.source import Unavailable
from rankside_agent.gpu.sysfs import Sysfs


def read(root) -> list[Card]:
    source = Sysfs(root)
    source.open()
    return source.read()


def device(root, gpu: Gpu):
    return root / "devices/pci0000:00" / gpu.pci


def test_every_amd_card_is_read_though_drm_counts_another_way_and_card0_is_a_vga(tmp_path):
    tree, gpus = mi300x(tmp_path)
    cards = {card.pci: card for card in read(tree.root)}
    assert set(cards) == {gpu.pci for gpu in gpus}
    for gpu in gpus:
        assert cards[gpu.pci].vram == Pool(gpu.used, MI300X)
        assert cards[gpu.pci].uuid == gpu.uuid
        assert cards[gpu.pci].partition is None


def test_a_card_tells_memory_use_power_temperature_and_clock(tmp_path):
    Sys(tmp_path).add(Gpu(0x63, 5, gtt_used=3 * GIB))
    (card,) = read(tmp_path)
    assert card == Card(
        pci="0000:63:00.0",
        uuid="0000000000000005",
        name="aqua_vanjaram",
        vram=Pool(301989888, MI300X),
        gtt=Pool(3 * GIB, 540000000000),
        use_percent=94.0,
        power_w=142.0,
        temperature_c=42.0,
        clock_mhz=132.0,
    )


def test_the_junction_is_preferred_to_other_temperatures(tmp_path):
    tree = Sys(tmp_path)
    gpu = tree.add(Gpu(0x63, 5))
    monitor = device(tmp_path, gpu) / "hwmon/hwmon3"
    for number, label in ((1, "edge"), (2, "junction"), (3, "mem")):
        write(monitor / f"temp{number}_label", label)
        write(monitor / f"temp{number}_input", number * 1000)
    assert read(tmp_path)[0].temperature_c == 2.0
    (monitor / "temp2_input").unlink()
    assert read(tmp_path)[0].temperature_c == 1.0


def test_power_is_the_average_or_else_the_present_one(tmp_path):
    tree = Sys(tmp_path)
    gpu = tree.add(Gpu(0x63, 5))
    monitor = device(tmp_path, gpu) / "hwmon/hwmon3"
    (monitor / "power1_average").unlink()
    write(monitor / "power1_input", 90500000)
    assert read(tmp_path)[0].power_w == 90.5


def test_memory_errors_are_counted_where_the_driver_counts_them(tmp_path):
    tree = Sys(tmp_path)
    gpu = tree.add(Gpu(0x63, 5))
    write(device(tmp_path, gpu) / "ras/umc_err_count", "ue: 1\nce: 12")
    (card,) = read(tmp_path)
    assert (card.ecc_uncorrectable, card.ecc_correctable) == (1, 12)


def test_cards_of_other_makers_and_cards_without_memory_files_are_passed_over(tmp_path):
    tree = Sys(tmp_path)
    ast(tree)
    tree.device(Gpu(0x17, 0, card=2, vendor="0x10de"))
    gone = dict.fromkeys(("total", "used"))
    tree.device(Gpu(0x18, 0, card=9, files={f"mem_info_vram_{which}": None for which in gone}))
    gpu = tree.add(Gpu(0x63, 5, card=10))
    tree.clutter(gpu)
    assert [card.pci for card in read(tmp_path)] == [gpu.pci]


def test_the_product_name_is_preferred_to_the_name_of_the_chip(tmp_path):
    Sys(tmp_path).add(Gpu(0x63, 5, files={"product_name": "AMD Instinct MI300X OAM"}))
    assert read(tmp_path)[0].name == "AMD Instinct MI300X OAM"


def test_the_unique_id_is_kfds_where_the_device_has_no_file_for_it(tmp_path):
    Sys(tmp_path).add(Gpu(0x63, 0xABC, files={"unique_id": None}))
    assert read(tmp_path)[0].uuid == "0000000000000abc"


def test_without_kfd_the_cards_are_read_all_the_same(tmp_path):
    Sys(tmp_path, cpus=0).device(Gpu(0x63, 5))
    assert [card.vram for card in read(tmp_path)] == [Pool(301989888, MI300X)]


def test_an_address_is_found_in_uevent_where_device_is_no_link(tmp_path):
    tree = Sys(tmp_path)
    folder = tree.device(Gpu(0x63, 5))
    entry = tmp_path / "class/drm/card1"
    (entry / "device").unlink()
    folder.rename(entry / "device")
    write(entry / "device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:63:00.0")
    assert read(tmp_path)[0].pci == "0000:63:00.0"


@pytest.mark.parametrize("value", ["", "12 34", "0x1000", "N/A", "-5", "9" * 30, "301989888\n301989888"])
def test_half_a_value_is_none_and_costs_no_other(tmp_path, value):
    gpus = [Gpu(0x63, 5, card=1), Gpu(0x64, 6, card=2)]
    tree = Sys(tmp_path)
    for gpu in gpus:
        tree.add(gpu)
    write(device(tmp_path, gpus[0]) / "mem_info_vram_used", value)
    cards = read(tmp_path)
    assert [card.vram for card in cards] == [None, Pool(301989888, MI300X)]
    assert cards[0].gtt
    assert cards[0].power_w == 142.0


def test_more_used_than_there_is_is_no_value(tmp_path):
    tree = Sys(tmp_path)
    tree.add(Gpu(0x63, 5, used=MI300X + 1, card=1))
    tree.add(Gpu(0x64, 6, card=2))
    assert read(tmp_path)[0].vram is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_none(tmp_path):
    tree = Sys(tmp_path)
    gpu = tree.add(Gpu(0x63, 5))
    (device(tmp_path, gpu) / "gpu_busy_percent").chmod(0)
    assert read(tmp_path)[0].use_percent is None


def test_a_directory_or_a_pipe_in_place_of_a_file_is_none(tmp_path):
    tree = Sys(tmp_path)
    folder = tree.device(Gpu(0x63, 5, files={"gpu_busy_percent": None, "mem_info_gtt_used": None}))
    (folder / "gpu_busy_percent").mkdir()
    os.mkfifo(folder / "mem_info_gtt_used")
    assert stat.S_ISFIFO((folder / "mem_info_gtt_used").stat().st_mode)
    (card,) = read(tmp_path)
    assert (card.use_percent, card.gtt) == (None, None)


def test_no_gpu_is_unavailable_with_a_sentence(tmp_path):
    with pytest.raises(Unavailable, match="no AMD GPU"):
        Sysfs(tmp_path).open()
    ast(Sys(tmp_path))
    with pytest.raises(Unavailable, match="no AMD GPU"):
        Sysfs(tmp_path).open()


def test_gpus_whose_memory_nobody_tells_are_unavailable(tmp_path):
    Sys(tmp_path).add(Gpu(0x63, 5, card=None))
    with pytest.raises(Unavailable, match="mem_info_vram"):
        Sysfs(tmp_path).open()


def test_a_gpu_that_goes_away_is_not_told_any_more(tmp_path):
    tree, gpus = mi300x(tmp_path)
    source = Sysfs(tree.root)
    source.open()
    (tmp_path / "class/drm/card8/device").unlink()
    cards = [card for card in source.read() if card.pci == gpus[0].pci]
    assert [card.vram for card in cards] == [None]
    source.close()
    source.close()


# Partitions: the whole card's memory is told once, of the first


def test_partitions_do_not_multiply_the_memory_of_their_card(tmp_path):
    tree, gpu = cpx(tmp_path)
    *parts, other = read(tree.root)
    assert [card.partition for card in parts] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [card.pci for card in parts] == [gpu.pci] * 8
    assert [card.vram for card in parts] == [Pool(gpu.used, gpu.total)] + [None] * 7
    assert [card.power_w for card in parts] == [142.0] + [None] * 7
    assert (other.pci, other.vram, other.partition) == ("0000:63:00.0", None, None)


def test_eight_cards_in_cpx_have_the_memory_of_eight_cards(tmp_path):
    tree, gpus = mi300x(tmp_path, partitions=8)
    cards = read(tree.root)
    assert len(cards) == 64
    assert sum(card.vram.total for card in cards if card.vram) == 8 * MI300X
    assert sum(card.vram.used for card in cards if card.vram) == sum(gpu.used for gpu in gpus)


# APUs: which pool fills up

METRICS = {"apu": b"\x78\x00\x02\x04", "new apu": b"\x78\x00\x03\x00", "card": b"\x78\x00\x01\x05"}
SMALL = Gpu(0xC4, 0, total=512 << 20, used=489 << 20, gtt_total=124 * GIB, gtt_used=3 * GIB, gfx=110501)


@pytest.mark.parametrize(
    "gpu",
    [
        SMALL,
        replace(SMALL, gfx=0),  # a chip not known here: no card is that small
        replace(SMALL, gfx=90010, cpu_cores=16),
        replace(SMALL, gfx=0, total=4 * GIB, files={"gpu_metrics": METRICS["apu"].decode("latin-1")}),
        replace(SMALL, gfx=0, total=4 * GIB, files={"gpu_metrics": METRICS["new apu"].decode("latin-1")}),
    ],
    ids=["by chip", "by size", "by processor cores", "by metrics", "by newer metrics"],
)
def test_an_apu_fills_its_larger_pool_and_tells_both(tmp_path, gpu):
    Sys(tmp_path).add(gpu)
    (card,) = read(tmp_path)
    assert card.apu
    assert card.memory == Pool(3 * GIB, 124 * GIB)
    assert card.vram == Pool(489 << 20, gpu.total)


def test_an_apu_with_a_large_carve_out_fills_its_vram(tmp_path):
    Sys(tmp_path).add(replace(SMALL, total=96 * GIB, gtt_total=16 * GIB))
    (card,) = read(tmp_path)
    assert card.apu
    assert card.memory == Pool(489 << 20, 96 * GIB)


@pytest.mark.parametrize("metrics", [None, METRICS["card"].decode("latin-1")])
def test_a_card_in_a_host_with_much_memory_is_no_apu(tmp_path, metrics):
    files = {"gpu_metrics": metrics} if metrics else {}
    Sys(tmp_path).add(Gpu(0x63, 5, gtt_total=1024 * GIB, gtt_used=700 * GIB, files=files))
    (card,) = read(tmp_path)
    assert not card.apu
    assert card.memory == Pool(301989888, MI300X)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    st.sampled_from(["mem_info_vram_used", "vendor", "unique_id", "gpu_metrics", "uevent", "ras"]),
    st.binary(max_size=40),
)
def test_no_content_of_a_file_raises_anything_but_unavailable(tmp_path_factory, name, content):
    root = tmp_path_factory.mktemp("sys")
    tree = Sys(root)
    gpu = tree.add(Gpu(0x63, 5))
    (device(root, gpu) / name).write_bytes(content)
    with suppress(Unavailable):
        assert all(isinstance(card, Card) for card in read(root))


def test_reads_leave_nothing_open(tmp_path):
    tree, _ = mi300x(tmp_path)
    source = Sysfs(tree.root)
    source.open()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        source.read()
    assert len(os.listdir("/proc/self/fd")) == before
