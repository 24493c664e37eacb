"""Answers to samples in the run's journals and files: each once, whenever the agent dies."""

from __future__ import annotations

import errno
import os
import re
import time

import pytest

from rankside.parameters import PARAMETERS
from rankside.wire import Kind
from rankside_agent.journal import EntryType
from rankside_agent.silence import PATIENCE

DEFAULTS = {name: parameter.default for name, parameter in PARAMETERS.items()}
ON = {**DEFAULTS, "log_interval": 1, "log_throughput": True, "use_rocm_mem_info_iters": []}


def sample(step, **fields):
    return (Kind.THROUGHPUT, (1.7e9 + step, step, {"elapsed_s": 2.0, "tflops": 50.0 + step, **fields}))


def loss(step):
    return (Kind.METRICS, (1.7e9 + step, step, {"lm loss": float(step)}))


@pytest.fixture
def last(house, hello):
    """Opens the last of two ranks, or finds it again."""

    def open_(**config):
        return house.open(hello(1, world_size=2, config={**ON, **config}))

    return open_


def figures(house, run):
    """(step, values) of every answer in the points' journal."""
    values = [e.value() for e in house.entries(run, "points") if e.type == EntryType.FIGURES]
    return [(value["step"], value["values"]) for value in values if value["sample"]]


def lines(house):
    """Steps of the lines in the rank's log."""
    found = house.lines(house.root / "exp/logs/pretrain/rank-1/info.log")
    return [int(step[1]) for line in found if (step := re.match(r" iteration +(\d+) ", line))]


def test_a_sample_is_answered_in_the_rank_s_log_and_for_the_trackers(house, last, sealed):
    run, channel = last()
    run.accept(channel, sealed(1, [loss(3), sample(3)]))
    assert figures(house, run) == [
        (
            3,
            {
                "throughput(tflops/sec/gpu)": 53.0,
                "average/throughput(tflops/sec/gpu)": 53.0,
                "average/iteration-time": 2.0,
            },
        )
    ]
    run.end(channel, "clean")
    house.finish()
    assert lines(house) == [3]
    log = (house.root / "exp/logs/pretrain/rank-1/info.log").read_text()
    assert " compute per GPU (TFLOP/s/GPU): 53.0 (avg 53.0) | lm loss: 3.000000E+00 |" in log


def test_only_the_last_rank_is_answered(house, hello, sealed):
    run, channel = house.open(hello(0, world_size=2, config=ON))
    run.accept(channel, sealed(1, [sample(1)]))
    assert figures(house, run) == []


def test_samples_without_an_answer_are_answered_by_the_next_agent_and_averages_go_on(house, last, sealed):
    config = {"use_rocm_mem_info_iters": [3]}
    run, channel = last(**config)
    for step in (1, 2, 3, 4):  # the third waits for the GPUs, the fourth for the third
        run.accept(channel, sealed(2 * step - 1, [loss(step), sample(step, elapsed_s=float(step))]))
    assert [step for step, _ in figures(house, run)] == [1, 2]
    house.kill()
    house.start()
    run, channel = last(**config)
    run.accept(channel, sealed(9, [loss(5), sample(5, elapsed_s=5.0)]))
    house.polls[-1](None)
    house.tick()
    assert [step for step, _ in figures(house, run)] == [1, 2, 3, 4, 5]
    assert figures(house, run)[-1][1]["average/iteration-time"] == 4.0  # of 3, 4 and 5
    run.end(channel, "clean")
    house.finish()
    assert lines(house) == [1, 2, 3, 4, 5]


def test_a_line_that_was_stored_before_the_agent_died_is_not_stored_again(house, last, sealed, monkeypatch):
    run, channel = last()

    def die(*_anything):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run.accept(channel, sealed(1, [sample(1)]))
    with monkeypatch.context() as patched:
        patched.setattr(run.points, "figures", die)
        with pytest.raises(OSError, match="No space"):
            run.accept(channel, sealed(2, [sample(2)]))
    house.kill()
    house.start()
    run, channel = last()
    house.tick()
    assert [step for step, _ in figures(house, run)] == [1, 2]
    run.end(channel, "clean")
    house.finish()
    assert lines(house) == [1, 2]


def test_what_a_full_disk_did_not_take_is_answered_later(house, last, sealed, monkeypatch):
    run, channel = last()
    run.accept(channel, sealed(1, [sample(1)]))

    def full(*_anything):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(run.logs, "lines", full)
        with pytest.raises(OSError, match="No space"):
            run.accept(channel, sealed(2, [sample(2)]))
    run.accept(channel, sealed(2, [sample(2), sample(3)]))  # the rank sends again
    assert [step for step, _ in figures(house, run)] == [1, 2, 3]


def test_at_the_end_nothing_is_waited_for(house, last, sealed):
    run, channel = last(use_rocm_mem_info=True)
    run.accept(channel, sealed(1, [sample(1), sample(2)]))
    assert figures(house, run) == []
    run.end(channel, "vanished")
    assert [step for step, _ in figures(house, run)] == [1, 2]
    house.polls[0](None)  # too late, and no harm
    house.finish()
    assert lines(house) == [1, 2]


