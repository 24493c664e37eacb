"""A source that hung twice is left out, and comes back."""

from __future__ import annotations

from rankside_agent.gpu.blame import HOUR, Blame


def test_a_source_is_left_out_after_two_within_an_hour_and_for_an_hour():
    now = [0.0]
    blame = Blame(["amdsmi", "sysfs"], lambda: now[0])
    blame.on("amdsmi")
    assert blame.trusted() == ["amdsmi", "sysfs"]
    now[0] += 60
    blame.on("amdsmi")
    assert blame.trusted() == ["sysfs"]
    assert blame.left_out() == ["amdsmi"]
    now[0] += HOUR - 61
    assert blame.left_out() == ["amdsmi"]
    now[0] += 1
    assert blame.trusted() == ["amdsmi", "sysfs"]


def test_rare_trouble_leaves_nothing_out():
    now = [0.0]
    blame = Blame(["amdsmi"], lambda: now[0])
    for _ in range(100):
        blame.on("amdsmi")
        now[0] += HOUR
    assert blame.trusted() == ["amdsmi"]


def test_a_name_that_is_no_source_is_nobodys_blame():
    blame = Blame(["sysfs"])
    for _ in range(3):
        blame.on("")
    assert blame.trusted() == ["sysfs"]
