"""Timers of several ranks, in Megatron's three forms and by its levels."""

from __future__ import annotations

import pytest

from rankside_agent.training.timers import timers_text

TIMES = {
    "interval-time": {"0": 1.0, "1": 1.5},
    "forward-backward": {"0": 0.5, "1": 0.75, "10": 0.25},
    "forward-compute": {"0": 0.1},
}
DOTS = "forward-backward ..............................."


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("max", f"max time across ranks (ms):\n    {DOTS}: 750.00"),
        ("minmax", f"(min, max) time across ranks (ms):\n    {DOTS}: (250.00, 750.00)"),
        (
            "all",
            "times across ranks (ms):\n  forward-backward:\n     rank  0: 500.00\n     rank  1: 750.00"
            "\n     rank 10: 250.00",
        ),
    ],
)
def test_each_option_has_megatrons_form(option, shown):
    assert timers_text({"forward-backward": TIMES["forward-backward"]}, 1, option) == shown


@pytest.mark.parametrize(
    ("level", "names"),
    [
        (0, ["interval-time"]),
        (1, ["interval-time", "forward-backward"]),
        (2, ["interval-time", "forward-backward", "forward-compute"]),
    ],
)
def test_a_level_shows_its_timers_and_those_below(level, names):
    text = timers_text(TIMES, level, "all")
    assert [line.strip(" :") for line in text.splitlines()[1:] if "rank" not in line] == names


def test_nothing_to_show_is_no_text():
    assert timers_text({"forward-compute": {"0": 1.0}}, 1, "max") == ""
    assert timers_text({}, 2, "max") == ""
