"""AMD's package over a simulated library: what is told, what is refused, and what a poll leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import simulated

from rankside_agent.gpu.amdsmi import no_permission

PATIENCE = 100  # seconds for one process; what fails, fails after this
GIB = 1 << 30
PRELUDE = """
import ctypes, json, os, sys
from pathlib import Path
from rankside_agent.gpu.amdsmi import AmdSmi
from rankside_agent.gpu.source import Unavailable

library = ctypes.CDLL(os.environ["ROCM_PATH"] + "/lib/libamd_smi.so")

def calls(name):
    return library.fake_calls(name.encode())

def rules(*lines):
    path = Path(os.environ["FAKE_AMD_SMI"])
    path.write_text("".join(line + chr(10) for line in lines))
    library.fake_load(str(path).encode())

def tell(value):
    print(json.dumps(value))

def plain(cards):
    return [card.plain() for card in cards]

def refused(do):
    try:
        do()
    except Unavailable as error:
        return str(error)

clock = [0.0]
source = AmdSmi(clock=lambda: clock[0])
"""


@pytest.fixture
def run(rocm, tmp_path):
    """Runs a script in a process of its own, with these rules; its CompletedProcess."""

    def start(rules, script, **environ):
        path = tmp_path / "rules"
        path.write_text("".join(f"{rule}\n" for rule in rules))
        return subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
            env={**simulated.environment(rocm, path), **environ},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return start


@pytest.fixture
def told(run):
    """What a script tells, in JSON; nothing else may be on its stdout."""

    def start(rules, script, **environ):
        done = run(rules, script, **environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return start


REFUSALS = (2, 3, 10, 7, 30)  # not supported, not yet, no permission, failed, busy
READ = "source.open(); tell(plain(source.read()))"


def test_every_field_of_a_card_is_told(told):
    (card,) = told([], READ)
    assert card == {
        "pci": "0001:05:00.0",
        "uuid": "abc0000000000001",
        "name": "AMD Instinct of the tests",
        "vendor": "amd",
        "partition": None,
        "vram": {"used": GIB, "total": 192 * GIB},
        "gtt": {"used": GIB, "total": 768 * GIB},
        "apu": False,
        "use_percent": 40,
        "power_w": 500,
        "temperature_c": 61,
        "clock_mhz": 2100,
        "ecc_correctable": 3,
        "ecc_uncorrectable": 0,
    }


def test_each_gpu_has_its_own_address_and_memory_whatever_the_order(told):
    """B22: amd-smi counts in another order than KFD and HIP."""
    straight, reversed_ = told(["gpus - * 8"], READ), told(["gpus - * 8", "reversed - * 1"], READ)
    assert [card["pci"] for card in straight] == [f"0001:{bus:x}5:00.0" for bus in range(8)]
    assert [card["vram"]["used"] // GIB for card in straight] == list(range(1, 9))
    assert reversed_ == straight[::-1]


def test_letters_of_an_address_are_small(told):
    (card,) = told([f"value amdsmi_get_gpu_device_bdf * {0xABCD << 16 | 0xE3 << 8}"], READ)
    assert card["pci"] == "abcd:e3:00.0"


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("amdsmi_get_gpu_device_bdf", ["pci"]),
        ("amdsmi_get_gpu_asic_info", ["uuid", "name"]),
        ("amdsmi_get_gpu_activity", ["use_percent"]),
        ("amdsmi_get_power_info", ["power_w"]),
        ("amdsmi_get_temp_metric", ["temperature_c"]),
        ("amdsmi_get_clock_info", ["clock_mhz"]),
        ("amdsmi_get_gpu_total_ecc_count", ["ecc_correctable", "ecc_uncorrectable"]),
        ("amdsmi_get_gpu_kfd_info", []),
        ("amdsmi_get_gpu_compute_partition", []),
        ("amdsmi_get_gpu_vram_info", []),
    ],
)
def test_a_call_that_one_gpu_refuses_costs_that_value_of_that_gpu_alone(told, function, fields):
    script = f"""
    def read(*more):
        rules("gpus - * 3", *more)
        source = AmdSmi(clock=lambda: clock[0])
        source.open()
        try:
            return plain(source.read())
        finally:
            source.close()

    tell([read(), *(read(f"status {function} 1 {{status}}") for status in {REFUSALS})])
    """
    whole, *refused = told([], script)
    assert len(refused) == len(REFUSALS)
    for cards in refused:
        assert cards[0] == whole[0]
        assert cards[2] == whole[2]
        assert cards[1] == {**whole[1], **{name: "" if name == "name" else None for name in fields}}


def test_a_refusal_is_not_asked_for_again_at_every_poll(told):
    script = """
    source.open()
    for _ in range(1000):
        source.read()
    tell([calls("amdsmi_get_power_info"), calls("amdsmi_get_gpu_activity"), calls("amdsmi_get_clock_info")])
    """
    refusals = ["gpus - * 8", "status amdsmi_get_power_info * 2", "status amdsmi_get_clock_info 3 7"]
    power, use, clock = told(refusals, script)
    assert power == 8  # once for each GPU
    assert use == 8 * 1001
    assert clock == 7 * 1001 + 1


def test_what_failed_for_a_while_comes_back(told):
    script = """
    source.open()
    rules()
    before = source.read()[0].power_w
    clock[0] += 16
    tell([before, source.read()[0].power_w])
    """
    assert told(["status amdsmi_get_power_info * 30"], script) == [None, 500]


def test_memory_falls_back_to_the_call_that_counts_megabytes(told):
    (card,) = told(["status amdsmi_get_gpu_memory_usage * 2"], READ)
    assert card["vram"] == {"used": GIB, "total": 192 * GIB}  # far beyond 32 bits
    assert card["gtt"] is None


def test_memory_of_one_gpu_may_be_missing(told):
    silent = [f"status amdsmi_get_gpu_{name} 1 2" for name in ("memory_usage", "vram_usage")]
    cards = told(["gpus - * 2", *silent], READ)
    assert [card["vram"] for card in cards] == [{"used": GIB, "total": 192 * GIB}, None]


@pytest.mark.parametrize("unknown", [0xFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1])
def test_ones_in_all_bits_mean_that_nothing_is_known(told, unknown):
    functions = "activity temp_metric clock_info power_info total_ecc_count memory_usage vram_usage kfd_info"
    every = [
        f"value amdsmi_get_{prefix}{name} * {unknown}"
        for name in functions.split()
        for prefix in ("", "gpu_")
    ]
    assert "memory" in told(every, "tell(refused(source.open))")
    (card,) = told([rule for rule in every if "memory" not in rule], READ)
    missing = ("use_percent", "power_w", "temperature_c", "clock_mhz", "ecc_correctable", "ecc_uncorrectable")
    assert {name: card[name] for name in missing} == dict.fromkeys(missing)
    assert card["partition"] is None


@pytest.mark.parametrize(
    ("function", "value", "field"),
    [
        ("amdsmi_get_gpu_activity", 101, "use_percent"),
        ("amdsmi_get_power_info", 0, "power_w"),
        ("amdsmi_get_temp_metric", 4_000_000, "temperature_c"),
        ("amdsmi_get_gpu_memory_usage", 2000 * GIB, "gtt"),  # more than there is
    ],
)
def test_what_cannot_be_is_not_told(told, function, value, field):
    (card,) = told([f"value {function} * {value}"], READ)
    assert card[field] is None


def test_thousandths_of_a_degree_are_degrees(told):
    assert told(["value amdsmi_get_temp_metric * 61500"], READ)[0]["temperature_c"] == 61.5


def test_growing_memory_is_told_as_it_is_now(told):
    script = "source.open(); tell([source.read()[0].vram.used for _ in range(3)])"
    first, second, third = told([f"grow amdsmi_get_gpu_memory_usage * {GIB}"], script)
    assert third - second == second - first > 0


def test_an_apu_is_known_by_the_kind_of_its_memory(told):
    assert told(["value amdsmi_get_gpu_vram_info * 12"], READ)[0]["apu"] is True  # DDR4
    small = ["status amdsmi_get_gpu_vram_info * 2", f"value amdsmi_get_gpu_memory_usage * {1 << 20}"]
    assert told(small, READ)[0]["apu"] is False


def test_partitions_are_numbered_and_the_card_is_counted_once(told):
    """B23: eight handles of one card, each telling the whole card's memory and power."""
    cards = told(["gpus - * 2", "partitions - * 8"], READ)
    assert [card["partition"] for card in cards] == [*range(8), *range(8)]
    assert {card["uuid"] for card in cards[:8]} == {"abc0000000000001"}
    assert sum(card["vram"]["total"] for card in cards if card["vram"]) == 2 * 192 * GIB
    assert sum(card["power_w"] or 0 for card in cards) == 2 * 500
    assert [at for at, card in enumerate(cards) if card["vram"]] == [0, 8]
    assert all(card["use_percent"] is not None for card in cards)


