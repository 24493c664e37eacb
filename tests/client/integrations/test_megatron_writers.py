"""Writers with Megatron's call shapes."""

from __future__ import annotations

import argparse

import pytest

from rankside.integrations.megatron_writers import Run, writer_class
from rankside.integrations.scalars import Scalars


class SummaryWriter:
    """Stands for torch's, whose constructor opens files."""

    def __init__(self):
        raise AssertionError("not to be called")

    def add_histogram(self, *_):
        raise AssertionError("needs what the constructor makes")

    def close(self):
        raise AssertionError("needs what the constructor makes")


class Earlier:
    """A writer, or a run, that was there before."""

    log_dir = "/theirs"

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.calls.append((name, args, kwargs))


@pytest.fixture
def board(told):
    return writer_class(SummaryWriter)(Scalars(told))


@pytest.fixture
def run(told):
    return Run(Scalars(told))


def test_it_is_a_summary_writer_whose_parent_was_never_made(board):
    assert isinstance(board, SummaryWriter)
    board.flush()
    board.close()
    assert board.get_logdir() == "/exp/tensorboard"


def test_where_torch_has_none_it_is_one_of_its_own(told):
    writer_class(None)(Scalars(told)).add_scalar("lm loss", 1.0, 7)
    assert told.points("lm loss") == [(7, 1.0)]


def test_scalars_by_position_or_by_name(board, told):
    board.add_scalar("lm loss", 9.1, 12)
    board.add_scalar("grad-norm", 2.5, global_step=12, walltime=0.0)
    board.add_scalar("no step", 1)
    board.add_scalars("group", {"a": 1.0, "b": 2.0}, 12)
    assert told.of("metrics") == [
        (12, {"lm loss": 9.1}),
        (12, {"grad-norm": 2.5}),
        (None, {"no step": 1}),
        (12, {"group/a": 1.0, "group/b": 2.0}),
    ]


def test_texts_are_parameters_but_for_those_told_already(told):
    board = writer_class(SummaryWriter)(Scalars(told), None, {"lr": 0.1})
    board.add_text("lr", "0.1", global_step=0)
    board.add_text("note", "hello", global_step=0)
    board.add_hparams({"width": 8}, {"best": 1.0})
    assert told.of("params") == [{"note": "hello"}, {"width": 8}]


def test_pictures_are_not_drawn_and_said_so_once(board, capfd):
    board.add_histogram("weights", [1, 2, 3], 12)
    board.add_histogram("weights", [1, 2, 3], 13)
    assert capfd.readouterr().err.count("add_histogram") <= 1


def test_an_earlier_writer_gets_every_call_as_it_was(told):
    earlier = Earlier()
    board = writer_class(SummaryWriter)(Scalars(told), earlier)
    board.add_scalar("lm loss", 9.1, 12)
    board.add_scalar("lm loss vs samples", 9.1, 1536)
    board.add_text("a", "b", global_step=0)
    board.add_histogram("weights", [1], 12)
    board.flush()
    assert [name for name, *_ in earlier.calls] == [
        *("add_scalar", "add_scalar", "add_text", "add_histogram", "flush")
    ]
    assert earlier.calls[0] == ("add_scalar", ("lm loss", 9.1, 12), {})
    assert board.get_logdir() == "/theirs"


def test_a_step_that_is_none_harms_nothing(board, told, unfit):
    board.add_scalar("lm loss", 1.0, unfit)
    board.add_scalar(unfit, 1.0, 12)
    board.add_scalar("lm loss", unfit, 13)
    assert told.points("lm loss") == [(13, unfit)]  # the monitor refuses it, as any value


def test_wandb_equals_the_module_of_that_name(run):
    import types

    assert run == types.ModuleType("wandb")
    assert run != types.ModuleType("other")
    assert (run == None) is False  # noqa: E711  as Megatron's timers ask where there is no wandb
    assert len({run}) == 1


def test_wandb_logs_with_a_step_in_either_form(run, told):
    run.log({"lm loss": 9.1}, 12)
    run.log({"a": 1.0, "group": {"b": 2.0}}, step=13)
    run.log({"no step": 1.0})
    assert told.of("metrics") == [
        (12, {"lm loss": 9.1}),
        (13, {"a": 1.0, "group/b": 2.0}),
        (None, {"no step": 1.0}),
    ]


def test_what_the_board_was_given_wandb_tells_no_more(told):
    scalars = Scalars(told)
    board, run = writer_class(SummaryWriter)(scalars), Run(scalars)
    board.add_scalar("lm loss", 9.1, 12)
    board.add_scalar("lm loss vs samples", 9.1, 1536)
    run.log({"lm loss": 9.1}, 12)
    run.log({"samples vs steps": 1536}, 12)
    assert told.of("metrics") == [(12, {"lm loss": 9.1}), (12, {"samples vs steps": 1536})]


def test_wandbs_configuration_is_parameters(run, told):
    run.config.update({"slurm_job_name": "x"}, allow_val_change=True)
    run.config.update(argparse.Namespace(lr=0.1))
    run.config["seed"] = 1
    assert told.of("params") == [{"slurm_job_name": "x"}, {"lr": 0.1}, {"seed": 1}]


def test_a_saved_checkpoint_is_an_event(run, told):
    """As megatron.training.wandb_utils calls it."""
    artifact = run.Artifact("run", type="model", metadata={"iteration": 7})
    artifact.add_reference("file:///ckpt/iter_7", checksum=False)
    artifact.add_file("/ckpt/latest.txt")
    run.run.log_artifact(artifact, aliases=["iter_7"])
    assert f"{run.run.entity}/{run.run.project}" == "rankside/exp"
    ((name, fields),) = told.of("event")
    assert name == "artifact"
    assert fields["title"] == "run"
    assert fields["references"] == ["file:///ckpt/iter_7", "/ckpt/latest.txt"]


def test_everything_else_of_wandb_may_be_called(run):
    assert run.define_metric("*", step_metric="x") is None
    assert run.run.use_artifact("a:b") is None
    run.finish()
    with pytest.raises(AttributeError):
        run.__wrapped__  # noqa: B018  as copy and inspect ask


def test_an_earlier_run_gets_every_call_as_it_was(told):
    earlier = Earlier()
    run = Run(Scalars(told), earlier)
    run.log({"lm loss": 9.1}, 12)
    run.finish()
    run.define_metric("x")
    assert [name for name, *_ in earlier.calls] == ["log", "finish", "define_metric"]
    assert run == earlier
