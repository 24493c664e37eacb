"""A Trainer's events, in the order and with the arguments of transformers' own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import rankside
from rankside.integrations.huggingface import TrainerCalls


@pytest.fixture
def args():
    return SimpleNamespace(
        to_dict=lambda: {"learning_rate": 0.1, "max_steps": -1},
        output_dir="/exp/checkpoints",
        train_batch_size=4,
        gradient_accumulation_steps=2,
        world_size=8,
    )


@pytest.fixture
def state():
    return SimpleNamespace(global_step=0, max_steps=100, epoch=0.5, total_flos=0.0)


def go(calls: TrainerCalls, args, state, steps: int) -> None:
    for _ in range(steps):
        state.global_step += 1
        state.total_flos += 1e12
        calls.on_step_end(args, state, None)


def test_arguments_and_the_models_configuration_are_parameters(told, args, state):
    model = SimpleNamespace(config=SimpleNamespace(to_dict=lambda: {"n_embd": 32}))
    TrainerCalls(told).on_train_begin(args, state, None, model=model)
    TrainerCalls(told).on_train_begin(args, state, None, model=object())
    assert told.of("params") == [
        {"learning_rate": 0.1, "max_steps": -1, "model": {"n_embd": 32}},
        {"learning_rate": 0.1, "max_steps": -1},
    ]


def test_logs_are_metrics_under_their_own_names_and_words_are_left_out(told, args, state):
    calls = TrainerCalls(told)
    calls.on_train_begin(args, state, None)
    go(calls, args, state, 2)
    calls.on_log(args, state, None, logs={"loss": 2.5, "learning_rate": 0.1, "note": "x", "none": None})
    calls.on_log(args, state, None)
    assert told.of("metrics") == [(2, {"loss": 2.5, "learning_rate": 0.1})]


def test_a_training_steps_log_brings_the_speed_since_the_last(told, args, state):
    calls = TrainerCalls(told)
    calls.on_train_begin(args, state, None)
    go(calls, args, state, 4)
    calls.on_log(args, state, None, logs={"loss": 2.5})
    calls.on_log(args, state, None, logs={"eval_loss": 2.5})
    go(calls, args, state, 2)
    calls.on_evaluate(args, state, None)
    calls.on_log(args, state, None, logs={"loss": 2.0})
    first, second = told.of("throughput")
    assert first[0] == 4
    assert first[1]["global_batch_size"] == 64
    assert first[1]["train_iters"] == 100
    assert first[1]["elapsed_s"] > 0
    # 1e12 operations a step of all 8 ranks
    assert first[1]["tflops"] == pytest.approx(1 / 8 / first[1]["elapsed_s"])
    assert second[0] == 6
    assert second[1]["tflops"] == pytest.approx(1 / 8 / second[1]["elapsed_s"])


def test_a_checkpoint_is_an_event_and_chosen_files_of_it_artifacts(told, args, state):
    state.global_step = 7
    TrainerCalls(told, ["trainer_state.json"]).on_save(args, state, None)
    assert told.of("event") == [("checkpoint", {"path": "/exp/checkpoints/checkpoint-7", "step": 7})]
    assert told.of("artifact") == ["/exp/checkpoints/checkpoint-7/trainer_state.json"]


def test_the_end_is_an_event_and_the_monitor_stays_open(told, args, state):
    TrainerCalls(told).on_train_end(args, state, None)
    assert told.calls == [("event", ("training end", {"step": 0, "epoch": 0.5}))]


def test_arguments_that_fail_harm_nothing(told, unfit, state):
    calls = TrainerCalls(told)
    for event in ("on_train_begin", "on_step_end", "on_log", "on_save", "on_evaluate", "on_train_end"):
        assert getattr(calls, event)(unfit, unfit, None) is None


def test_without_a_monitor_every_event_does_nothing(args, state):
    calls = TrainerCalls(rankside.NoMonitor(), ["x"])
    calls.on_train_begin(args, state, None)
    go(calls, args, state, 1)
    calls.on_log(args, state, None, logs={"loss": 1.0})
    calls.on_save(args, state, None)
    calls.on_train_end(args, state, None)
