"""The table of parameters: names, defaults and choices are those users know from Primus."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rankside import parameters
from rankside.parameters import PARAMETERS

# As the module configurations of Primus have them (Megatron-LM flat, TorchTitan with a dot)
DEFAULTS = {
    "sink_level": None,
    "file_sink_level": "DEBUG",
    "stderr_sink_level": "INFO",
    "disable_wandb": True,
    "wandb_project": None,
    "wandb_exp_name": None,
    "wandb_entity": None,
    "wandb_save_dir": None,
    "metrics.enable_wandb": False,
    "disable_tensorboard": True,
    "tensorboard_dir": None,
    "tensorboard_log_interval": 1,
    "tensorboard_queue_size": 1000,
    "log_timers_to_tensorboard": False,
    "log_batch_size_to_tensorboard": False,
    "log_learning_rate_to_tensorboard": True,
    "log_validation_ppl_to_tensorboard": False,
    "log_memory_to_tensorboard": False,
    "log_world_size_to_tensorboard": False,
    "log_loss_scale_to_tensorboard": True,
    "metrics.enable_tensorboard": False,
    "metrics.save_tb_folder": "tb",
    "disable_mlflow": True,
    "mlflow_run_name": None,
    "mlflow_experiment_name": None,
    "mlflow_upload_traces": False,
    "mlflow_upload_logs": False,
    "mlflow_upload_performance_metrics": False,
    "log_interval": 100,
    "log_throughput": False,
    "log_avg_skip_iterations": 2,
    "log_avg_reset_interval": 10,
    "log_params_norm": False,
    "log_num_zeros_in_grad": False,
    "log_progress": False,
    "timing_log_level": 0,
    "timing_log_option": "minmax",
    "metrics.log_freq": 10,
    "metrics.disable_color_printing": False,
    "metrics.save_for_all_ranks": False,
    "profile": False,
    "use_pytorch_profiler": False,
    "profile_ranks": [0],
    "profile_step_start": 10,
    "profile_step_end": 12,
    "record_memory_history": False,
    "memory_snapshot_path": "snapshot.pickle",
    "disable_profiler_activity_cpu": False,
    "torch_profiler_record_shapes": True,
    "torch_profiler_with_stack": True,
    "torch_profiler_use_gzip": False,
    "profiling.enable_profiling": False,
    "profiling.profile_freq": 10,
    "profiling.enable_memory_snapshot": False,
    "profiling.save_memory_snapshot_folder": "memory_snapshot",
    "profiling.save_traces_folder": "profile_traces",
    "framework": "megatron",
    "use_rocm_mem_info": False,
    "use_rocm_mem_info_iters": [1, 2],
}
GOOD = {
    "BOOL": [(True, True), ("true", True), (" Yes ", True), (1, True), ("0", False), ("False", False)],
    "COUNT": [(0, 0), (7, 7), ("12", 12), (3.0, 3)],
    "POSITIVE": [(1, 1), ("12", 12)],
    "TEXT": [("x", "x"), ("", "")],
    "LEVEL": [("debug", "DEBUG"), (" Warn ", "WARN"), ("CRITICAL", "CRITICAL")],
    "COUNTS": [([0, 3], [0, 3]), ((1,), [1]), ([], []), (["4"], [4])],
}
BAD = {
    "BOOL": [None, 2, "on and off", "", [], 1.5],
    "COUNT": [None, -1, 1.5, "x", True, "", [], float("nan"), float("inf"), 2**70, {}],
    "POSITIVE": [None, 0, "0", -1, True],
    "TEXT": [7, True, [], {}, b"x"],
    "LEVEL": ["LOUD", 10, "", [], True],
    "COUNTS": [None, 5, "12", [-1], [1.5], ["x"], [None], b"1", [[1]]],
}


def test_every_row_has_the_default_users_know():
    assert {name: row.default for name, row in PARAMETERS.items()} == DEFAULTS


def test_every_default_is_allowed():
    for name, row in PARAMETERS.items():
        assert row.default is None or row.kind.check(row.default) == row.default, name


@pytest.mark.parametrize("kind", GOOD)
def test_each_kind_makes_good_values_plain(kind):
    for given, made in GOOD[kind]:
        found = getattr(parameters, kind).check(given)
        assert (type(found), found) == (type(made), made), given


@pytest.mark.parametrize("kind", BAD)
def test_each_kind_refuses_bad_values(kind):
    for given in BAD[kind]:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            getattr(parameters, kind).check(given)


def test_an_option_is_one_of_its_names():
    kind = PARAMETERS["timing_log_option"].kind
    assert kind.choices == "max, minmax, all"
    assert kind.check("all") == "all"
    with pytest.raises(ValueError):
        kind.check("min")


def test_a_path_is_a_text(here):
    assert parameters.TEXT.check(here) == str(here)


def test_the_example_holds_every_parameter_with_its_default():
    written = yaml.safe_load((Path(__file__).parents[2] / "configs/run.yaml").read_text())
    flat = {}
    for name, value in written.items():
        inner = value if isinstance(value, dict) else None
        flat.update({f"{name}.{sub}": item for sub, item in inner.items()} if inner else {name: value})
    assert flat == {name: parameter.default for name, parameter in PARAMETERS.items()}
