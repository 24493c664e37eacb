"""Which rank's metrics count, with ranks that have no loss, or nothing to say at all."""

from __future__ import annotations

import pytest

from rankside.wire import Kind
from rankside_agent.journal import Reader
from rankside_agent.loss import is_loss
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.points import Notice, Scalars
from rankside_agent.sinks.speaker import MOST_HELD
from rankside_agent.sinks.translator import Translator


class Listener:
    """Reads the run's journal on, and keeps what was said."""

    def __init__(self, run, elsewhere=lambda _source: False):
        self.reader = Reader(run.path / "journal" / "points")
        self.counts = Counts()
        self.translator = Translator(self.counts, lambda _config: True, {}, elsewhere)
        self.points = []

    def read(self):
        """What is new in the journal."""
        while entries := self.reader.read():
            for entry in entries:
                self.points += self.translator.of(entry)
        return self

    def shown(self, name):
        """(step, value, rank's label) of a metric."""
        scalars = [point for point in self.points if isinstance(point, Scalars)]
        return [(p.step, p.values[name], p.source.label) for p in scalars if name in p.values]

    def sources(self):
        """The notices about who speaks."""
        return [point.fields for point in self.points if isinstance(point, Notice)]


@pytest.fixture
def listener(run):
    return Listener(run)


