"""The node's gauges in the loop: answers come from a thread and are given in the loop, runs by the clock."""

from __future__ import annotations

import threading

from rankside_agent.gauges import Gauges, Seen
from rankside_agent.gpu.card import Card, Reading
from rankside_agent.gpu.kfd import Topology

AMD = Reading("amdsmi", 1.7e9, (Card(pci="0000:05:00.0"),))
NVIDIA = Reading("nvml", 1.7e9, (Card(pci="0000:17:00.0", vendor="nvidia"),))
TOPOLOGY = Topology(hidden=(3,))


class Asked:
    """Stands for the poller: keeps what was asked."""

    def __init__(self, takes=True):
        self.takes = takes
        self.asked = []
        self.closed = False

    def ask(self, gpus, host, then):
        if self.takes:
            self.asked.append((gpus, host, then))
        return self.takes

    def status(self):
        return {"source": "amdsmi"}

    def close(self):
        self.closed = True


class Watching:
    """A run."""

    def __init__(self, wants=True):
        self.wants = wants
        self.got = []

    def wants_system(self):
        return self.wants

    def system(self, at, seen, host):
        self.got.append((seen, host))


def gauges(poller, seconds=15.0):
    woken = threading.Event()
    return Gauges(woken.set, seconds, poller, lambda: TOPOLOGY), woken


def test_an_answer_waits_for_the_loop_which_is_woken():
    poller, got = Asked(), []
    made, woken = gauges(poller)
    made.poll(got.append)
    ((gpus, host, then),) = poller.asked
    assert (gpus, host) == (True, False)
    thread = threading.Thread(target=then, args=(AMD, {}))
    thread.start()
    thread.join(10)
    assert woken.is_set()
    assert got == []
    made.settle()
    assert got == [Seen(AMD, TOPOLOGY)]


def test_amd_s_topology_is_read_only_where_there_are_its_gpus():
    poller, got = Asked(), []
    made, _ = gauges(poller)
    for reading in (NVIDIA, Reading(problem="no GPU source works"), None):
        made.poll(got.append)
        poller.asked[-1][2](reading, {})
    made.settle()
    assert got == [Seen(NVIDIA), Seen(Reading(problem="no GPU source works")), None]


def test_where_no_more_questions_are_taken_the_answer_is_none():
    made, woken = gauges(Asked(takes=False))
    got = []
    made.poll(got.append)
    made.settle()
    assert got == [None]
    assert woken.is_set()


def test_runs_that_want_it_are_looked_for_by_the_clock():
    poller = Asked()
    made, _ = gauges(poller, 15.0)
    wanting, other = Watching(), Watching(wants=False)
    made.tick(100.0, [other])
    assert poller.asked == []
    made.tick(101.0, [wanting, other])
    made.tick(102.0, [wanting, other])
    assert [(gpus, host) for gpus, host, _ in poller.asked] == [(True, True)]
    poller.asked[0][2](AMD, {"system/cpu_percent": 1.0})
    made.settle()
    assert wanting.got == [(Seen(AMD, TOPOLOGY), {"system/cpu_percent": 1.0})]
    assert other.got == []
    made.tick(116.5, [wanting])
    assert len(poller.asked) == 2


def test_with_0_seconds_nobody_looks():
    poller = Asked()
    made, _ = gauges(poller, 0.0)
    made.tick(100.0, [Watching()])
    assert poller.asked == []


def test_it_ends_with_the_poller():
    poller = Asked()
    made, _ = gauges(poller)
    assert made.status() == {"source": "amdsmi"}
    made.close()
    assert poller.closed
