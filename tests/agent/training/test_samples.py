"""Samples on their way: which are measured, what waits for what, and what an answer holds."""

from __future__ import annotations

import math
import time

import pytest

from rankside.parameters import PARAMETERS
from rankside.wire import Kind
from rankside_agent.training.memory import GB, Memory
from rankside_agent.training.samples import WAIT, Samples

DEFAULTS = {name: parameter.default for name, parameter in PARAMETERS.items()}
MEMORY = Memory("rocm", 40 * GB, 160 * GB, 80 * GB, 160 * GB, "3")


class Training:
    """The last rank of two, and the GPUs of its node."""

    def __init__(self, resume=None, seq=0, **config):
        self.polls = []
        self.seq = seq
        self.others = {"0"}
        config = {"log_interval": 1, **config}
        self.samples = Samples(
            {**DEFAULTS, **config}, 2, self.polls.append, lambda: self.others, resume or {}
        )

    def metrics(self, step, **values):
        self.seq += 1
        self.samples.take(self.seq, Kind.METRICS, (1e9, step, values), (1, self.seq))

    def sample(self, step, **fields):
        self.seq += 1
        given = {"elapsed_s": 2.0, "global_batch_size": 8, "seq_length": 100, "tflops": 50.0, **fields}
        self.samples.take(self.seq, Kind.THROUGHPUT, (1e9 + self.seq, step, given), (1, self.seq))

    def answers(self, later=0.0):
        return list(self.samples.due(time.monotonic() + later))


def test_an_answer_has_the_line_the_scalars_and_the_sample_it_belongs_to():
    training = Training(log_avg_skip_iterations=0, log_throughput=True, use_rocm_mem_info_iters=[])
    training.metrics(3, **{"lm loss": 2.5})
    training.sample(3)
    (answer,) = training.answers()
    assert (answer.seq, answer.step, answer.time) == (2, 3, 1e9 + 2)
    assert answer.values == {
        "throughput(tflops/sec/gpu)": 50.0,
        "token_throughput(tokens/sec/gpu)": 8 * 100 / 2.0 / 2,
        "average/iteration-time": 2.0,
        "average/throughput(tflops/sec/gpu)": 50.0,
        "average/token_throughput(tokens/sec/gpu)": 200.0,
    }
    assert "tokens/s/GPU inst/harmonic mean: 200.0/200.0" in answer.texts[0]
    assert "lm loss: 2.500000E+00" in answer.texts[0]
    assert training.answers() == []


@pytest.mark.parametrize(
    ("config", "measured"),
    [
        ({"log_throughput": True}, [1, 2]),
        ({"log_throughput": True, "use_rocm_mem_info_iters": [2, 5]}, [2, 5]),
        ({"log_throughput": True, "use_rocm_mem_info_iters": []}, []),
        ({"log_throughput": True, "use_rocm_mem_info": True}, [1, 2, 3, 4, 5]),
        ({"log_throughput": False, "use_rocm_mem_info": True}, []),
    ],
)
def test_gpus_are_asked_on_the_configured_samples_counted_from_the_start(config, measured):
    training = Training(**config)
    asked = []
    for number in range(1, 6):
        before = len(training.polls)
        training.sample(200 + number)  # resumed: the steps are others
        asked += [number] * (len(training.polls) - before)
    assert asked == measured


def test_a_sample_waits_for_its_memory_and_later_ones_for_it():
    training = Training(log_throughput=True, use_rocm_mem_info_iters=[1])
    training.sample(1)
    training.sample(2)
    assert training.answers() == []
    training.polls[0](MEMORY)
    first, second = training.answers()
    assert first.values["rocm_used_mem(GB)"] == 40.0
    assert first.values["rocm_mem_usage(%)"] == 25.0
    assert first.values["rocm_max_used_mem(GB)"] == 80.0
    assert "rank-3 rocm max mem usage/usage_ratio: 80.00GB/50.00%" in first.texts[0]
    assert (
        "rocm mem usage/free/total/usage_ratio: 40.00GB/120.00GB" in second.texts[0]
    )  # repeated in the line
    assert not any("rocm" in name for name in second.values)  # and not as if measured


def test_a_poll_that_never_ends_delays_a_line_by_seconds_and_no_more():
    training = Training(log_throughput=True, use_rocm_mem_info=True)
    training.sample(1)
    assert training.answers(WAIT - 0.5) == []
    (answer,) = training.answers(WAIT + 0.1)
    assert "rocm" not in answer.texts[0]
    training.polls[0](MEMORY)  # late: of no sample any more
    training.sample(2)
    training.polls[1](None)
    assert len(training.answers()) == 1


def test_a_line_comes_every_log_interval_and_scalars_with_every_sample():
    training = Training(log_interval=10)
    for step in range(1, 31):
        training.sample(step)
    answers = training.answers()
    assert [answer.step for answer in answers] == list(range(1, 31))
    assert [answer.step for answer in answers if answer.texts] == [10, 20, 30]


def test_torchtitans_lines_come_at_the_first_step_and_by_its_log_freq():
    training = Training(framework="torchtitan", **{"metrics.log_freq": 4})
    for step in range(1, 10):
        training.sample(step)
    answers = training.answers()
    assert [answer.step for answer in answers if answer.texts] == [1, 4, 8]
    assert answers[0].texts[0].startswith("\x1b[31mstep:  1")


