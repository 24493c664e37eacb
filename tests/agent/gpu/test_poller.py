"""The agent's half: it never waits, and whatever its process does is one answer that did not come."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import simulated

from rankside_agent.gpu.blame import HOUR
from rankside_agent.gpu.card import Card
from rankside_agent.gpu.child import OUTGROWN
from rankside_agent.gpu.poller import LONGEST_QUEUE, Poller, child_environ
from rankside_agent.sinks.supervisor import FIRST_DELAY, LONGEST_DELAY

PATIENCE = 60.0
DEADLINE = 1.0  # of pollers whose child hangs
PRELUDE = """
import json, os, subprocess, sys, time

def ask():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)

def say(value):
    print(json.dumps(value), flush=True)

def reply(request, **more):
    say({"id": request["id"], "source": "fake", "cards": [], "problem": "", "host": {}, "time": 1.0, **more})

def serve():
    while True:
        reply(ask(), host={"system/asked": 1})
"""
HANGS_LATER = "reply(ask())\nask()\ntime.sleep(600)"


class Answers:
    """What `then` was called with."""

    def __init__(self, poller):
        self.poller = poller
        self.queue = queue.Queue()

    def ask(self, gpus=True, host=False):
        """Ask and leave."""
        return self.poller.ask(gpus, host, lambda reading, host: self.queue.put((reading, host)))

    def next(self):
        return self.queue.get(timeout=PATIENCE)

    def wait(self, gpus=True, host=False):
        """Ask, and the answer."""
        assert self.ask(gpus, host)
        return self.next()


@pytest.fixture
def clock():
    """The time of back-off and blame, to set."""
    return [1000.0]


@pytest.fixture
def poll(clock):
    """Makes a poller over a script; all are closed in the end."""
    made = []

    def make(script=None, **settings):
        command = None if script is None else [sys.executable, "-c", PRELUDE + textwrap.dedent(script)]
        settings = {"deadline": PATIENCE, "clock": lambda: clock[0], "jitter": lambda: 0.5, **settings}
        made.append(Answers(Poller(**({"sources": ["fake"]} | settings), command=command)))
        return made[-1]

    yield make
    for each in made:
        each.poller.close()


def alive(pid):
    """Whether it runs; a dead one that nobody took does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def named():
    return [thread for thread in threading.enumerate() if thread.name == "rankside-gpu"]


def test_a_reading_and_the_host_come_from_the_thread(poll):
    card = Card(pci="0000:63:00.0", use_percent=5.0)
    gpus = poll(f"reply(ask(), cards=[{card.plain()!r}], host={{'system/cpu_percent': 7}}); serve()")
    threads = queue.Queue()
    gpus.poller.ask(True, True, lambda *_: threads.put(threading.current_thread().name))
    assert threads.get(timeout=PATIENCE) == "rankside-gpu"
    status = gpus.poller.status()
    assert (status["source"], status["cards"], status["problem"]) == ("fake", 1, "")
    assert (status["polls"], status["timeouts"], status["restarts"]) == (1, 0, 0)
    assert alive(status["pid"])
    assert status["last_ms"] > 0


def test_nothing_is_started_before_the_first_question(poll):
    gpus = poll("serve()")
    assert gpus.poller.status()["pid"] is None
    gpus.poller.close()
    assert not gpus.ask()


def test_one_process_serves_all_polls(poll):
    gpus = poll("serve()")
    pids = set()
    for _ in range(20):
        reading, host = gpus.wait(host=True)
        assert reading.source == "fake"
        assert host == {"system/asked": 1}
        pids.add(gpus.poller.status()["pid"])
    assert len(pids) == 1


def test_all_who_ask_while_a_poll_is_in_flight_share_the_next(poll, tmp_path, until):
    gate = tmp_path / "gate"
    script = f"""
    first = ask()
    open({str(tmp_path / "asked")!r}, "w").close()
    while not os.path.exists({str(gate)!r}): time.sleep(0.01)
    reply(first)
    second = ask()
    reply(second, problem=json.dumps(second))
    serve()
    """
    gpus = poll(script)
    gpus.ask(gpus=True)
    until((tmp_path / "asked").exists, "the first poll began")
    for _ in range(100):
        assert gpus.ask(gpus=False)
    assert gpus.ask(gpus=True, host=True)
    gate.touch()
    answers = [gpus.next() for _ in range(102)]
    assert gpus.poller.status()["polls"] == 2
    assert '"gpus": true, "host": true' in answers[-1][0].problem  # as much as anyone asked for
    assert all(reading is answers[1][0] for reading, _ in answers[1:])


