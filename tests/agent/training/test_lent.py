"""Whose loss the training line shows, and what is told of it: pipelines of every shape."""

from __future__ import annotations

import pytest

from rankside_agent.training import lent
from rankside_agent.training.lent import Known, Lent


class Node:
    """The last of four ranks, 3, and the others of its node."""

    def __init__(self, known=None, world_size=4):
        self.known = known or Known()
        self.told, self.changes = [], 0
        self.lent = Lent("3", world_size, self.known, self.changed, lambda *line: self.told.append(line))

    def changed(self):
        self.changes += 1

    def line(self, step, **own):
        """The last rank's metrics of a step, then what its line shows."""
        mine = self.lent.own(step, own) if own else {}
        return self.lent.filled(step, mine)


def test_a_mark_is_replaced_by_the_loss_of_the_rank_that_has_one_and_told_once():
    node = Node()
    for step in (1, 2):
        node.lent.hear("0", step, {"loss": float(step), "lr": 1.0})
        node.lent.hear("1", step, {"loss": -1.0})
        assert node.line(step, loss=-1.0, grad=0.5) == {"loss": float(step), "grad": 0.5}
    assert node.told == [(20, "INFO", "loss: that of rank 0 counts, for rank 3, the last, reports -1")]
    assert node.known.lenders == {"loss": "0"}


def test_a_mark_that_nobody_replaces_is_no_loss():
    assert Node().line(1, loss=-1.0, grad=0.5) == {"grad": 0.5}


@pytest.mark.parametrize("values", [{"loss": 2.5}, {"loss": 0.0}])
def test_the_last_rank_s_own_loss_goes_before_all_others(values):
    node = Node()
    node.lent.hear("0", 1, {"loss": 9.0})
    assert node.line(1, **values) == values
    node.lent.hear("0", 2, {"loss": 9.0})
    assert node.line(2, loss=-1.0) == {"loss": -1.0}  # of a rank that has had others, it is one
    assert node.told == []


def test_alone_minus_one_is_a_loss_like_any_other():
    assert Node(world_size=1).line(1, loss=-1.0) == {"loss": -1.0}


def test_a_loss_that_the_last_rank_never_names_is_lent_once_it_has_gone_on():
    node = Node()
    for step in (1, 2, 3):
        node.lent.hear("0", step, {"loss": float(step)})
        assert node.line(step, grad=0.5) == {"loss": float(step), "grad": 0.5}
        assert len(node.told) == (step == 3)
    assert node.told[0][2] == "loss: that of rank 0 counts, for rank 3, the last, reports none"


def test_the_first_rank_that_had_a_loss_goes_on_lending_it():
    node = Node()
    node.lent.hear("2", 1, {"loss": 1.5})
    assert node.line(1, loss=-1.0) == {"loss": 1.5}
    node.lent.hear("0", 2, {"loss": 7.0})
    node.lent.hear("2", 2, {"loss": 1.25})
    assert node.line(2, loss=-1.0) == {"loss": 1.25}


def test_of_a_silent_last_rank_one_other_speaks_the_lowest_that_has_a_loss():
    node = Node()
    node.lent.hear("0", 1, {"loss": -1.0, "lr": 1.0})
    node.lent.hear("2", 1, {"loss": 3.0, "lr": 2.0})
    node.lent.hear("1", 1, {"loss": 2.0, "lr": 1.5})
    node.lent.silent(30.0)
    node.lent.silent(30.0)
    text = "rank 3, the last, has sent no metrics for 30 s: those of rank 1 count"
    assert node.told == [(30, "WARNING", text)]
    assert node.line(1) == {"loss": 2.0, "lr": 1.5}
    node.lent.hear("0", 2, {"loss": 8.0})
    node.lent.hear("1", 2, {"lr": 1.25})
    assert node.line(2) == {"lr": 1.25}
    assert node.line(3, loss=4.0) == {"loss": 4.0}  # it speaks after all
    assert node.known.deputy == ""


def test_a_last_rank_that_ended_without_a_word_is_told_of_so():
    node = Node()
    node.lent.hear("0", 1, {"loss": 3.0})
    node.lent.ended()
    assert node.told == [
        (30, "WARNING", "rank 3, the last, has ended without metrics: those of rank 0 count")
    ]


def test_a_last_rank_that_falls_silent_is_told_of_once_until_it_speaks():
    node = Node()
    node.line(1, loss=1.0)
    for _ in range(2):
        node.lent.silent(30.0)
    node.line(2, loss=1.0)
    node.lent.silent(30.0)
    text = "rank 3, the last, has sent no metrics for 30 s, while others of this node do"
    assert node.told == [(30, "WARNING", text)] * 2


def test_a_line_waits_for_a_loss_as_long_as_a_rank_may_still_send_one():
    node, ranks = Node(), {"0", "1", "3"}
    node.lent.hear("0", 1, {"lr": 1.0})
    own = node.lent.own(2, {"loss": -1.0})
    assert node.lent.lacks(2, own, ranks)
    node.lent.hear("0", 2, {"loss": -1.0})
    assert node.lent.lacks(2, own, ranks)
    assert not node.lent.lacks(2, own, {"0", "3"})  # rank 1 has ended
    node.lent.hear("1", 2, {"loss": 2.0})
    assert not node.lent.lacks(2, own, ranks)


@pytest.mark.parametrize("own", [{"loss": 1.0}, {"grad": 1.0}])
def test_nothing_is_waited_for_where_the_last_rank_has_a_loss_or_there_never_was_one(own):
    node = Node()
    node.lent.hear("0", 1, {"lr": 1.0})
    assert not node.lent.lacks(2, node.lent.own(2, own), {"0", "1", "3"})


def test_after_a_few_lines_in_vain_nothing_is_waited_for_until_a_loss_comes():
    node = Node()
    for step in range(lent._VAIN):
        own = node.lent.own(step, {"loss": -1.0})
        assert node.lent.lacks(step, own, {"0"})
        node.lent.waited(step, own)
    assert not node.lent.lacks(9, node.lent.own(9, {"loss": -1.0}), {"0"})


def test_what_is_known_outlives_the_agent():
    node = Node()
    node.lent.hear("0", 1, {"loss": 2.0})
    node.line(1, loss=-1.0, other_loss=2.0)
    again = Node(Known.of(node.known.plain()))
    again.lent.hear("0", 2, {"loss": 3.0, "other_loss": 9.0})
    assert again.line(2, loss=-1.0) == {"loss": 3.0}
    assert again.told == []
    assert node.changes == 2


def test_others_metrics_are_held_up_to_a_number_of_values(monkeypatch):
    monkeypatch.setattr(lent, "MOST_HELD", 10)
    node = Node()
    for step in range(1000):
        node.lent.hear("0", step, {"loss": 1.0, "lr": 1.0})
    assert len(node.lent._held) <= 6
    assert node.line(999, grad=1.0) == {"grad": 1.0, "loss": 1.0}
    node.line(1000, loss=1.0)
    node.lent.hear("0", 1001, {"loss": 1.0, "lr": 1.0})
    assert node.lent._size == 0
