"""What is remembered of tags: enough to see where a new attempt goes back, and no more."""

from __future__ import annotations

import json

from rankside_agent.sinks import event_tags
from rankside_agent.sinks.event_tags import Tags


def made(**steps):
    tags = Tags({})
    for name, step in steps.items():
        tags.note(name, 1, step, 0.5)
    return tags


def test_going_back_is_told_from_going_on_and_from_repeating():
    tags = made(loss=211, load=0)
    assert tags.beyond(["load", "loss"], attempt=2, step=200)
    assert not tags.beyond(["loss"], attempt=2, step=211)
    assert not tags.beyond(["load", "new"], attempt=2, step=0)


def test_an_attempts_own_points_are_nothing_to_go_back_over():
    tags = made(loss=211)
    assert not tags.beyond(["loss"], attempt=1, step=5)
    assert tags.furthest(1) == -1
    assert tags.furthest(2) == 211


def test_the_same_point_is_known_to_the_digit():
    tags = Tags({})
    tags.note("nan", 1, 5, float("nan"))
    tags.note("loss", 1, 5, 0.5)
    assert tags.same("nan", 2, 5, float("nan"))
    assert tags.same("loss", 2, 5, 0.5)
    assert not tags.same("loss", 2, 5, 0.25)
    assert not tags.same("loss", 2, 6, 0.5)
    assert not tags.same("loss", 1, 5, 0.5)


def test_what_was_replaced_is_gone():
    tags = made(loss=211, load=0)
    tags.cut(200)
    assert tags.furthest(2) == 199
    assert not tags.same("loss", 2, 199, 0.5)
    assert tags.same("load", 2, 0, 0.5)


def test_it_is_the_same_after_a_restart():
    tags = Tags(json.loads(json.dumps(made(loss=211).plain())))
    assert tags.beyond(["loss"], attempt=2, step=200)


def test_beyond_its_bounds_it_says_that_it_is_not_all():
    for names in ([f"n{number}" for number in range(event_tags.MOST + 1)], ["n" * 250_000]):
        tags = made(**dict.fromkeys(names, 1))
        assert not tags.complete
        assert tags.plain() is None
        assert not Tags(tags.plain()).complete
