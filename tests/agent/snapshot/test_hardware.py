"""What a node is made of, from a tree of files; what is not there is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankside_agent.gpu.card import Card, Pool, Reading
from rankside_agent.snapshot import hardware

FILES = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: EPYC 9654\n\nprocessor\t: 1\nmodel name\t: EPYC 9654\n",
    "proc/meminfo": "MemTotal:       1584843264 kB\nMemFree: 1 kB\n",
    "etc/os-release": 'NAME="x"\nPRETTY_NAME="Ubuntu 22.04"\n',
    "sys/module/amdgpu/version": "6.8.5\n",
    "opt/rocm/.info/version": "6.2.0-66\n",
}


@pytest.fixture
def node(tmp_path):
    """A tree with these files."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


def test_a_node_tells_its_processors_memory_and_drivers(node):
    found = hardware.read("gpu012", root=node(FILES))
    wanted = {"host": "gpu012", "cpu": "EPYC 9654", "memory_gib": 1511, "system": "Ubuntu 22.04"}
    assert {**wanted, "amdgpu": "6.8.5", "rocm": "6.2.0-66"}.items() <= found.items()
    assert {"cpus", "kernel", "machine"} <= found.keys()
    assert found["gpus"] == []
    assert "nvidia" not in found


def test_gpus_are_those_that_the_gauges_have_seen(node):
    card = Card(pci="0000:63:00.0", name="MI300X", uuid="ab", vram=Pool(0, 206141652992))
    found = hardware.read("n", Reading("amdsmi", 0.0, (card, Card(partition=1, vendor="amd"))), node(FILES))
    gpu = {"name": "MI300X", "pci": "0000:63:00.0", "uuid": "ab", "vendor": "amd", "memory_gib": 192}
    assert found["gpus"] == [gpu, {"vendor": "amd", "partition": 1}]


def test_gpus_nobody_asked_for_are_read_from_the_kernels_files(node):
    card = "sys/class/drm/card1/device/"
    amd = {
        f"{card}vendor": "0x1002\n",
        f"{card}uevent": "PCI_SLOT_NAME=0000:63:00.0\n",
        f"{card}product_name": "MI210\n",
        f"{card}mem_info_vram_total": f"{64 << 30}\n",
        f"{card}mem_info_vram_used": "1\n",
    }
    (gpu,) = hardware.read("n", root=node({**FILES, **amd}))["gpus"]
    assert (gpu["name"], gpu["pci"], gpu["memory_gib"]) == ("MI210", "0000:63:00.0", 64)


def test_nvidias_are_read_where_there_is_no_amd(node):
    told = "Model: \t\t NVIDIA H200\nBus Location: \t 0000:0f:00.0\n"
    found = hardware.read("n", root=node({"proc/driver/nvidia/gpus/0000:0f:00.0/information": told}))
    assert found["gpus"] == [{"name": "NVIDIA H200", "pci": "0000:0f:00.0", "vendor": "nvidia"}]


@pytest.mark.parametrize("text", ["", "\0\xff", "MemTotal: many kB", "model name"])
def test_files_that_make_no_sense_are_passed_over(node, text):
    assert hardware.read("n", root=node(dict.fromkeys(FILES, text)))["host"] == "n"


def test_this_very_node_can_be_read():
    assert hardware.read("here")["cpus"]
