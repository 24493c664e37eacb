"""NVIDIA's GPUs: the real package over a small library built here, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.nvml import Nvml
from rankside_agent.gpu.source import Unavailable

SOURCE = Path(__file__).parents[2] / "fixtures" / "gpu" / "nvml.c"
GIB = 1 << 30
UUIDS = [f"GPU-{at}932f937-d72c-4106-c12f-20bd9faed9f6" for at in range(3)]

COMPILER = shutil.which("cc") or shutil.which("gcc")
built = pytest.mark.skipif(
    not COMPILER or not importlib.util.find_spec("pynvml"), reason="needs a C compiler and nvidia-ml-py"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """The folder with libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-w", "-o", str(target), str(SOURCE)], check=True)
    return folder


def run(library: Path, script: str, mode: str = "") -> Any:
    """What a script prints as JSON; `source` is there, and `plain` for its cards."""
    head = (
        "import json, os, sys\n"
        "from rankside_agent.gpu.nvml import Nvml\n"
        "from rankside_agent.gpu.source import Unavailable\n"
        "source = Nvml()\n"
        "def plain(): return [card.plain() for card in source.read()]\n"
    )
    # Looked for when the process starts, which is why it is another one
    env = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": mode}
    done = subprocess.run([sys.executable, "-c", head + script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cards(library: Path, mode: str = "") -> list[Card]:
    return [Card.of(plain) for plain in run(library, "source.open(); print(json.dumps(plain()))", mode)]


@built
def test_a_card_tells_everything(library):
    assert cards(library)[0] == Card(
        pci="0000:3b:00.0",
        uuid=UUIDS[0],
        name="NVIDIA H200",
        vendor="nvidia",
        vram=Pool(10 * GIB, 141 * GIB),  # without what the driver reserves
        use_percent=94.0,
        power_w=142.5,
        temperature_c=42.0,
        clock_mhz=1980.0,
        ecc_correctable=12,
        ecc_uncorrectable=1,
    )


@built
def test_what_is_not_supported_is_none_and_costs_no_other_value(library):
    assert cards(library)[1] == Card(
        pci="0000:3c:00.0",
        uuid=UUIDS[1],
        name="NVIDIA L4",
        vendor="nvidia",
        vram=Pool(10 * GIB, 141 * GIB),
        temperature_c=42.0,
        clock_mhz=1980.0,
    )


@built
def test_mig_instances_have_memory_of_their_own_and_the_whole_card_is_not_told_beside_them(library):
    parts = cards(library)[2:]
    assert [card.partition for card in parts] == [0, 2]
    assert [card.uuid[:6] for card in parts] == ["MIG-20", "MIG-22"]
    assert [card.vram for card in parts] == [Pool(10 * GIB, 18 * GIB)] * 2
    assert {card.pci for card in parts} == {"0000:3d:00.0"}
    assert [card.power_w for card in parts] == [142.5, None]


@built
def test_an_older_driver_is_asked_in_the_older_ways(library):
    first = cards(library, "old")[0]
    assert (first.vram, first.temperature_c) == (Pool(11 * GIB, 141 * GIB), 43.0)


@built
def test_a_lost_card_tells_nothing_and_the_others_go_on(library):
    first, second, *_ = cards(library, "lost")
    assert first == Card(uuid=UUIDS[0], vendor="nvidia")
    assert second.vram == Pool(10 * GIB, 141 * GIB)


@built
@pytest.mark.parametrize(("mode", "why"), [("no driver", "Driver Not Loaded"), ("no permission", "may ask")])
def test_a_library_that_does_not_work_is_unavailable(library, mode, why):
    script = "try: source.open()\nexcept Unavailable as error: print(json.dumps(str(error)))\n"
    assert why in run(library, script, mode)


@built
def test_the_library_is_started_once_and_stopped_and_reads_leave_nothing_open(library):
    script = (
        "import ctypes\n"
        "inits = lambda: ctypes.CDLL('libnvidia-ml.so.1').fakeInits()\n"
        "source.open(); plain()\n"
        "before = len(os.listdir('/proc/self/fd')), inits()\n"
        "for _ in range(2000): source.read()\n"
        "after = len(os.listdir('/proc/self/fd')), inits()\n"
        "source.close(); source.close()\n"
        "print(json.dumps([before == after, before[1], inits()]))\n"
    )
    assert run(library, script) == [True, 1, 0]


@built
def test_memory_that_grows_is_seen_to_grow(library):
    script = (
        "source.open(); first = plain()[0]['vram']['used']\n"
        "for _ in range(600): source.read()\n"
        "print(json.dumps(plain()[0]['vram']['used'] - first))\n"
    )
    assert run(library, script) == 2 * GIB


def test_without_the_package_it_is_unavailable():
    def load() -> Any:
        raise ImportError("No module named 'pynvml'")

    with pytest.raises(Unavailable, match="nvidia-ml-py cannot be imported"):
        Nvml(load).open()


def test_reading_what_is_not_open_is_unavailable():
    with pytest.raises(Unavailable):
        Nvml(lambda: None).read()
