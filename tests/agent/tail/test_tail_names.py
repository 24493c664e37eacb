"""Rotated files sort in the order of writing, and no other file is taken for one."""

from __future__ import annotations

import pytest

from rankside_agent.tail.names import LIVE, join, split

STAMP = "2026-12-02_07-18-53_159741"


@pytest.mark.parametrize(
    ("name", "stem", "order", "packed"),
    [
        ("debug.log", "debug", LIVE, False),
        (f"debug.{STAMP}.log", "debug", (STAMP, 0), False),
        (f"debug.{STAMP}.log.gz", "debug", (STAMP, 0), True),
        (f"debug.{STAMP}.2.log", "debug", (STAMP, 2), False),
        (f"node-a.example.org.{STAMP}.log.gz", "node-a.example.org", (STAMP, 0), True),
        ("node-10.0.0.7.log", "node-10.0.0.7", LIVE, False),
    ],
)
def test_a_name_comes_apart_and_together(name: str, stem: str, order: tuple[str, int], packed: bool) -> None:
    assert split(name) == (stem, order, packed)
    assert join(stem, order, packed=packed) == name


@pytest.mark.parametrize(
    "name",
    [
        "debug.log.gz",
        "debug.log.1",
        "debug.txt",
        f".debug.{STAMP}.log.gz.new",
        f"debug.{STAMP}.log.gz.part",
        ".log",
        "",
    ],
)
def test_other_files_are_no_logs(name: str) -> None:
    assert split(name) is None


def test_files_sort_by_stamp_then_count_and_the_live_one_last() -> None:
    orders = [LIVE, (STAMP, 10), ("2026-12-02_07-18-53_159742", 0), (STAMP, 2), (STAMP, 0)]
    assert sorted(orders) == [(STAMP, 0), (STAMP, 2), (STAMP, 10), ("2026-12-02_07-18-53_159742", 0), LIVE]
