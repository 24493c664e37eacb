"""What a rank tells of its GPU: asked of a torch that is there and started, and of the driver's tree."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from rankside import device
from rankside.device import Device

MI300X = SimpleNamespace(
    name="MI300X", uuid="35346332-6435-3837-6136-623766663063", pci_bus_id=5, pci_device_id=0
)


class Cuda:
    """What torch.cuda is on a machine with a GPU."""

    def __init__(self, properties=MI300X, started=True):
        self.properties, self.started = properties, started
        self.asked = 0
        self.trouble = None

    def is_initialized(self):
        return self.started

    def current_device(self):
        return 0

    def get_device_properties(self, _number):
        return self.properties

    def mem_get_info(self):
        self.asked += 1
        if self.trouble:
            raise self.trouble
        return 30, 100


@pytest.fixture
def torch(monkeypatch):
    """Puts a torch beside us; `hip` is its version of HIP."""

    def make(hip="7.0", **more):
        cuda = Cuda(**more)
        monkeypatch.setitem(
            sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=hip))
        )
        return cuda

    return make


def test_the_device_is_told_once_and_the_memory_each_time(torch):
    torch()
    mine = Device(memory=True)
    told = {"vendor": "amd", "name": "MI300X", "uuid": MI300X.uuid, "pci": "05:00.0"}
    assert mine.fields() == {"device": told, "hip_free": 30, "hip_total": 100}
    assert mine.fields() == {"hip_free": 30, "hip_total": 100}


def test_nvidia_s_is_named_for_what_it_is_and_the_domain_is_told_where_it_is_known(torch):
    torch(
        hip=None,
        properties=SimpleNamespace(name="H200", uuid="a", pci_bus_id=23, pci_device_id=1, pci_domain_id=2),
    )
    found = Device(memory=True).fields()
    assert found["device"] == {"vendor": "nvidia", "name": "H200", "uuid": "a", "pci": "0002:17:01.0"}
    assert found["cuda_total"] == 100


def test_who_shows_no_memory_does_not_ask_for_it(torch):
    cuda = torch()
    mine = Device(memory=False)
    assert list(mine.fields()) == ["device"]
    assert mine.fields() == {}
    assert cuda.asked == 0


def test_a_torch_without_a_started_gpu_is_left_alone(torch):
    torch(started=False)
    assert Device(memory=True).fields() == {}


def test_properties_that_are_missing_are_not_guessed(torch):
    torch(properties=SimpleNamespace(name="old"))
    assert Device(memory=False).fields()["device"] == {
        "vendor": "amd",
        "name": "old",
        "uuid": None,
        "pci": None,
    }


def test_a_driver_that_fails_is_not_asked_for_ever(torch):
    cuda = torch()
    cuda.trouble = RuntimeError("HIP error")
    mine = Device(memory=True)
    assert [mine.fields() for _ in range(10)] == [{}] * 10
    assert cuda.asked == 3


def test_torch_is_never_imported_for_it():
    code = (
        "import sys; from rankside.device import Device; Device(True).fields(); print('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )


def nodes(root, **properties):
    for name, text in properties.items():
        folder = root / "class/kfd/kfd/topology/nodes" / name.strip("n")
        folder.mkdir(parents=True)
        (folder / "properties").write_text(text)


def test_masks_and_the_number_of_gpus_that_are_seen(tmp_path):
    nodes(
        tmp_path,
        n0="cpu_cores_count 64\nsimd_count 0\n",
        n1="cpu_cores_count 0\nsimd_count 416\n",
        n2="simd_count 416\n",
        n3="",  # another container's
        n4="simd_count",
    )
    environ = {"HIP_VISIBLE_DEVICES": "1", "HOME": "/root", "CUDA_VISIBLE_DEVICES": ""}
    found = device.visible(environ, str(tmp_path))
    assert found == {"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "", "kfd": 2}
    assert device.checked_visible(found) == found
    assert device.visible({}, str(tmp_path / "none")) == {"kfd": 0}


@pytest.mark.parametrize(
    "odd", [{"kfd": "2"}, {"HIP_VISIBLE_DEVICES": 1}, {"ROCR_VISIBLE_DEVICES": "0" * 2000}]
)
def test_a_stranger_s_are_checked(odd):
    with pytest.raises(ValueError, match="hello: gpus"):
        device.checked_visible(odd)