def test_only_the_first_partition_answers_and_its_values_are_nobody_elses(told):
    names = ("memory_usage", "vram_usage", "activity", "total_ecc_count")
    silent = [f"status amdsmi_get_gpu_{name} {part} 2" for part in range(1, 8) for name in names]
    first, *others = told(["partitions - * 8", *silent], READ)
    assert first["vram"] == {"used": GIB, "total": 192 * GIB}
    for card in others:
        assert [card[name] for name in ("vram", "gtt", "use_percent", "ecc_correctable")] == [None] * 4


def test_partitions_with_memory_of_their_own_keep_it(told):
    shares = [f"value amdsmi_get_gpu_memory_usage {part} {(part + 1) << 20}" for part in range(8)]
    cards = told(["partitions - * 8", f"value amdsmi_get_gpu_memory_total * {24 * GIB}", *shares], READ)
    assert [card["vram"]["used"] >> 20 for card in cards] == list(range(1, 9))


def test_the_number_of_a_partition_is_also_told_by_its_function(told):
    cards = told(["partitions - * 4", "status amdsmi_get_gpu_kfd_info * 2"], READ)
    assert [card["partition"] for card in cards] == [0, 1, 2, 3]


def test_partitions_that_cannot_be_told_apart_have_no_number(told):
    alike = f"value amdsmi_get_gpu_device_bdf * {0x500}"
    cards = told(["partitions - * 4", "status amdsmi_get_gpu_kfd_info * 2", alike], READ)
    assert [card["partition"] for card in cards] == [None] * 4
    assert sum(card["vram"] is not None for card in cards) == 1


