"""Which records become points, and under which names."""

from __future__ import annotations

import math

import pytest

from rankside import wire
from rankside.wire import Kind
from rankside_agent.journal import Entry, EntryType, Position, Reader
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.points import End, Notice, Params
from rankside_agent.sinks.translator import Translator


@pytest.fixture
def read(run):
    """All points of the run's journal, and their counts."""

    def read():
        counts = Counts()
        points = Translator(counts, lambda config: not config["disable_tensorboard"], {})
        entries = Reader(run.path / "journal" / "points").read()
        return [point for entry in entries for point in points.of(entry)], counts

    return read


def test_each_kind_of_record_becomes_its_point(run, read):
    channel = run.open(attempt=3)
    run.add(
        channel,
        (Kind.METRICS, (12, {"lm loss": 0.5, "n": 3, "flag": True})),
        (Kind.THROUGHPUT, (12, {"elapsed_s": 0.25, "tflops": 410.0, "seq_length": 4096})),
        (Kind.PARAMS, ({"lr": 0.1},)),
        (Kind.EVENT, ("checkpoint", {"path": "/ckpt"})),
        (Kind.ARTIFACT, ("/trace.json",)),
    )
    run.end(channel, "failed")
    points, counts = read()
    metrics, throughput, params, event, artifact, end = points
    assert metrics[2:] == (12, {"lm loss": 0.5, "n": 3, "flag": 1})
    assert throughput.values == {"iteration-time": 0.25}
    assert isinstance(params, Params)
    assert params.values == {"lr": 0.1}
    assert isinstance(event, Notice)
    assert event[2:] == ("checkpoint", {"path": "/ckpt"})
    assert artifact[2:] == ("artifact", {"path": "/trace.json"})
    assert isinstance(end, End)
    assert end.status == "failed"
    assert {point.source.attempt for point in points} == {3}
    assert counts == Counts(delivered=5)


@pytest.mark.parametrize(
    "other",
    [
        {"rank": 0},
        {"role": "master"},
        {"parent": "node-7"},
        {"world_size": 16},
    ],
)
def test_only_the_last_rank_itself_speaks_for_the_run(run, read, other):
    run.metrics(run.open(**other), 1, loss=-1.0)
    points, counts = read()
    assert not points
    assert counts == Counts(skipped=1)


def test_an_attempt_that_does_not_want_the_tracker_is_passed_over(run, read):
    run.metrics(run.open(attempt=1), 1, loss=1.0)
    run.metrics(run.open(attempt=2, config={"disable_tensorboard": True}), 2, loss=1.0)
    run.metrics(run.open(attempt=3), 3, loss=1.0)
    points, counts = read()
    assert [point.step for point in points] == [1, 3]
    assert counts == Counts(delivered=2, skipped=1)


def test_values_that_are_no_numbers_are_refused_and_the_rest_lands(run, read):
    channel = run.open()
    run.metrics(channel, 1, good=1.0, text="x", none=None, tensor={"?": "Tensor of shape [4]"}, nan=math.nan)
    (point,), counts = read()
    assert sorted(point.values) == ["good", "nan"]
    assert counts == Counts(delivered=1, refused=3)


@pytest.mark.parametrize("step", ["7", 7.5, math.nan, 2**63, [7]])
def test_values_of_an_impossible_step_are_counted_and_put_at_no_other(run, read, step):
    channel = run.open()
    run.metrics(channel, 1, loss=2.0)
    run.metrics(channel, step, loss=1.0, norm=1.0)
    run.metrics(channel, 2, loss=0.5)
    points, counts = read()
    assert [(point.step, point.values) for point in points] == [(1, {"loss": 2.0}), (2, {"loss": 0.5})]
    assert counts == Counts(delivered=2, skipped=1, refused=2)


@pytest.mark.parametrize("step", [0, -5, 7.0, 2**63 - 1])
def test_a_possible_step_is_kept(run, read, step):
    run.metrics(run.open(), step, loss=1.0)
    (point,), _ = read()
    assert point.step == int(step)


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0, 1e300, "now", None])
def test_a_time_that_is_none_becomes_that_of_the_start(run, time):
    channel = run.open()
    body = wire.pack((time, 1, {"loss": 1.0}))
    run.journal.batch(channel, 1, 1, 1, wire.seal(1, Kind.METRICS, body))
    entries = Reader(run.path / "journal" / "points").read()
    points = Translator(Counts(), bool, {})
    (point,) = [point for entry in entries for point in points.of(entry)]
    assert point.time == 1_767_000_000.0


@pytest.mark.parametrize(
    "body",
    [b"\xc1", wire.pack(1), wire.pack((1.0,)), wire.pack((1.0, 2, 3, 4)), wire.pack({})],
)
def test_a_record_nobody_can_read_is_counted_and_passed_over(run, body):
    info = {"channel": "c", "rank": 0, "world_size": 1, "role": "worker", "parent": None}
    payload = b"\0" * 20 + wire.seal(1, Kind.METRICS, body) + wire.seal(2, Kind.CLOSE, body)
    counts = Counts()
    entry = Entry(EntryType.BATCH, 1, payload, Position(1, 0), info)
    assert not list(Translator(counts, lambda _config: True, {}).of(entry))
    assert counts == Counts(failed=1, skipped=1)


def test_a_change_of_module_keeps_the_source(run, read):
    channel = run.open(attempt=2)
    run.metrics(channel, 1, loss=1.0)
    run.journal.module(channel, "sft")
    run.metrics(channel, 2, loss=1.0)
    points, _ = read()
    assert [(point.step, point.source.attempt) for point in points] == [(1, 2), (2, 2)]
