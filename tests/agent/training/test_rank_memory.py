"""Whose GPU is which, in a sample's memory and in the node's figures."""

from __future__ import annotations

import pytest

from rankside_agent.gauges import Seen
from rankside_agent.gpu.card import Card, Pool, Reading
from rankside_agent.gpu.identity import pci
from rankside_agent.gpu.kfd import Node, Topology
from rankside_agent.training.memory import GB, Memory
from rankside_agent.training.rank_memory import figures_of, memory_of, said_device

BUSES = (0x05, 0x26, 0x46, 0x65)
TOPOLOGY = Topology(tuple(Node(number + 2, pci(f"0000:{bus:02x}:00.0")) for number, bus in enumerate(BUSES)))


def card(number, used, **more):
    return Card(pci=f"0000:{BUSES[number]:02x}:00.0", vram=Pool(used * GB, 192 * GB), **more)


@pytest.fixture
def seen():
    """Four GPUs, told in another order than the driver counts them."""
    cards = (card(3, 30), card(2, 120), card(1, 10), card(0, 5))
    return Seen(Reading("amdsmi", 1.7e9, cards), TOPOLOGY)


@pytest.fixture
def ranks(hello):
    """Says who the ranks are: each with the masks it has, and the number of GPUs it sees."""

    def make(**gpus):
        return [hello(rank, world_size=4, gpus={"kfd": 4, **gpus}) for rank in range(4)]

    return make


def test_the_rank_s_memory_and_the_fullest_are_found_by_masks(seen, ranks):
    memory = memory_of(seen, "3", ranks(), {})
    assert memory == Memory("rocm", 30 * GB, 192 * GB, 120 * GB, 192 * GB, "2")


def test_what_a_rank_s_process_said_comes_before_masks(seen, ranks):
    said = {"3": {"vendor": "amd", "pci": "0000:05:00.0", "uuid": "", "name": "MI300X"}}
    assert memory_of(seen, "3", ranks(), said).used == 5 * GB


def test_masks_of_a_rank_that_sees_other_gpus_than_we_do_prove_nothing(seen, ranks):
    memory = memory_of(seen, "3", ranks(kfd=2), {})
    assert memory.used is None
    assert memory.unknown
    assert (memory.fullest, memory.fullest_rank) == (120 * GB, "?")


def test_a_rank_of_an_older_client_says_nothing_and_is_unknown(seen, hello):
    assert memory_of(seen, "3", [hello(3, world_size=4)], {}).used is None


@pytest.mark.parametrize(
    "nothing", [None, Seen(Reading("", 0.0, (), "no GPU")), Seen(Reading("x", 0.0, (Card(),)))]
)
def test_without_any_gpu_that_tells_its_memory_there_is_none(nothing, ranks):
    assert memory_of(nothing, "3", ranks(), {}) is None


def test_nvidia_s_is_named_for_what_it_is(ranks):
    gpu = Card(pci="0000:17:00.0", uuid="GPU-aa", vendor="nvidia", vram=Pool(8 * GB, 80 * GB))
    said = {"3": {"vendor": "nvidia", "uuid": "GPU-aa", "pci": "0000:17:00.0"}}
    memory = memory_of(Seen(Reading("nvml", 1.7e9, (gpu,))), "3", ranks(), said)
    assert (memory.kind, memory.used, memory.fullest_rank) == ("nvidia", 8 * GB, "3")


def test_figures_carry_the_rank_s_number_or_the_gpu_s_address(seen, ranks):
    hot = card(1, 10, power_w=700.0, use_percent=0.0, temperature_c=71.5, ecc_uncorrectable=0)
    more = Seen(Reading("amdsmi", 1.7e9, (hot,)), TOPOLOGY)
    assert figures_of(more, ranks(), {}) == {
        "system/rank-1/gpu_use_percent": 0.0,
        "system/rank-1/gpu_power_w": 700.0,
        "system/rank-1/gpu_temperature_c": 71.5,
        "system/rank-1/gpu_ecc_uncorrectable": 0.0,
        "system/rank-1/gpu_memory_used_gb": 10.0,
        "system/rank-1/gpu_memory_percent": pytest.approx(100 * 10 / 192),
    }
    assert set(figures_of(more, ranks(kfd=0), {})) >= {"system/gpu-0000:26:00.0/gpu_power_w"}
    assert figures_of(None, ranks(), {}) == {}


def test_on_an_apu_both_pools_are_told_and_the_larger_counts(ranks):
    apu = Card(pci="0000:05:00.0", apu=True, vram=Pool(489 << 20, 512 << 20), gtt=Pool(3 * GB, 124 * GB))
    seen = Seen(Reading("sysfs", 1.7e9, (apu,)), Topology(TOPOLOGY.gpus[:1]))
    told = figures_of(seen, ranks(kfd=1)[:1], {})
    assert told["system/rank-0/gpu_memory_used_gb"] == 3.0
    assert told["system/rank-0/gpu_vram_percent"] == pytest.approx(100 * 489 / 512)
    assert told["system/rank-0/gpu_gtt_used_gb"] == 3.0
    assert memory_of(seen, "0", ranks(kfd=1)[:1], {}).total == 124 * GB


@pytest.mark.parametrize("odd", [None, 5, "x", []])
def test_a_rank_that_says_no_device_says_none(odd):
    assert said_device(odd) is None


def test_what_a_rank_says_is_cut_and_made_plain():
    told = {"vendor": "amd", "pci": 7, "name": "x" * 9999, "uuid": None, "more": {}}
    assert said_device(told) == {"vendor": "amd", "name": "x" * 200}