def test_colours_can_be_left_out():
    training = Training(framework="torchtitan", **{"metrics.disable_color_printing": True})
    training.sample(1)
    assert "\x1b" not in training.answers()[0].texts[0]


def test_metrics_of_another_step_are_not_in_the_line():
    training = Training()
    training.metrics(1, **{"lm loss": 1.0})
    training.sample(2)
    training.metrics(3, **{"lm loss": 3.0})
    training.metrics(3, **{"grad norm": 4.0})
    training.sample(3)
    second, third = training.answers()
    assert "lm loss" not in second.texts[0]
    assert "lm loss: 3.000000E+00 | grad norm: 4.000" in third.texts[0]


@pytest.mark.parametrize(
    "params",
    [{"train_iters": 100}, {"training.steps": "100"}, {"training": {"steps": 100}}, {"max_steps": 100}],
)
def test_the_number_of_iterations_is_taken_from_the_parameters(params):
    training = Training(log_progress=True)
    training.seq += 1
    training.samples.take(training.seq, Kind.PARAMS, (1e9, params), (1, 1))
    training.sample(25)
    (answer,) = training.answers()
    assert "iteration       25/     100 |" in answer.texts[0]
    assert answer.texts[1].startswith("progress: iteration 25/100 (25.0%)")
    assert answer.values["progress/percent"] == 25.0
    assert answer.values["progress/eta_s"] == 150.0


def test_timers_of_all_ranks_are_joined_at_their_step():
    training = Training(timing_log_level=2, timing_log_option="minmax")
    for step, other in ((1, 0.2), (2, 0.3)):
        training.samples.take_timers("0", step, {"forward-compute": other})
        training.samples.take_timers("1", step, {"forward-compute": 0.1})
        training.sample(step)
        (answer,) = training.answers()
        assert answer.texts[1].endswith(f"(100.00, {other * 1000:.2f})")


def test_timers_of_a_rank_that_is_late_are_waited_for_and_of_one_that_has_none_are_not():
    training = Training(timing_log_level=2)
    training.others = {"0", "2"}  # rank 2 never reports any
    training.samples.take_timers("0", 1, {"forward-compute": 0.2})
    training.samples.take_timers("1", 1, {"forward-compute": 0.1})
    training.sample(1)
    assert len(training.answers()) == 1
    training.samples.take_timers("1", 2, {"forward-compute": 0.1})
    training.sample(2)
    assert training.answers() == []
    training.samples.take_timers("0", 2, {"forward-compute": 0.4})
    (answer,) = training.answers()
    assert "(100.00, 400.00)" in answer.texts[1]


def test_timers_above_the_level_are_neither_shown_nor_waited_for():
    training = Training(timing_log_level=0)
    training.samples.take_timers("1", 1, {"forward-compute": 0.1})
    training.sample(1)
    assert len(training.answers()[0].texts) == 1


def test_samples_without_a_step_are_counted():
    training = Training(log_interval=2, log_avg_skip_iterations=1)
    for _ in range(4):
        training.sample(None)
    answers = training.answers()
    assert [bool(answer.texts) for answer in answers] == [False, True, False, True]
    assert ["average/iteration-time" in answer.values for answer in answers] == [False, True, True, True]


def test_what_was_answered_tells_how_to_go_on():
    training = Training(log_throughput=True, log_avg_skip_iterations=0, use_rocm_mem_info_iters=[1])
    training.sample(1, elapsed_s=1.0)
    training.polls[0](MEMORY)
    training.sample(2, elapsed_s=3.0)
    answers = training.answers()
    again = Training(
        answers[0].resume,
        seq=1,
        log_throughput=True,
        log_avg_skip_iterations=0,
        use_rocm_mem_info_iters=[1],
    )
    again.sample(2, elapsed_s=3.0)
    assert again.answers() == [answers[1]]
    assert again.polls == []  # the first sample was before


def test_a_record_that_comes_twice_counts_once():
    training = Training()
    training.sample(1)
    training.seq -= 1
    training.sample(1)
    assert len(training.answers()) == 1


def test_an_answer_that_cannot_be_stored_is_given_again():
    training = Training()
    training.sample(1)
    training.sample(2)
    due = training.samples.due(time.monotonic())
    first = next(due)
    due.close()  # as an exception at whoever stores it does
    assert [answer.seq for answer in training.answers()] == [first.seq, first.seq + 1]


@pytest.mark.parametrize(
    "odd",
    [
        {"elapsed_s": math.nan},
        {"elapsed_s": -5.0},
        {"elapsed_s": 0},
        {"elapsed_s": 10**400},
        {"tflops": math.inf},
        {"tflops": "fast"},
        {"global_batch_size": None},
        {"seq_length": [1]},
        {"consumed_samples": math.nan},
        {"train_iters": -1},
        {"hip_free": 5, "hip_total": 1},
    ],
)
def test_odd_values_cost_themselves_only(odd):
    training = Training(log_throughput=True, log_progress=True, log_avg_skip_iterations=0)
    training.sample(1, **odd)
    training.polls[0](None)
    (answer,) = training.answers()
    assert answer.texts
    assert all(math.isfinite(value) and value >= 0 for value in answer.values.values())


def test_no_more_samples_wait_than_there_is_room_for():
    training = Training(log_throughput=True, use_rocm_mem_info=True)
    for step in range(1, 1003):
        training.sample(step)
    assert [answer.step for answer in training.answers()] == [1, 2]