def test_the_queue_is_bounded_and_asking_never_waits(poll, until):
    gpus, gate, began = poll("serve()"), threading.Event(), threading.Event()
    gpus.poller.ask(True, False, lambda *_: (began.set(), gate.wait(PATIENCE)))
    assert began.wait(PATIENCE)
    assert all(gpus.ask() for _ in range(LONGEST_QUEUE))
    assert not gpus.ask()
    assert gpus.poller.status()["refused"] == 1
    gate.set()
    assert all(gpus.next()[0] for _ in range(LONGEST_QUEUE))


def test_what_follows_may_fail(poll):
    gpus = poll("serve()")
    gpus.poller.ask(True, False, lambda *_: 1 / 0)
    assert gpus.wait()[0].source == "fake"


def test_a_process_that_hangs_is_killed_and_another_one_started(poll, clock, until):
    gpus = poll(HANGS_LATER, deadline=DEADLINE)
    gpus.wait()
    pid = gpus.poller.status()["pid"]
    assert gpus.wait() == (None, {})
    assert not alive(pid)
    status = gpus.poller.status()
    assert (status["timeouts"], status["pid"]) == (1, None)
    assert "no answer for 1 s" in status["problem"]
    clock[0] += 2 * FIRST_DELAY
    assert gpus.wait()[0].source == "fake"
    assert gpus.poller.status()["restarts"] == 1
    assert gpus.poller.status()["problem"] == ""


def test_a_stopped_process_is_killed_like_one_that_hangs(poll):
    gpus = poll("serve()", deadline=DEADLINE)
    gpus.wait()
    pid = gpus.poller.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert gpus.wait() == (None, {})
    assert not alive(pid)


def test_helpers_of_the_process_are_killed_with_it(poll, until):
    script = """
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    reply(ask(), problem=str(helper.pid))
    ask()
    os._exit(3)
    """
    gpus = poll(script)
    helper = int(gpus.wait()[0].problem)
    assert gpus.wait() == (None, {})  # though the helper holds the pipe open
    assert "ended with status 3" in gpus.poller.status()["problem"]
    until(lambda: not alive(helper), "the helper is gone")


def test_a_slow_start_is_no_hang(poll, tmp_path, until):
    gate = tmp_path / "gate"
    gpus = poll(f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\nserve()", deadline=0.05)
    assert gpus.wait() == (None, {})
    pid = gpus.poller.status()["pid"]
    assert alive(pid)
    assert "starting" in gpus.poller.status()["problem"]
    gate.touch()
    until(lambda: gpus.wait()[0], "a reading")
    assert gpus.poller.status()["pid"] == pid


def test_a_start_that_never_ends_is_one(poll, until):
    gpus = poll("time.sleep(600)", deadline=0.05, starting=0.5)
    gpus.wait()
    until(lambda: gpus.wait() == (None, {}) and gpus.poller.status()["pid"] is None, "it is killed")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("ask(); print('Traceback of a driver', flush=True); serve()", "no reply"),
        ("ask(); say([1, 2]); serve()", "no reply"),
        ("reply(ask(), cards=[{'colour': 'red'}]); serve()", "another form"),
        ("reply(ask(), cards=7); serve()", "another form"),
        ("reply(ask(), host={'a': 'b'}); serve()", "another form"),
        ("say({'id': ask()['id']}); serve()", "another form"),
        ("ask(); block = b'x' * 1000000\nfor _ in range(100): os.write(1, block)", "in one line"),
        ("ask(); os.close(1); time.sleep(600)", "closed its pipe"),
        ("ask(); sys.exit('no such module')", "ended with status 1: no such module"),
        ("ask(); os.kill(os.getpid(), 11)", "SIGSEGV"),
        (
            "ask(); import ctypes; sys.stderr.write('double free'); sys.stderr.flush(); os.abort()",
            "double free",
        ),
    ],
)
def test_a_process_that_goes_wrong_costs_one_answer_and_says_why(poll, clock, script, words):
    gpus = poll(script)
    assert gpus.wait() == (None, {})
    assert words in gpus.poller.status()["problem"]
    assert gpus.poller.status()["pid"] is None
    assert gpus.wait() == (None, {})  # at once: it is not yet time for another one
    clock[0] += 2 * FIRST_DELAY
    gpus.wait()
    assert gpus.poller.status()["restarts"] == 1


