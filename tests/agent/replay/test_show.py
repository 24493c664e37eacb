"""What a replay says of a tracker while it works."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from rankside_agent.replay.show import Bars, Lines, describe, make


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=100)


def test_points_and_their_rate_while_it_runs():
    assert describe({"state": "running", "points": 12_000}, 10_000, 5.0) == "12,000 points, 2,000/s"
    assert describe({"state": "running", "points": 5}, 0, 0.0) == "5 points"
    assert describe({"state": "done", "points": 5}, 5, 1.0) == "5 points, done"


def test_what_it_waits_for_in_one_harmless_line():
    told = {"state": "waiting", "last_error": "a\nb\x1b[2J" + "x" * 500, "next_try": time.time() + 12.4}
    text = describe(told, 0, 1.0)
    assert text.startswith("waiting, next try in 12 s: a\\nb\\x1b[2J")
    assert len(text) < 250
    assert describe({**told, "next_try": None}, 0, 1.0).startswith("waiting, trying again: ")
    assert describe({"state": "offline", "remark": "sync by hand"}, 0, 1.0).endswith("away: sync by hand")


def test_lines_are_few_and_each_change_of_state_is_one(console):
    lines = make(console, ["tensorboard"])
    assert isinstance(lines, Lines)
    with lines:
        lines.update("tensorboard", {}, 10, "starting")
        for read in range(3):
            lines.update("tensorboard", {"state": "running", "read": read}, 10, "n")
        lines.update("tensorboard", {"state": "waiting", "last_error": "x", "read": 3}, 10, "w")
        lines.update("tensorboard", {"state": "done", "read": 10}, 10, "d")
    assert console.file.getvalue().split("\n")[:-1] == [
        "tensorboard: 0 of 10 records, n",
        "tensorboard: 3 of 10 records, w",
        "tensorboard: 10 of 10 records, d",
    ]


def test_a_terminal_has_bars_that_fit_it():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    bars = make(console, ["tensorboard"])
    assert isinstance(bars, Bars)
    with bars:
        bars.update("tensorboard", {"state": "running", "read": 5_000}, 10_000, "[bold]" + "n" * 200)
    assert "5,000 of 10,000 records" in console.file.getvalue()
    assert "[bold]" in console.file.getvalue()
