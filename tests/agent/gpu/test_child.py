"""The process that asks drivers, over the real amdsmi package and a simulated library."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import simulated

from rankside_agent.gpu.card import Card
from rankside_agent.gpu.child import MORE_FILES, OUTGROWN

PATIENCE = 60.0
COMMAND = [sys.executable, "-m", "rankside_agent.gpu.child"]


class Child:
    """One started child; `say` writes to it, `hear` reads a line."""

    def __init__(self, rocm, rules, *arguments):
        self.rest = b""
        self.announced = []
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=simulated.environment(rocm, rules),
            start_new_session=True,
            bufsize=0,
        )

    def say(self, *requests):
        self.process.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))

    def hear(self):
        """The next reply."""
        while True:
            line = self.line()
            told = json.loads(line)
            if "trying" not in told:
                return told
            self.announced.append(told["trying"])

    def line(self):
        while b"\n" not in self.rest:
            assert select.select([self.process.stdout], [], [], PATIENCE)[0], "waited in vain for a reply"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"ended: {self.process.stderr.read().decode()}"
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def ask(self, number=1, gpus=True, host=False):
        self.say({"id": number, "gpus": gpus, "host": host})
        return self.hear()

    def ended(self):
        """Its exit status, and what it said to stderr."""
        said = self.process.stderr.read().decode()
        return self.process.wait(PATIENCE), said


@pytest.fixture
def start(rocm, tmp_path):
    """Starts a child with rules for the library; all are killed in the end."""
    made = []

    def child(*rules, arguments=("amdsmi",)):
        (tmp_path / "rules").write_text("".join(f"{rule}\n" for rule in rules))
        made.append(Child(rocm, tmp_path / "rules", *arguments))
        return made[-1]

    yield child
    for each in made:
        each.process.kill()
        each.process.wait(PATIENCE)
        for stream in (each.process.stdin, each.process.stdout, each.process.stderr):
            stream.close()


def test_a_request_is_answered_with_cards_and_host(start):
    child = start("gpus - * 8")
    told = child.ask(7, host=True)
    cards = [Card.of(plain) for plain in told["cards"]]
    assert (told["id"], told["source"], told["problem"]) == (7, "amdsmi", "")
    assert [card.vram.used >> 30 for card in cards] == list(range(1, 9))
    assert told["host"]["system/memory_used_gb"] > 0
    assert told["took_ms"] > 0
    assert abs(told["time"] - time.time()) < PATIENCE
    assert child.announced == ["amdsmi"]


def test_only_what_was_asked_for_is_answered(start):
    child = start("hang amdsmi_init * 0")  # no source is touched for the host alone
    told = child.ask(1, gpus=False, host=True)
    assert told["cards"] == []
    assert told["host"]
    assert child.announced == []


def test_requests_that_waited_together_have_one_answer(start):
    child = start()
    child.ask(1)
    child.say(*[{"id": number, "gpus": number == 3, "host": False} for number in range(2, 6)])
    told = child.hear()
    while told["id"] != 5:  # the first may have been read alone
        told = child.hear()
    assert len(told["cards"]) == 1


def test_what_a_driver_prints_is_no_reply(start):
    child = start("print amdsmi_init * 0", "print amdsmi_get_power_info * 0")
    told = child.ask()
    assert len(told["cards"]) == 1
    child.process.stdin.close()
    status, said = child.ended()
    assert status == 0
    assert "chatter of amdsmi_get_power_info" in said


def test_without_a_source_each_reason_is_told_in_one_line(start):
    child = start("status amdsmi_init * 10", arguments=("amdsmi,nowhere",))
    told = child.ask()
    assert told["cards"] == []
    assert told["source"] == ""
    assert told["problem"].startswith("no GPU source works: amdsmi: no permission for ")
    assert "render and video" in told["problem"]
    assert "nowhere: " in told["problem"]
    assert "\n" not in told["problem"]
    again = child.ask(2)
    assert again["problem"] == told["problem"]
    child.process.stdin.close()
    assert child.ended()[1].count("no GPU source works") == 1


def test_an_empty_list_of_sources_means_none(start):
    child = start(arguments=("",))
    assert child.ask()["problem"] == "no GPU source is left to try"


@pytest.mark.parametrize("line", [b"\n", b"garbage\n", b"[1]\n", b"\xff\xfe\n", b"[" * 5000 + b"\n"])
def test_a_line_that_is_no_request_is_passed_over(start, line):
    child = start()
    child.process.stdin.write(line)
    assert child.ask(3)["id"] == 3


def test_it_ends_with_its_stdin(start):
    child = start()
    child.ask()
    child.process.stdin.close()
    assert child.ended()[0] == 0


def test_signals_to_the_whole_node_are_not_for_it(start):
    child = start()
    child.ask()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        child.process.send_signal(number)
    assert child.ask(2)["id"] == 2


def test_training_goes_first(start):
    child = start()
    child.ask()
    status = Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()
    assert int(status[16]) >= 10
    assert int(Path(f"/proc/{child.process.pid}/oom_score_adj").read_text()) >= 500


def test_it_dies_with_its_parent_though_a_call_hangs(rocm, tmp_path, until):
    """Its stdin stays open, for a sibling may hold the pipe."""
    (tmp_path / "rules").write_text("hang amdsmi_init * 0\n")
    script = (
        "import subprocess, time\n"
        f"child = subprocess.Popen({COMMAND!r} + ['amdsmi'], stdin=0, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"  # it is about to hang
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    reads, writes = os.pipe()
    os.write(writes, b'{"id": 1, "gpus": true, "host": false}\n')
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=reads,
        stdout=subprocess.PIPE,
        env=simulated.environment(rocm, tmp_path / "rules"),
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    try:
        until(lambda: not alive(pid), "the child is gone")
    finally:
        os.close(reads)
        os.close(writes)


def alive(pid):
    """Whether it runs; a dead one that nobody took does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_library_that_leaks_is_cured_by_another_process(start):
    """B27: a file for each poll."""
    child = start("leak amdsmi_get_power_info * 0")
    for number in range(1, MORE_FILES + 2):
        assert child.ask(number)["cards"][0]["power_w"] == 500
    child.say({"id": MORE_FILES + 2, "gpus": True})
    assert child.hear()["cards"]  # the last one is answered, too
    assert child.ended()[0] == OUTGROWN


def test_a_crash_is_its_own_only(start):
    child = start("crash amdsmi_get_gpu_memory_usage * 0")
    child.say({"id": 1, "gpus": True})
    assert child.ended()[0] == -signal.SIGABRT


def test_one_start_of_a_source_serves_all_polls(start):
    child = start()
    assert child.ask(1)["cards"]
    assert child.ask(2)["cards"]
    assert child.announced == ["amdsmi"]