def test_a_flood_of_words_does_not_hold_it_up(poll):
    gpus = poll("request = ask(); os.write(2, b'chatter ' * 1000000); reply(request); serve()")
    assert gpus.wait()[0].source == "fake"


def test_late_answers_are_nobodys(poll):
    gpus = poll("request = ask(); reply({'id': request['id'] - 1}, source='late'); reply(request); serve()")
    assert gpus.wait()[0].source == "fake"


def test_restarts_are_put_off_ever_longer(poll, clock):
    gpus = poll("sys.exit(3)")
    delay = FIRST_DELAY
    for restarts in range(9):
        gpus.wait()
        assert gpus.poller.status()["restarts"] == restarts
        clock[0] += 0.9 * delay
        gpus.wait()
        assert gpus.poller.status()["restarts"] == restarts
        clock[0] += 0.2 * delay
        delay = min(2 * delay, LONGEST_DELAY)
    assert delay == LONGEST_DELAY


def test_a_process_that_cannot_be_started_is_tried_again(poll, clock):
    gpus = poll()
    gpus.poller._command = ["/nonexistent/python"]
    assert gpus.wait() == (None, {})
    assert "FileNotFoundError" in gpus.poller.status()["problem"]
    gpus.poller._command = [sys.executable, "-c", PRELUDE + "serve()"]
    clock[0] += 2 * FIRST_DELAY
    assert gpus.wait()[0].source == "fake"


