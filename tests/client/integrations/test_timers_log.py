"""Megatron's record of its timers, in its three forms."""

from __future__ import annotations

import pytest

from rankside.integrations import timers_log


def dotted(name: str) -> str:
    return (name + " ").ljust(48, ".")


def test_of_the_shortest_and_longest_time_the_longest_counts():
    text = "\n".join(
        [
            "(min, max) time across ranks (ms):",
            f"    {dotted('forward-backward')}: (10.00, 12.50)",
            f"    {dotted('train/valid/test-data-iterators-setup')}: (0.01, 2.00)",
            f"    {dotted('a-name-that-is-longer-than-the-forty-eight-characters')}: (1.00, 3.00)",
        ]
    )
    assert timers_log.parse(text, 0) == {
        "forward-backward": 0.0125,
        "train/valid/test-data-iterators-setup": 0.002,
        "a-name-that-is-longer-than-the-forty-eight-characters": 0.003,
    }


def test_the_longest_time_alone():
    text = f"max time across ranks (ms):\n    {dotted('optimizer')}: 7.25"
    assert timers_log.parse(text, 3) == {"optimizer": 0.00725}


def test_of_all_ranks_times_this_ranks_own():
    text = "\n".join(
        [
            "times across ranks (ms):",
            "  forward-compute:",
            "     rank  0: 5.00",
            "     rank  1: 6.00",
            "  optimizer:",
            "     rank  1: 8.00",
            "  only-elsewhere:",
            "     rank 10: 9.00",
        ]
    )
    assert timers_log.parse(text, 1) == {"forward-compute": 0.006, "optimizer": 0.008}
    assert timers_log.parse(text, 10) == {"only-elsewhere": 0.009}


@pytest.mark.parametrize(
    "text", ["", "loading", "max time across ranks (ms):", "times across ranks (ms):\nx"]
)
def test_anything_else_is_empty(text):
    assert timers_log.parse(text, 0) == {}
