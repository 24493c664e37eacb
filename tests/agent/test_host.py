"""What the host tells: levels at once, rates between two calls, and never a wrong one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankside_agent.host import Host

LEVELS = {"system/memory_used_gb", "system/memory_percent"}
RATES = {
    "system/cpu_percent",
    *(f"system/disk_{way}_mb_s" for way in ("read", "write")),
    *(f"system/network_{way}_mb_s" for way in ("received", "sent")),
}


class Machine:
    """psutil's functions over numbers that the test sets, and a clock."""

    def __init__(self, root):
        self.root = root
        self.now = 100.0
        self.times = {"user": 10.0, "system": 5.0, "idle": 80.0, "iowait": 5.0, "guest": 4.0}
        self.disks = {"nvme0n1": (0, 0), "dm-0": (0, 0)}
        self.cards = {"eth0": (0, 0), "bond0": (0, 0), "lo": (0, 0)}
        self.physical("block/nvme0n1")
        self.physical("class/net/eth0")

    def physical(self, name):
        (self.root / name / "device").mkdir(parents=True)

    def cpu_times(self):
        return SimpleNamespace(_asdict=lambda: dict(self.times))

    def virtual_memory(self):
        return SimpleNamespace(total=200e9, available=150e9, used=1.0)

    def disk_io_counters(self, perdisk, nowrap):
        assert perdisk
        assert not nowrap
        return {name: SimpleNamespace(read_bytes=r, write_bytes=w) for name, (r, w) in self.disks.items()}

    def net_io_counters(self, pernic, nowrap):
        assert pernic
        assert not nowrap
        return {name: SimpleNamespace(bytes_recv=r, bytes_sent=s) for name, (r, s) in self.cards.items()}


@pytest.fixture
def machine(tmp_path):
    """Numbers to set."""
    return Machine(tmp_path)


@pytest.fixture
def host(machine, tmp_path):
    """A host that was read once."""
    made = Host(lambda: machine.now, machine, tmp_path)
    assert made.read().keys() == LEVELS
    machine.now += 2.0
    return made


def test_the_first_call_tells_levels_alone(host):
    """Asserted by the fixture."""


def test_this_machine_tells_its_memory_and_its_cpu():
    now = [0.0]
    host = Host(lambda: now[0])
    first = host.read()
    assert first.keys() == LEVELS
    assert 0 < first["system/memory_percent"] <= 100
    now[0] += 1.0
    assert all(value >= 0 for value in host.read().values())


def test_memory_is_what_is_not_available(host):
    found = host.read()
    assert found["system/memory_used_gb"] == 50
    assert found["system/memory_percent"] == 25


def test_rates_are_of_the_time_between_two_calls(host, machine):
    machine.disks["nvme0n1"] = (4_000_000, 8_000_000)
    machine.cards["eth0"] = (1_000_000, 2_000_000)
    found = host.read()
    assert found["system/disk_read_mb_s"] == 2
    assert found["system/disk_write_mb_s"] == 4
    assert found["system/network_received_mb_s"] == 0.5
    assert found["system/network_sent_mb_s"] == 1


def test_cpu_is_busy_time_with_guests_counted_once(host, machine):
    machine.times.update(user=12.0, guest=5.0, idle=84.0, iowait=6.0)
    assert host.read()["system/cpu_percent"] == pytest.approx(100 * 2 / 7)


def test_layers_over_a_device_do_not_count_again(host, machine):
    machine.disks = {"nvme0n1": (2_000_000, 0), "dm-0": (2_000_000, 0)}
    machine.cards = {"eth0": (2_000_000, 0), "bond0": (2_000_000, 0), "lo": (9_000_000, 0)}
    found = host.read()
    assert found["system/disk_read_mb_s"] == 1
    assert found["system/network_received_mb_s"] == 1


def test_in_a_container_its_only_interface_counts(machine, tmp_path):
    host = Host(lambda: machine.now, machine, tmp_path / "nothing")
    machine.cards = {"veth0": (0, 0), "lo": (0, 0)}
    host.read()
    machine.now += 1
    machine.cards = {"veth0": (3_000_000, 0), "lo": (9_000_000, 0)}
    found = host.read()
    assert found["system/network_received_mb_s"] == 3
    assert "system/disk_read_mb_s" not in found


@pytest.mark.parametrize(
    "disks", [{"nvme0n1": (-1, 5)}, {"dm-0": (1, 1)}, {}], ids=["set back", "gone", "none"]
)
def test_a_counter_that_is_set_back_or_gone_gives_no_value(host, machine, disks):
    machine.disks = disks
    found = host.read()
    assert not {name for name in found if "disk" in name}
    assert "system/network_sent_mb_s" in found


def test_after_a_counter_was_set_back_rates_go_on_from_there(host, machine):
    machine.cards["eth0"] = (-5, -5)
    host.read()
    machine.now += 1
    machine.cards["eth0"] = (999_995, -5)
    assert host.read()["system/network_received_mb_s"] == 1


@pytest.mark.parametrize("step", [0.0, 0.01, -3600.0])
def test_two_calls_at_once_or_a_clock_set_back_give_no_rates(host, machine, step):
    """B17."""
    machine.now += step - 2.0
    assert host.read().keys() == LEVELS


def test_calls_at_once_do_not_hide_what_happens_meanwhile(host, machine):
    machine.now -= 2.0
    for moment in range(1, 100):  # each too soon after the last
        machine.now = 100.0 + moment / 1000
        host.read()
    machine.now = 102.0
    machine.disks["nvme0n1"] = (4_000_000, 0)
    assert host.read()["system/disk_read_mb_s"] == 2


def test_what_cannot_be_read_costs_nothing_else_and_is_said_once(machine, tmp_path, caplog):
    machine.disk_io_counters = lambda **_: 1 / 0
    host = Host(lambda: machine.now, machine, tmp_path)
    for _ in range(3):
        found = host.read()
        machine.now += 1
    assert found.keys() == LEVELS | {name for name in RATES if "disk" not in name} - {"system/cpu_percent"}
    assert caplog.text.count("disk cannot be read: ZeroDivisionError") == 1


def test_containers_that_come_and_go_are_not_remembered(host, machine):
    for number in range(100):
        machine.cards = {"eth0": (0, 0), f"veth{number}": (0, 0)}
        machine.now += 1
        host.read()
    assert len(host._devices_of["class/net"]) == 2