def test_no_files_left_to_start_it_is_survived(tmp_path):
    """In a process of its own, whose limit can be spent."""
    script = textwrap.dedent(f"""
        import os, queue, resource, sys
        from rankside_agent.gpu.poller import Poller
        now, answers = [0.0], queue.Queue()
        command = [sys.executable, "-c", {PRELUDE + "serve()"!r}]
        poller = Poller(["fake"], command=command, clock=lambda: now[0])
        def wait():
            assert poller.ask(True, False, lambda reading, host: answers.put(reading))
            return answers.get(timeout={PATIENCE})
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        spent = []
        try:
            while True:
                spent.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        assert wait() is None
        assert "Too many open files" in poller.status()["problem"], poller.status()
        for fd in spent:
            os.close(fd)
        now[0] += 10
        assert wait().source == "fake"
        files = len(os.listdir("/proc/self/fd"))
        poller.close()
        assert len(os.listdir("/proc/self/fd")) < files
        print("survived")
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.stdout == "survived\n", done.stderr


def test_many_restarts_leave_no_file_open(poll, clock):
    gpus = poll("sys.exit(3)")
    gpus.wait()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        clock[0] += 2 * LONGEST_DELAY
        gpus.wait()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_outgrew_itself_is_replaced_without_a_word(poll, until):
    said = []
    gpus = poll(f"reply(ask())\nos._exit({OUTGROWN})", say=said.append)
    assert gpus.wait()[0]
    until(lambda: gpus.poller._process.ended, "it is gone")
    assert gpus.wait()[0]
    assert gpus.poller.status()["restarts"] == 1
    assert said == ["GPUs are read through fake: 0"]


def test_an_idle_process_ends_and_comes_back(poll, until):
    gpus = poll("serve()", idle=0.1)
    gpus.wait()
    until(lambda: gpus.poller.status()["pid"] is None, "it ended")
    assert gpus.wait()[0].source == "fake"
    assert gpus.poller.status()["problem"] == ""


@pytest.mark.parametrize("script", ["serve()", HANGS_LATER, "time.sleep(600)"])
@pytest.mark.parametrize("stopped", [False, True])
def test_closing_ends_thread_and_process_whatever_they_do(poll, until, script, stopped):
    before = len(named())
    gpus = poll(script)
    gpus.ask()
    until(lambda: gpus.poller.status()["pid"], "it was started")
    pid = gpus.poller.status()["pid"]
    if stopped:
        os.kill(pid, signal.SIGSTOP)
    gpus.ask()
    gpus.poller.close()
    gpus.poller.close()
    until(lambda: not alive(pid), "the process is gone")
    until(lambda: len(named()) == before, "the thread is gone")
    gpus.next()
    gpus.next()  # everybody has an answer
    assert not gpus.ask()


def test_closing_does_not_wait_for_what_follows_a_poll(poll, until):
    gpus, gate = poll("serve()"), threading.Event()
    gpus.poller.ask(True, False, lambda *_: gate.wait(PATIENCE))
    until(lambda: gpus.poller.status()["source"], "a reading came")
    pid = gpus.poller.status()["pid"]
    gpus.poller.close()
    until(lambda: not alive(pid), "the process is gone")
    gate.set()


def test_it_may_be_closed_from_its_own_thread(poll, until):
    gpus, done = poll("serve()"), threading.Event()
    gpus.poller.ask(True, False, lambda *_: (gpus.poller.close(), done.set()))
    assert done.wait(PATIENCE)
    until(lambda: not gpus.poller._thread.is_alive(), "the thread is gone")


def test_people_hear_of_each_change_once(poll, clock):
    said = []
    gpus = poll(
        "reply(ask()); reply(ask(), problem='odd'); reply(ask()); reply(ask(), problem='odd')",
        say=said.append,
    )
    for _ in range(4):
        gpus.wait()
    assert said == ["GPUs are read through fake: 0", "odd"]


def test_the_process_knows_no_rank_and_no_mask():
    kept = child_environ(
        {
            "PATH": "/bin",
            "RANK": "3",
            "LOCAL_RANK": "3",
            "HIP_VISIBLE_DEVICES": "0",
            "ROCR_VISIBLE_DEVICES": "GPU-1",
            "CUDA_VISIBLE_DEVICES": "",
            "ROCM_PATH": "/opt/rocm",
        }
    )
    assert kept["PATH"] == "/bin"
    assert kept["ROCM_PATH"] == "/opt/rocm"
    assert not {name for name in kept if "RANK" in name or "VISIBLE" in name}


class Node:
    """The real child over a simulated library, whose rules can be changed between its starts."""

    def __init__(self, poll, rocm, folder, clock):
        self.rules_file, self.clock = folder / "rules", clock
        self.rules()
        environ = simulated.environment(rocm, self.rules_file)
        self.answers = poll(sources=["amdsmi", "nowhere"], environ=environ, starting=1.0, deadline=0.3)

    def rules(self, *lines):
        self.rules_file.write_text("".join(f"{line}\n" for line in lines))

    def status(self):
        return self.answers.poller.status()

    def polled(self):
        """A reading; starts of the process are awaited."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.answers.wait(host=True))[0] is None:
            assert time.monotonic() < deadline, self.status()
            self.clock[0] += 1
        return found


@pytest.fixture
def node(poll, rocm, tmp_path, clock):
    """Without faults."""
    return Node(poll, rocm, tmp_path, clock)


def test_the_real_child_reads_the_real_package(node):
    node.rules("gpus - * 8")
    reading, host = node.polled()
    assert [card.vram.used >> 30 for card in reading.cards] == list(range(1, 9))
    assert host["system/memory_used_gb"] > 0
    assert node.status()["source"] == "amdsmi"


@pytest.mark.parametrize(
    "fault", ["hang amdsmi_get_gpu_memory_usage", "crash amdsmi_init", "hang amdsmi_init"]
)
def test_a_source_that_hangs_or_crashes_twice_is_left_out_for_an_hour(node, until, fault):
    node.rules(f"{fault} * 0")

    def left_out():
        node.answers.wait()
        node.clock[0] += 5
        return node.status()["left_out"] == ["amdsmi"]

    until(left_out, "it is left out")
    reading, _ = node.polled()
    assert reading.problem.startswith("no GPU source works: nowhere: ")  # the next one was asked
    node.rules()
    node.clock[0] += HOUR
    until(lambda: node.polled()[0].source == "amdsmi", "it is tried again")
