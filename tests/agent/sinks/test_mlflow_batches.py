"""Only a verdict on an entry itself leaves it out; a failure, however long, leaves out nothing."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from rankside_agent.sinks import mlflow_batches, mlflow_suspects
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.mlflow_batches import Batches
from rankside_agent.sinks.mlflow_errors import Away, Broken, Misplaced, Refused
from rankside_agent.sinks.mlflow_suspects import Suspects


class Server:
    """A run's place in a tracker, as `Batches` sees it; `answer` may raise at a request."""

    id = "run"

    def __init__(self):
        self.tracker = self
        self.answer = lambda _kind, _items: None
        self.now = 0.0
        self.stored = []
        self.requests = 0
        self.suspects = Suspects(lambda: self.now)
        self.counts = Counts()

    def gone(self):
        return False

    def misfits(self, _run_id, _kind, _names):
        return {}

    def log_batch(self, _run_id, kind, items):
        self.requests += 1
        self.answer(kind, items)
        self.stored += [item for item in items if item not in self.stored]

    def deliver(self, metrics=(), tags=()):
        """As the sink does after each failure: made anew, all comes again."""
        self.counts = Counts(points=len(metrics))
        batches = Batches(self, self.counts, self.suspects)
        for metric in metrics:
            batches.metric(*metric)
        for key, value in tags:
            batches.tag(key, value)
        batches.flush()

    def tries(self, number, seconds, **what):
        """How many of so many tries failed, one each so many seconds."""
        failed = 0
        for _ in range(number):
            self.now += seconds
            try:
                self.deliver(**what)
            except Away:
                failed += 1
            else:
                break
        return failed


@pytest.fixture
def server():
    return Server()


def rows(number):
    return [("loss", float(step), step, step) for step in range(number)]


def fail(_kind, _items):
    raise Broken("(sqlite3.OperationalError) database is locked")


def failing_at(text, error=Broken):
    def answer(_kind, items):
        if text in repr(items):
            raise error(text)

    return answer


@pytest.mark.parametrize("hours", [0.05, 24])
def test_metrics_that_the_server_fails_at_for_long_are_all_delivered_later(server, hours):
    server.deliver(metrics=rows(10), tags=[("a", "1")])

    def answer(kind, items):
        if kind == "metrics":
            fail(kind, items)

    server.answer = answer
    tries = int(hours * 60) + 20
    assert server.tries(tries, 60.0, metrics=rows(500), tags=[("a", "1")]) == tries
    server.answer = lambda _kind, _items: None
    server.deliver(metrics=rows(500), tags=[("a", "1")])
    assert sorted(step for *_, step in server.stored if isinstance(step, int)) == list(range(500))
    assert (server.counts.points, server.counts.refused) == (500, 0)


@pytest.mark.parametrize("chance", [0.3, 0.7, 0.95])
def test_a_server_that_fails_now_and_then_gets_everything(server, chance):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)

    def answer(kind, items):
        if dice.random() < chance:
            fail(kind, items)

    server.answer = answer
    server.tries(200, 60.0, metrics=rows(64))
    server.answer = lambda _kind, _items: None
    server.deliver(metrics=rows(64))
    assert len(server.stored) == 64
    assert server.counts.refused == 0


def test_a_large_request_that_fails_only_for_its_size_is_sent_in_parts(server):
    def answer(kind, items):
        if len(items) > 10:
            fail(kind, items)

    server.answer = answer
    assert server.tries(100, 10.0, metrics=rows(100)) == mlflow_suspects.LOOKED_INTO - 1
    assert len(server.stored) == 100


def test_what_alone_fails_for_many_minutes_beside_others_that_land_is_left_out_alone(server, caplog):
    server.answer = failing_at("poison")
    poisoned = [("good", "1"), ("bad", "poison"), ("fine", "2")]
    failed = server.tries(1000, 30.0, tags=poisoned, metrics=rows(3))
    assert failed * 30.0 >= mlflow_suspects.SECONDS
    assert failed >= mlflow_suspects.TIMES
    assert set(server.stored) == {*rows(3), ("good", "1"), ("fine", "2")}
    assert server.counts.refused == 1
    assert caplog.text.count("left out") == 1
    server.answer = lambda _kind, _items: None
    server.deliver(tags=[("bad", "another")])
    assert ("bad", "another") in server.stored


def test_what_fails_in_a_hurry_is_no_verdict(server):
    server.answer = failing_at("poison")
    assert server.tries(200, 1.0, tags=[("good", "1"), ("bad", "poison")]) == 200
    assert server.counts.refused == 0


def test_what_is_accepted_once_begins_anew(server):
    server.answer = failing_at("poison")
    what = [("good", "1"), ("bad", "poison")]
    assert server.tries(15, 60.0, tags=what) == 15 > mlflow_suspects.LOOKED_INTO
    server.answer = lambda _kind, _items: None
    server.deliver(tags=what)
    server.answer = failing_at("poison")
    assert server.tries(8, 600.0, tags=what) == 8


def test_without_a_neighbour_that_lands_nothing_is_left_out(server):
    server.answer = failing_at("poison")
    assert server.tries(100, 600.0, tags=[("bad", "poison")]) == 100


def test_a_refused_value_is_left_out_and_its_name_is_asked_for_again(server):
    def answer(_kind, items):
        if any(math.isnan(value) for _, value, _, _ in items):
            raise Refused("INVALID_PARAMETER_VALUE: NaN")

    server.answer = answer
    some = [("loss", math.nan if step % 7 == 3 else 1.0, step, step) for step in range(500)]
    for _ in range(2):
        server.deliver(metrics=some)
        assert len(server.stored) == server.counts.points == sum(step % 7 != 3 for step in range(500))
        assert server.counts.refused == 500 - len(server.stored)


def test_a_verdict_on_the_place_is_none_on_the_values(server):
    server.answer = failing_at("loss", Misplaced)
    with pytest.raises(Away):
        server.deliver(metrics=rows(1))
    assert server.counts.refused == 0


def test_so_many_refusals_that_it_looks_like_a_hang_are_spread_over_tries(server, monkeypatch):
    monkeypatch.setattr(mlflow_batches, "MOST_REFUSED", 100)
    server.answer = failing_at("odd", Refused)
    metrics = [("odd", 1.0, step, step) for step in range(350)] + rows(10)
    asked = []
    while len(server.stored) < 10 and len(asked) < 10:
        server.tries(1, 60.0, metrics=metrics)
        asked.append(server.requests)
    assert all(after - before < 400 for before, after in pairwise([0, *asked]))
    assert server.stored == rows(10)
    assert server.counts.refused == 350
