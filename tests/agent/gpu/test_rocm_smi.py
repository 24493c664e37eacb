"""The source that asks AMD's tools: what it finds, how it asks, and that nothing is left of a stuck one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rankside_agent.gpu import command
from rankside_agent.gpu.card import Pool
from rankside_agent.gpu.rocm_smi import RocmSmi
from rankside_agent.gpu.source import Unavailable

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu"
MI300X = 206141652992
HANG = 600  # seconds; never waited for

Tool = Callable[..., list[str]]


@pytest.fixture
def tool(tmp_path) -> Tool:
    """A tool that answers a call whose options hold all words of a key, and refuses any other."""

    def make(name: str, **answers: str) -> list[str]:
        script = tmp_path / f"{name}.py"
        script.write_text(
            "import sys\n"
            f"open({str(tmp_path / 'calls')!r}, 'a').write({name!r} + ' ' + ' '.join(sys.argv[1:]) + '\\n')\n"
            f"for words, answer in {[(key.split('_'), value) for key, value in answers.items()]!r}:\n"
            "    if all(any(word in option for option in sys.argv[1:]) for word in words if word != 'any'):\n"
            f"        sys.stdout.write(open({str(FIXTURES)!r} + '/' + answer).read())\n"
            "        sys.exit(2)\n"  # as the tools do where a value was missing
            "print('usage: unrecognized arguments', file=sys.stderr); sys.exit(1)\n"
        )
        return [sys.executable, str(script)]

    return make


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_rocm_smi_is_asked_for_json_once_a_reading(tmp_path, tool):
    source = RocmSmi({"rocm-smi": tool("rocm-smi", json="rocm-smi-6.json")})
    source.open()
    assert [card.vram for card in source.read()] == [Pool(301989888, MI300X), Pool(2147483648, MI300X)]
    assert len(calls(tmp_path)) == 2
    assert all("--showmeminfo vram gtt" in call and "--json" in call for call in calls(tmp_path))


def test_a_version_that_refuses_an_option_is_asked_for_less(tmp_path, tool):
    refusing = tool("rocm-smi", csv="rocm-smi-6.csv")
    source = RocmSmi({"rocm-smi": refusing})
    source.open()
    assert [card.pci for card in source.read()] == ["0000:0c:00.0", "0000:22:00.0"]
    assert calls(tmp_path)[-1].endswith("--csv")


def test_amd_smi_tells_what_does_not_change_once(tmp_path, tool):
    answers = {"metric_json": "amd-smi-metric-wrapped.json", "static_json": "amd-smi-static.json"}
    source = RocmSmi({"amd-smi": tool("amd-smi", **answers)})
    source.open()
    for _ in range(3):
        assert [card.pci for card in source.read()] == ["0000:0c:00.0", "0000:22:00.0"]
    assert sum("static" in call for call in calls(tmp_path)) == 1


def test_a_tool_whose_json_fails_is_read_as_text(tool):
    source = RocmSmi({"amd-smi": tool("amd-smi", metric="amd-smi-metric.txt", static="amd-smi-static.txt")})
    source.open()
    assert source.read()[0].vram == Pool(288 << 20, MI300X)


def test_the_tool_that_says_which_card_it_is_is_preferred(tool):
    nameless = tool("rocm-smi", any="amd-smi-metric.csv")
    answers = {"metric_json": "amd-smi-metric-list.json", "static_json": "amd-smi-static.json"}
    source = RocmSmi({"rocm-smi": nameless, "amd-smi": tool("amd-smi", **answers)})
    source.open()
    assert {card.pci for card in source.read()} == {"0000:0c:00.0", "0000:22:00.0"}


def test_a_table_alone_is_better_than_nothing(tool):
    source = RocmSmi({"rocm-smi": tool("rocm-smi", any="rocm-smi-table-6.txt")})
    source.open()
    assert [card.use_percent for card in source.read()] == [94.0, 0.0]


def test_no_tool_is_unavailable_with_a_sentence():
    with pytest.raises(Unavailable, match="neither rocm-smi nor amd-smi"):
        RocmSmi({}).open()


def test_a_tool_that_is_not_there_or_answers_nothing_is_unavailable(tmp_path, tool):
    with pytest.raises(Unavailable, match="no AMD GPU"):
        RocmSmi({"rocm-smi": [str(tmp_path / "nothing")], "amd-smi": tool("amd-smi")}).open()


def test_reading_what_is_not_open_is_unavailable(tool):
    source = RocmSmi({"rocm-smi": tool("rocm-smi", json="rocm-smi-6.json")})
    with pytest.raises(Unavailable):
        source.read()
    source.open()
    source.close()
    source.close()
    with pytest.raises(Unavailable):
        source.read()


# Partitions


def parted(tmp_path: Path, used: str) -> RocmSmi:
    """A tool that lists eight parts of one card, and tells `used` of part `at` in call `call`."""
    script = tmp_path / "parted.py"
    script.write_text(
        "import json, os\n"
        f"call = os.path.getsize({str(tmp_path / 'calls')!r})\n"
        f"open({str(tmp_path / 'calls')!r}, 'a').write('.')\n"
        "print(json.dumps({f'card{at}': {'PCI Bus': f'0000:05:00.{at}', 'VRAM Total Memory (B)': '1000',"
        f" 'VRAM Total Used Memory (B)': str({used})}} for at in range(8)}}))\n"
    )
    (tmp_path / "calls").touch()
    source = RocmSmi({"rocm-smi": [sys.executable, str(script)]})
    source.open()
    return source


@pytest.mark.parametrize("used", ["5", "5 + 8 * call + at"], ids=["at rest", "growing"])
def test_the_memory_of_a_card_in_partitions_is_told_once(tmp_path, used):
    cards = parted(tmp_path, used).read()
    assert [card.partition for card in cards] == list(range(8))
    assert [card.vram is not None for card in cards] == [True] + [False] * 7


def test_partitions_that_tell_memory_of_their_own_keep_it(tmp_path):
    cards = parted(tmp_path, "100 * at").read()
    assert [card.vram for card in cards] == [Pool(100 * at, 1000) for at in range(8)]


# Tools that never end


def gone(pid: int) -> bool:
    """Whether the process is there no longer, or is dead and waits for its parent only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_stuck_tool_and_its_helpers_are_ended_and_it_is_asked_once(tmp_path, until):
    script = tmp_path / "stuck.py"
    script.write_text(
        "import os, sys, time\n"
        "helper = os.fork()\n"  # and holds the pipe
        f"if helper: open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}} {{helper}}\\n')\n"
        f"time.sleep({HANG})\n"
    )
    source = RocmSmi({"rocm-smi": [sys.executable, str(script)]}, timeout=3)
    with pytest.raises(Unavailable, match="did not answer within 3 s"):
        source.open()
    (line,) = (tmp_path / "pids").read_text().splitlines()
    for pid in map(int, line.split()):
        until(lambda pid=pid: gone(pid), f"the end of {pid}")