def test_one_partition_that_a_container_shows_keeps_its_number(told):
    if not simulated.knows("amdsmi_get_gpu_kfd_info"):
        pytest.skip("amdsmi before 6.3 does not tell it")
    one = ["value amdsmi_get_gpu_kfd_info * 5", "value amdsmi_get_gpu_compute_partition * 1"]
    assert told(one, READ)[0]["partition"] == 5


@pytest.mark.parametrize("where", ["amdsmi_init", "*"])
def test_no_permission_is_one_sentence_with_devices_and_groups(told, tmp_path, where):
    """B26."""
    functions = ["memory_usage", "vram_usage"] if where == "*" else []
    rules = ["gpus - * 8", *[f"status amdsmi_get_gpu_{name} * 10" for name in functions]]
    rules += [] if where == "*" else ["status amdsmi_init * 10"]
    said = told(rules, "tell(refused(source.open))")
    for word in ("/dev/kfd", "/dev/dri/renderD*", "render and video"):
        assert word in said
    assert "\n" not in said


def test_the_closed_devices_are_named(tmp_path):
    (tmp_path / "dri").mkdir()
    for name in ("kfd", "dri/renderD128", "dri/renderD129"):
        (tmp_path / name).touch()
    said = no_permission(tmp_path, lambda device: device.name == "renderD128")
    assert f"{tmp_path}/kfd, {tmp_path}/dri/renderD129:" in said


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["gpus - * 0"], "no AMD GPU"),
        (["status amdsmi_init * 34"], "driver is not loaded"),
        (["status amdsmi_init * 18"], "Initialization error"),
        (["status amdsmi_get_socket_handles * 12"], "I/O Error"),
    ],
)
def test_a_library_without_gpus_says_why(told, rules, words):
    assert words in told(rules, "tell(refused(source.open))")


