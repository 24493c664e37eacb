"""One source is chosen, and another only when it fails for good."""

from __future__ import annotations

import logging

import pytest

from rankside_agent.gpu.card import Card
from rankside_agent.gpu.choice import AGAIN, FAILURES, Choice
from rankside_agent.gpu.source import Source, Unavailable


class Bench:
    """Sources whose behaviour is set by name, and what happened to them."""

    def __init__(self):
        self.broken = {}  # name -> the error that open and read raise
        self.readable = {}  # name -> the error that read alone raises
        self.happened = []
        self.now = 0.0

    def load(self, wanted):
        bench = self

        class Fake(Source):
            name = wanted

            def open(self):
                bench.did("open", wanted, bench.broken)

            def read(self):
                bench.did("read", wanted, {**bench.broken, **bench.readable})
                return [Card(name=wanted)]

            def close(self):
                bench.happened.append(("close", wanted))

        return Fake

    def did(self, what, name, faults):
        self.happened.append((what, name))
        if name in faults:
            raise faults[name]

    def choice(self, *names):
        return Choice(names, lambda name: self.happened.append(("try", name)), self.load, lambda: self.now)


@pytest.fixture
def bench():
    """All sources work."""
    return Bench()


def test_the_first_that_works_is_read_and_opened_once(bench):
    bench.broken["amdsmi"] = Unavailable("no library")
    choice = bench.choice("amdsmi", "sysfs", "nvml")
    readings = [choice.read() for _ in range(3)]
    assert [reading.source for reading in readings] == ["sysfs"] * 3
    assert readings[0].cards == (Card(name="sysfs"),)
    assert bench.happened.count(("open", "sysfs")) == 1
    assert ("try", "nvml") not in bench.happened


def test_each_source_is_announced_before_it_is_touched(bench):
    bench.broken["amdsmi"] = Unavailable("no library")
    bench.choice("amdsmi", "sysfs").read()
    assert bench.happened[:4] == [("try", "amdsmi"), ("open", "amdsmi"), ("try", "sysfs"), ("open", "sysfs")]


def test_a_source_that_fails_once_is_opened_anew_in_the_same_read(bench):
    choice = bench.choice("amdsmi", "sysfs")
    choice.read()
    bench.readable["amdsmi"] = Unavailable("reset")
    bench.happened.clear()
    broken = choice.read()
    assert broken.problem == "amdsmi: reset"
    assert [what for what, _ in bench.happened] == ["read", "close", "try", "open", "read"]
    bench.readable.clear()
    assert choice.read().source == "amdsmi"


def test_the_third_failure_in_a_row_takes_the_next_source(bench):
    choice = bench.choice("amdsmi", "sysfs")
    choice.read()
    bench.readable["amdsmi"] = Unavailable("reset")
    assert [choice.read().cards for _ in range(FAILURES)] == [()] * FAILURES
    assert choice.read().source == "sysfs"
    bench.readable.clear()
    assert choice.read().source == "sysfs"  # and stays there


def test_failures_that_are_not_in_a_row_change_nothing(bench):
    choice = bench.choice("amdsmi", "sysfs")
    for _ in range(3 * FAILURES):
        bench.readable["amdsmi"] = Unavailable("reset")
        choice.read()
        bench.readable.clear()
        assert choice.read().source == "amdsmi"


def test_where_none_works_each_reason_is_said_once_and_none_is_asked_for_five_minutes(bench, caplog):
    caplog.set_level(logging.INFO)
    bench.broken.update(amdsmi=Unavailable("no\nlibrary"), sysfs=OSError("gone"))
    choice = bench.choice("amdsmi", "sysfs")
    for _ in range(100):
        reading = choice.read()
        bench.now += AGAIN / 101
    assert reading.problem == "no GPU source works: amdsmi: no library; sysfs: OSError: gone"
    assert bench.happened.count(("open", "amdsmi")) == 1
    bench.now += AGAIN
    choice.read()
    assert bench.happened.count(("open", "amdsmi")) == 2
    assert len(caplog.records) == 1
    bench.broken.clear()
    bench.now += AGAIN
    assert choice.read().source == "amdsmi"


def test_a_source_that_cannot_be_loaded_is_passed_over(bench):
    def load(name):
        if name == "amdsmi":
            raise KeyError("ROCM_PATH")
        return bench.load(name)

    assert Choice(["amdsmi", "sysfs"], load=load).read().source == "sysfs"


def test_no_source_at_all_is_a_problem_and_no_error(bench):
    assert bench.choice().read().problem == "no GPU source is left to try"
