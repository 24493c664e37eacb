"""A last rank that has nothing to say is told from one whose words are still on their way."""

from __future__ import annotations

import pytest

from rankside_agent.progress import Channel
from rankside_agent.silence import PATIENCE, Silence


@pytest.fixture
def ranks(hello):
    """The first and the last of two ranks."""
    return [Channel(rank + 1, hello(rank, world_size=2), 1, last=10) for rank in range(2)]


def beat(channel, now, sent=10):
    channel.progress.beat_at, channel.progress.sent = now, sent


def found(silence, now, ranks):
    return [channel.hello.rank for channel in silence.found(now, ranks)]


def test_it_is_told_once_others_were_heard_alone_for_long(ranks):
    silence, (first, last) = Silence(), ranks
    first.progress.metrics_at = 100.0
    assert found(silence, 101.0, ranks) == []
    beat(last, 101.0 + PATIENCE)
    assert found(silence, 101.0 + PATIENCE, ranks) == [1]
    assert found(silence, 200.0, ranks) == []  # nothing was said since
    first.progress.metrics_at = 210.0
    assert found(silence, 211.0, ranks) == []
    beat(last, 211.0 + PATIENCE)
    assert found(silence, 211.0 + PATIENCE, ranks) == [1]


@pytest.mark.parametrize(("sent", "late"), [(11, 0.0), (10, 60.0)])
def test_a_rank_that_has_more_on_its_way_or_shows_no_life_is_not_silent(ranks, sent, late):
    silence, (first, last) = Silence(), ranks
    first.progress.metrics_at = 100.0
    found(silence, 101.0, ranks)
    beat(last, 101.0 + PATIENCE - late, sent)
    assert found(silence, 101.0 + PATIENCE, ranks) == []


def test_a_rank_that_speaks_is_not_silent(ranks):
    silence, (first, last) = Silence(), ranks
    for second in range(100, 200):
        first.progress.metrics_at = last.progress.metrics_at = float(second)
        beat(last, second)
        assert found(silence, second + 0.5, ranks) == []


def test_a_rank_that_has_ended_is_not_told_of(ranks):
    silence, (first, last) = Silence(), ranks
    first.progress.metrics_at, last.ended = 100.0, True
    assert found(silence, 101.0, ranks) + found(silence, 200.0, ranks) == []