def test_ten_thousand_polls_start_nothing_and_leave_nothing(told):
    """B27: one start, handles reused, files and memory flat, although a call leaks a file when it fails."""
    script = """
    def size():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")

    source.open()
    for _ in range(100):
        source.read()
    files, held = size()
    for poll in range(10_000):
        clock[0] += 0.1
        source.read()
    more, grown = size()
    names = ("amdsmi_init", "amdsmi_shut_down", "amdsmi_get_socket_handles", "amdsmi_get_gpu_device_bdf")
    tell([more - files, grown - held, [calls(name) for name in names]])
    """
    leaks = [f"{kind} amdsmi_get_gpu_total_ecc_count 0 2" for kind in ("status", "leak")]
    leaks += [f"{kind} amdsmi_get_power_info 1 7" for kind in ("status", "leak")]
    files, grown, counts = told(["gpus - * 2", *leaks], script)
    assert files <= 8  # 1,000 s: a doubling wait, not 10,000 failures
    assert grown < 4 << 20
    assert counts == [1, 0, 2, 2]


def test_a_library_that_failed_is_started_once_more_and_not_in_a_loop(told):
    script = """
    source.open()
    rules("status amdsmi_get_gpu_memory_usage * 32", "status amdsmi_get_gpu_vram_usage * 32")
    refused(source.read)
    source.close(); source.close()
    rules()
    source.open()
    tell([plain(source.read())[0]["vram"]["total"], calls("amdsmi_init"), calls("amdsmi_shut_down")])
    """
    assert told([], script) == [192 * GIB, 2, 1]


def test_a_failed_start_is_stopped_again(told):
    script = "refused(source.open); tell([calls('amdsmi_init'), calls('amdsmi_shut_down')])"
    assert told(["gpus - * 0"], script) == [1, 1]
    assert told(["status amdsmi_init * 18"], script) == [1, 0]


def test_a_library_that_starts_helpers_keeps_its_children(told):
    (card,) = told(["fork amdsmi_get_power_info * 0", "fork amdsmi_get_gpu_memory_usage * 0"], READ)
    assert card["power_w"] == 500


@pytest.mark.parametrize("rule", ["hang amdsmi_get_gpu_memory_usage 0 0", "hang amdsmi_init * 0"])
def test_a_call_that_never_returns_holds_this_process_only(rocm, tmp_path, rule):
    (tmp_path / "rules").write_text(f"{rule}\n")
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + "source.open()"],
        env=simulated.environment(rocm, tmp_path / "rules"),
        start_new_session=True,
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
    finally:
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_without_rocm_the_package_says_so_and_prints_nothing(tmp_path):
    """Its import raises KeyError or prints to stdout, which is a protocol's pipe in the child."""
    if simulated.wrapper() is None:
        pytest.skip("the package amdsmi is not installed")
    done = subprocess.run(
        [sys.executable, "-c", "import os\nos.environ['FAKE_AMD_SMI'] = ''\n" + NO_ROCM],
        env={**os.environ, "ROCM_PATH": str(tmp_path), "LD_LIBRARY_PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert "libamd_smi.so" in json.loads(done.stdout)


NO_ROCM = """
import json
from rankside_agent.gpu.amdsmi import AmdSmi
from rankside_agent.gpu.source import Unavailable
try:
    AmdSmi().open()
except Unavailable as error:
    print(json.dumps(str(error)))
"""


def test_rocms_own_copy_of_the_package_comes_first(tmp_path):
    """The one that pip installed may be of another version than the library."""
    own = tmp_path / "share" / "amd_smi" / "amdsmi"
    own.mkdir(parents=True)
    (own / "__init__.py").write_text("whose = 'of ROCm'\n")
    code = "from rankside_agent.gpu import amdsmi_package as p; print(p.load().whose)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ROCM_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "of ROCm\n", done.stderr


def test_a_broken_copy_of_rocm_is_passed_over(rocm, tmp_path, run):
    home = tmp_path / "home"
    (home / "share" / "amd_smi" / "amdsmi").mkdir(parents=True)
    (home / "share" / "amd_smi" / "amdsmi" / "__init__.py").write_text("print('torn'); import nowhere\n")
    (home / "lib").symlink_to(rocm / "lib")
    done = run([], READ, ROCM_HOME=str(home))
    assert json.loads(done.stdout)[0]["vram"]["total"] == 192 * GIB, done.stderr
