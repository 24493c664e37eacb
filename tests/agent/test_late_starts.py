"""Ranks that an agent hears of late, out of their order: each is put with those it was started with.

What a killed agent never took lies in spools, of ranks and their forked children, while the next start lives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankside.identity import Hello
from rankside_agent.attempts import Here, claim

House = Any  # of conftest.py
MakeHello = Callable[..., Hello]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "exp"


def test_a_rank_found_after_the_next_start_began_belongs_to_its_own(root: Path, hello: MakeHello):
    assert claim(root, hello(0), Here(False, 0)) == 1
    assert claim(root, hello(0, job="job-2", channel="next"), Here(True, 1)) == 2
    assert claim(root, hello(7), Here(True, 2)) == 1
    assert claim(root, hello(1, job="job-2", channel="next-1"), Here(True, 2)) == 2


def test_without_a_certain_name_it_is_not_looked_for_among_older_ones(root: Path, hello: MakeHello):
    assert claim(root, hello(0, shared_job=False), Here(False, 0)) == 1
    assert claim(root, hello(0, job="job-2", channel="next"), Here(True, 1)) == 2
    assert claim(root, hello(7, shared_job=False), Here(True, 2)) == 3


def test_a_rank_started_again_under_the_same_name_begins_a_new_one_though_older_ones_lack_it(
    root: Path, hello: MakeHello
):
    assert claim(root, hello(0), Here(False, 0)) == 1
    assert claim(root, hello(0, channel="again"), Here(False, 1)) == 2
    assert claim(root, hello(0, channel="and again"), Here(False, 2)) == 3


def test_a_forked_child_that_is_heard_of_first_shares_its_parents_attempt(root: Path, hello: MakeHello):
    child = hello(0, channel="child", parent="here-0-a")
    assert claim(root, child, Here(False, 0)) == 1
    assert claim(root, hello(0), Here(True, 1)) == 1
    assert claim(root, hello(0, channel="second child", parent="here-0-a"), Here(True, 1)) == 1


def test_in_an_agent_children_and_ranks_of_two_starts_come_in_any_order(house: House, hello: MakeHello):
    found = [
        house.open(each)[1].attempt
        for each in (
            hello(3, channel="child", parent="here-3-a"),
            hello(3),
            hello(0, job="job-2", channel="next"),
            hello(0, job="job-2", channel="its child", parent="unheard of"),
            hello(2, channel="another child", parent="here-2-a"),
            hello(2),
        )
    ]
    assert found == [1, 1, 2, 2, 1, 1]
