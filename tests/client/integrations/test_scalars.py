"""What was told already is not told again."""

from __future__ import annotations

import math

from rankside.integrations.scalars import SAMPLES, Scalars


class Tensor:
    """A value that may not be looked into."""

    def __eq__(self, other):
        raise AssertionError("it would wait for a GPU")

    __hash__ = object.__hash__


def test_a_value_comes_once_a_step(told):
    scalars = Scalars(told)
    for value in (0.5, 0.5, math.nan, math.nan, 0.25):
        scalars.send({"loss": value}, 1)
    scalars.send({"loss": 0.25}, 2)
    assert [value for step, value in told.points("loss") if step == 1][::2] == [0.5, 0.25]
    assert len(told.points("loss")) == 4


def test_a_tensor_is_known_again_without_being_looked_into(told):
    scalars, tensor = Scalars(told), Tensor()
    scalars.send({"loss": tensor}, 1)
    scalars.send({"loss": tensor}, 1)
    scalars.send({"loss": Tensor()}, 1)
    assert len(told.points("loss")) == 2


def test_a_tensor_is_not_held(told):
    import weakref

    scalars, tensor = Scalars(told), Tensor()
    gone = weakref.ref(tensor)
    scalars.send({"loss": tensor}, 1)
    told.calls.clear()
    del tensor
    assert gone() is None


def test_twins_over_samples_are_left_out_and_the_samples_told_once(told):
    scalars = Scalars(told)
    for name in ("lm loss", "grad-norm"):
        scalars.send({name: 1.0}, 7)
        scalars.send({f"{name} vs samples": 1.0}, 896)
    assert told.of("metrics") == [(7, {"lm loss": 1.0}), (7, {SAMPLES: 896}), (7, {"grad-norm": 1.0})]


def test_a_twin_that_comes_first_is_left_out_all_the_same(told):
    Scalars(told).send({"lm loss vs samples": 1.0}, 896)
    assert told.calls == []


def test_a_less_exact_source_fills_only_what_is_missing(told):
    scalars = Scalars(told)
    scalars.send({"lm loss": 9.10}, 12)
    scalars.fill({"lm loss": 9.15, "num-zeros": 3.0}, 12)
    assert told.of("metrics") == [(12, {"lm loss": 9.10}), (12, {"num-zeros": 3.0})]


def test_without_a_step_nothing_can_be_told_apart(told):
    scalars = Scalars(told)
    scalars.send({"x": 1.0, "x vs samples": 2.0})
    scalars.send({"x": 1.0})
    assert told.of("metrics") == [(None, {"x": 1.0, "x vs samples": 2.0}), (None, {"x": 1.0})]


def test_what_is_set_aside_is_kept_for_its_step(told):
    scalars = Scalars(told, aside=("iteration-time",))
    scalars.send({"iteration-time": 1.5}, 12)
    assert told.calls == []
    assert scalars.kept("iteration-time", 12) == 1.5
    assert scalars.kept("iteration-time", 13) is None