@pytest.mark.parametrize("world_size", [8, 16])
def test_under_pipeline_parallelism_the_last_rank_has_the_loss(run, listener, world_size):
    ranks = [run.open(rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in range(1, 6):
        for rank, channel in enumerate(ranks):
            last = rank == world_size - 1
            values = {"loss": 1 / step} if last else {"loss": -1.0} if rank % 2 else {}
            run.metrics(channel, step, **values)
    shown = listener.read().shown("loss")
    assert shown == [(step, 1 / step, str(world_size - 1)) for step in range(1, 6)]
    assert listener.translator.settled
    assert not listener.sources()
    assert (listener.counts.delivered, listener.counts.skipped) == (5, 5 * (world_size - 1))


@pytest.mark.parametrize("ahead", [True, False])
def test_where_the_last_rank_has_only_the_mark_another_ranks_loss_counts(run, listener, ahead):
    first, last = run.open(rank=0), run.open(rank=7)
    for step in range(1, 6):
        for channel in (first, last) if ahead else (last, first):
            run.metrics(channel, step, **{"lm loss": -1.0 if channel == last else 2.0, "grad norm": 1.0})
    listener.read()
    assert listener.shown("lm loss") == [(step, 2.0, "0") for step in range(1, 6)]
    assert listener.shown("grad norm") == [(step, 1.0, "7") for step in range(1, 6)]
    assert listener.sources() == [{"rank": "0", "metrics": "lm loss"}]
    assert listener.counts.refused == 5


def test_where_the_last_rank_goes_on_without_a_loss_another_ranks_counts(run, listener):
    first, last = run.open(rank=0), run.open(rank=7)
    for step in range(1, 9):
        run.metrics(first, step, loss=float(step))
        run.metrics(last, step, tps=1.0)
    assert listener.read().shown("loss")[:6] == [(step, float(step), "0") for step in range(1, 7)]
    run.end(last)
    assert listener.read().shown("loss") == [(step, float(step), "0") for step in range(1, 9)]
    assert listener.translator.settled


def test_under_data_parallelism_nothing_is_said_twice_whoever_is_ahead(run, listener):
    ranks = [run.open(rank=rank) for rank in range(8)]
    for channel in ranks:  # rank 0 is done before the last one has begun
        for step in range(1, 40):
            run.metrics(channel, step, loss=1.0, tps=5.0)
    listener.read()
    assert listener.shown("loss") == [(step, 1.0, "7") for step in range(1, 40)]
    assert listener.counts == Counts(delivered=39, skipped=39 * 7)


def test_a_loss_of_minus_one_counts_once_the_rank_has_had_another(run, listener):
    last = run.open(rank=7)
    for step, value in enumerate((-1.0, 0.5, -1.0)):
        run.metrics(last, step, loss=value)
    assert listener.read().shown("loss") == [(1, 0.5, "7"), (2, -1.0, "7")]


def test_in_a_world_of_one_minus_one_is_a_loss(run, listener):
    run.metrics(run.open(rank=0, world_size=1), 1, loss=-1.0)
    assert listener.read().shown("loss") == [(1, -1.0, "0")]


def test_a_last_rank_that_says_nothing_is_spoken_for(run, listener):
    first, second, last = run.open(rank=0), run.open(rank=1), run.open(rank=7)
    for step in range(3):
        run.metrics(first, step, loss=1.0, tps=3.0)
        run.metrics(second, step, loss=-1.0)
    assert not listener.read().points
    assert not listener.translator.settled
    run.time += 3600.0  # hours alone say nothing: a backlog may come in rank by rank
    run.metrics(first, 3, loss=1.0)
    assert not listener.read().points
    run.journal.silent(last)
    run.metrics(second, 3, loss=2.0)
    assert [step for step, *_ in listener.read().shown("loss")] == [0, 1, 2, 3]
    assert len(listener.shown("tps")) == 3
    run.metrics(last, 4, loss=5.0)
    run.metrics(first, 5, loss=6.0)
    assert listener.read().shown("loss")[4:] == [(4, 5.0, "7")]


@pytest.mark.parametrize("before", [True, False])
def test_a_last_rank_that_ended_without_a_word_is_spoken_for_at_once(run, listener, before):
    first, last = run.open(rank=0), run.open(rank=7)
    if before:
        run.end(last)
    run.metrics(first, 1, loss=1.0)
    if not before:
        run.end(last)
    run.metrics(first, 2, loss=1.0)
    assert listener.read().shown("loss") == [(1, 1.0, "0"), (2, 1.0, "0")]


def test_what_waits_for_a_decision_is_bounded(run, listener):
    first = run.open(rank=0)
    values = {f"loss {number}": 1.0 for number in range(1000)}
    for step in range(MOST_HELD // 1000 + 2):
        run.metrics(first, step, **values)
    assert len(listener.read().shown("loss 0")) == MOST_HELD // 1000 + 2


def test_a_backlog_that_comes_in_rank_by_rank_is_said_once(run, listener):
    """Without an agent for a day, and then each rank's spool after the other's."""
    first, last = run.open(rank=0), run.open(rank=7)
    for channel in (first, last):
        run.time = 1_767_000_000.0
        for step in range(3000):
            run.time += 30.0
            run.metrics(channel, step, loss=1.0, tps=2.0)
    assert listener.read().shown("loss") == [(step, 1.0, "7") for step in range(3000)]
    assert not listener.sources()


def test_a_record_without_a_step_waits_for_the_last_ranks_next_words_only(run, listener):
    first, last = run.open(rank=0), run.open(rank=7)
    run.metrics(last, 10, loss=1.0)
    run.metrics(first, None, **{"initial eval loss": 3.0})
    run.metrics(last, 11, loss=1.0)
    assert not listener.read().translator.settled
    run.metrics(last, 12, loss=1.0)
    assert listener.read().translator.settled
    assert listener.shown("initial eval loss") == [(None, 3.0, "0")]


def test_once_the_last_rank_has_ended_what_it_lacks_is_taken_from_others_at_once(run, listener):
    first, last = run.open(rank=0), run.open(rank=7)
    run.metrics(last, 1, tps=1.0)
    run.end(last)
    run.metrics(first, 1, loss=2.0, tps=9.0)
    assert listener.read().shown("loss") == [(1, 2.0, "0")]
    assert listener.shown("tps") == [(1, 1.0, "7")]
    assert listener.translator.settled


def test_a_rank_that_is_silent_after_its_first_words_is_lent_what_others_have(run, listener):
    first, last = run.open(rank=0), run.open(rank=7)
    run.metrics(last, 0, startup=1.0)
    run.metrics(first, 1, loss=2.0)
    run.journal.silent(last)
    run.metrics(first, 2, loss=3.0)
    assert listener.read().shown("loss") == [(1, 2.0, "0"), (2, 3.0, "0")]


def test_every_rank_is_heard_under_its_name_where_that_is_asked_for(run, listener):
    config = {"metrics.save_for_all_ranks": True}
    first, last = run.open(rank=0, config=config), run.open(rank=7, config=config)
    run.metrics(first, 1, loss=2.0)
    run.metrics(last, 1, loss=1.0)
    run.add(first, (Kind.THROUGHPUT, (1, {"elapsed_s": 0.5})), (Kind.EVENT, ("checkpoint", {})))
    listener.read()
    assert listener.shown("rank-0/loss") == [(1, 2.0, "0")]
    assert listener.shown("loss") == [(1, 1.0, "7")]
    assert listener.shown("rank-0/iteration-time") == [(1, 0.5, "0")]
    assert [p.source.aside for p in listener.points] == [True, False, True]
    assert (listener.counts.delivered, listener.counts.skipped) == (3, 1)


def test_a_decision_outlives_the_process(run, listener):
    first, last = run.open(rank=0), run.open(rank=7)
    run.metrics(last, 1, loss=-1.0)
    run.metrics(first, 1, loss=3.0)
    state = listener.read().translator.state()
    listener.translator = Translator(listener.counts, lambda _config: True, state)
    run.metrics(first, 2, loss=3.0)
    assert listener.read().shown("loss") == [(1, 3.0, "0"), (2, 3.0, "0")]


def test_the_loss_scale_is_no_loss():
    assert is_loss("lm loss")
    assert is_loss("loss_metrics/global_avg_loss")
    assert not is_loss("loss scale")


def test_words_beside_a_last_rank_on_another_node_do_not_wait_for_ever(run):
    listener = Listener(run, elsewhere=lambda source: source.attempt == 1)
    first = run.open(rank=0)
    for step in range(1, 4):
        run.metrics(first, step, loss=1.0)
    assert not listener.read().translator.settled
    run.end(first)
    assert listener.read().translator.settled
    assert not listener.points
    assert listener.counts.skipped == 3