def test_each_attempt_counts_its_own_samples(house, hello, sealed):
    for attempt, first in ((1, 1), (2, 11)):
        channel_name = f"here-1-{attempt}"
        config = {**ON, "use_rocm_mem_info_iters": [1]}
        mine = hello(1, world_size=2, config=config, channel=channel_name, job=f"job-{attempt}")
        run, channel = house.open(mine)
        run.accept(channel, sealed(1, [sample(first), sample(first + 1)]))
        assert len(house.polls) == attempt
        run.end(channel, "clean")
    assert [step for step, _ in figures(house, run)] == [1, 2, 11, 12]


@pytest.mark.parametrize("body", [(1.7e9, 1, None), (1.7e9, 1, 5), (1.7e9,), (), ("x", [1], {"tflops": {}})])
def test_a_stranger_s_sample_costs_a_line_and_no_other_sample(house, last, sealed, body):
    run, channel = last()
    run.accept(channel, sealed(1, [(Kind.THROUGHPUT, body), sample(2)]))
    assert figures(house, run)[-1][0] == 2


def test_figures_of_the_node_go_to_the_living_rank_that_speaks(house, last, hello, sealed):
    run, channel = last()
    house.open(hello(0, world_size=2))
    run.answers.system(1.7e9, None, {"system/cpu_percent": 12.5})
    values = [e.value() for e in house.entries(run, "points") if e.type == EntryType.FIGURES]
    assert [(value["step"], value["values"]) for value in values] == [(None, {"system/cpu_percent": 12.5})]
    run.end(channel, "clean")
    run.answers.system(1.7e9, None, {"system/cpu_percent": 12.5})
    assert len([e for e in house.entries(run, "points") if e.type == EntryType.FIGURES]) == 1


# -- losses of other ranks -----------------------------------------------------------------------------


def said(step, value, rank=0):
    return (Kind.METRICS, (1.7e9 + step, step, {"lm loss": value, "lr": 0.5 + rank}))


def logged(house, module="pretrain"):
    """The texts of the node's log."""
    (path,) = (house.root / "exp/logs" / module).glob("node-*.log")
    return house.lines(path)


@pytest.mark.parametrize("order", ["other first", "last first"])
def test_where_the_last_rank_has_only_a_mark_the_line_has_the_loss_of_another(
    house, last, hello, sealed, order
):
    run, channel = last()
    _, other = house.open(hello(0, world_size=2, config=ON))
    for step in (1, 2):
        theirs, ours = sealed(step, [said(step, 2.0 * step)]), [said(step, -1.0, 1), sample(step)]
        if order == "other first":
            run.accept(other, theirs)
        run.accept(channel, sealed(2 * step - 1, ours))
        if order == "last first":
            assert len(figures(house, run)) == step - 1  # it waits
            run.accept(other, theirs)
            house.tick()
        assert len(figures(house, run)) == step
    run.end(other, "clean")
    run.end(channel, "clean")
    house.finish()
    found = logged(house)
    lines = [line for line in found if line.startswith(" iteration ")]
    assert ["lm loss: 2.000000E+00" in lines[0], "lm loss: 4.000000E+00" in lines[1]] == [True, True]
    assert not any("-1.0" in line for line in lines)
    assert [line for line in found if "counts" in line] == [
        "lm loss: that of rank 0 counts, for rank 1, the last, reports -1"
    ]


def test_a_sample_that_waits_for_a_loss_finds_it_again_after_a_crash(house, last, hello, sealed):
    run, channel = last(use_rocm_mem_info_iters=[1])
    _, other = house.open(hello(0, world_size=2, config=ON))
    run.accept(channel, sealed(1, [said(1, -1.0, 1), sample(1)]))  # waits for the GPUs
    run.accept(other, sealed(1, [said(1, 2.0)]))
    house.kill()
    house.start()
    (run,) = house.registry.runs.values()
    channel = next(each for each in run.living() if each.speaks)
    run.end(channel, "clean")
    for each in run.living():
        run.end(each, "clean")
    house.finish()
    found = logged(house)
    assert any(line.startswith(" iteration ") and "lm loss: 2.000000E+00" in line for line in found)
    assert sum("counts" in line for line in found) == 1


def test_a_silent_last_rank_is_told_of_in_the_node_s_log(house, last, hello, sealed):
    run, channel = last()
    _, other = house.open(hello(0, world_size=2, config=ON))
    run.accept(other, sealed(1, [said(1, 2.0), said(2, 3.0)]))
    now = time.monotonic()
    for seconds in (0.0, PATIENCE, 3 * PATIENCE):
        channel.progress.beat_at = now + seconds
        run.tick(now + seconds)
    run.accept(channel, sealed(1, [sample(2)]))
    run.end(other, "clean")
    run.end(channel, "clean")
    house.finish()
    found = logged(house)
    assert found.count("rank 1, the last, has sent no metrics for 30 s: those of rank 0 count") == 1
    (line,) = [line for line in found if line.startswith(" iteration ")]
    assert "learning rate: 5.000000E-01 | lm loss: 3.000000E+00" in line


def test_a_last_rank_that_ends_before_anybody_speaks_is_told_of_when_somebody_does(
    house, last, hello, sealed
):
    run, channel = last()
    _, other = house.open(hello(0, world_size=2, config=ON))
    run.end(channel, "clean")
    for step in (1, 2):
        run.accept(other, sealed(step, [said(step, 2.0)]))
    run.end(other, "clean")
    house.finish()
    assert logged(house).count("rank 1, the last, has ended without metrics: those of rank 0 count") == 1