def test_a_helper_that_outlives_its_tool_is_ended(tmp_path, until):
    script = (
        "import os, time, sys; helper = os.fork()\n"
        f"if not helper: os.close(1); time.sleep({HANG})\n"
        "print(helper)"
    )
    helper = int(command.output([sys.executable, "-c", script], timeout=30))
    until(lambda: gone(helper), "the end of the helper")


def test_a_tool_does_not_outlive_the_process_that_asked_it(tmp_path, until):
    path = str(tmp_path / "pid")
    tool = f"import os, time; open({path!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep({HANG})"
    call = f"command.output([sys.executable, '-c', {tool!r}], {HANG})"
    asker = f"import sys; from rankside_agent.gpu import command; {call}"
    with subprocess.Popen([sys.executable, "-c", asker]) as process:
        until(
            lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("."), "the tool"
        )
        process.kill()
    pid = int((tmp_path / "pid").read_text()[:-1])
    until(lambda: gone(pid), "the end of the tool")


def test_output_that_is_no_text_is_read_all_the_same():
    script = "import sys; sys.stdout.buffer.write(b'\\xff\\xfe GPU[0]')"
    assert command.output([sys.executable, "-c", script], timeout=30).endswith(" GPU[0]")


def test_calls_leave_nothing_open(tool):
    source = RocmSmi({"rocm-smi": tool("rocm-smi", json="rocm-smi-6.json")})
    source.open()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        source.read()
    assert len(os.listdir("/proc/self/fd")) == before
