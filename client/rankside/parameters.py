"""The parameters a Primus module configuration holds for monitoring: name, default, what is allowed.

Names and defaults are those of the AMD Primus front end (Megatron-LM flat, TorchTitan with a dot). One
table, so that validation, suggestions, documentation and tests all derive from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

LEVELS = {
    "TRACE": 5,
    "DEBUG": 10,
    "INFO": 20,
    "SUCCESS": 25,
    "WARNING": 30,
    "WARN": 30,
    "ERROR": 40,
    "CRITICAL": 50,
}
# Primus' frameworks, and the form of training line that each gets; those without one of their own, Megatron's
FRAMEWORKS = {
    "megatron": "megatron",
    "torchtitan": "torchtitan",
    "light-megatron": "megatron",
    "megatron_bridge": "megatron",
    "hybrid_models": "megatron",
    "hummingbirdxt": "megatron",
    "maxdiffusion": "megatron",
    "maxtext": "megatron",
    "nemo_automodel": "megatron",
    "specforge": "megatron",
}


class Kind(NamedTuple):
    """What a value may be: `check` returns it made plain or raises ValueError; `choices` says it in words."""

    choices: str
    check: Callable[[Any], Any]


def _boolean(value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = words.get(str(value).strip().lower())
    if found is None:
        raise ValueError
    return found


def _count(value: Any) -> int:
    if isinstance(value, str) and not value.strip().lstrip("+-").isdecimal():
        value = float(value)  # 1e3 of a variable, which is text
    if isinstance(value, bool) or int(value) != float(value) or not 0 <= int(value) < 2**63:
        raise ValueError
    return int(value)


def _positive(value: Any) -> int:
    number = _count(value)
    if not number:
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        raise ValueError
    return str(value)


def _folder(value: Any) -> str:
    name = _text(value)
    if not name or name.startswith("/") or "\0" in name or ".." in name.split("/"):
        raise ValueError
    return name


def _level(value: Any) -> str:
    name = str(value).strip().upper()
    if name not in LEVELS:
        raise ValueError
    return name


def _counts(value: Any) -> list[int]:
    if isinstance(value, str | bytes):
        raise ValueError
    return [_count(item) for item in value]


def _one_of(*names: str) -> Kind:
    def check(value: Any) -> Any:
        if value not in names:
            raise ValueError
        return value

    return Kind(", ".join(names), check)


def _framework(value: Any) -> str:
    return FRAMEWORKS[value]


BOOL = Kind("true, false", _boolean)
COUNT = Kind("a whole number from 0", _count)
POSITIVE = Kind("a whole number from 1", _positive)
TEXT = Kind("a text", _text)
FOLDER = Kind("a folder inside exp_root: a relative path without ..", _folder)
LEVEL = Kind(", ".join(LEVELS), _level)
FRAMEWORK = Kind("megatron, torchtitan", _framework)
COUNTS = Kind("a list of whole numbers from 0", _counts)


class Parameter(NamedTuple):
    """One row of the table. A default of None means that None is allowed."""

    default: Any
    kind: Kind


PARAMETERS: dict[str, Parameter] = {
    # logging
    "sink_level": Parameter(None, LEVEL),
    "file_sink_level": Parameter("DEBUG", LEVEL),
    "stderr_sink_level": Parameter("INFO", LEVEL),
    # W&B
    "disable_wandb": Parameter(True, BOOL),
    "wandb_project": Parameter(None, TEXT),
    "wandb_exp_name": Parameter(None, TEXT),
    "wandb_entity": Parameter(None, TEXT),
    "wandb_save_dir": Parameter(None, TEXT),
    "metrics.enable_wandb": Parameter(False, BOOL),
    # TensorBoard
    "disable_tensorboard": Parameter(True, BOOL),
    "tensorboard_dir": Parameter(None, TEXT),
    "tensorboard_log_interval": Parameter(1, POSITIVE),
    "tensorboard_queue_size": Parameter(1000, POSITIVE),
    "log_timers_to_tensorboard": Parameter(False, BOOL),
    "log_batch_size_to_tensorboard": Parameter(False, BOOL),
    "log_learning_rate_to_tensorboard": Parameter(True, BOOL),
    "log_validation_ppl_to_tensorboard": Parameter(False, BOOL),
    "log_memory_to_tensorboard": Parameter(False, BOOL),
    "log_world_size_to_tensorboard": Parameter(False, BOOL),
    "log_loss_scale_to_tensorboard": Parameter(True, BOOL),
    "metrics.enable_tensorboard": Parameter(False, BOOL),
    "metrics.save_tb_folder": Parameter("tb", FOLDER),
    # MLflow
    "disable_mlflow": Parameter(True, BOOL),
    "mlflow_run_name": Parameter(None, TEXT),
    "mlflow_experiment_name": Parameter(None, TEXT),
    "mlflow_upload_traces": Parameter(False, BOOL),
    "mlflow_upload_logs": Parameter(False, BOOL),
    "mlflow_upload_performance_metrics": Parameter(False, BOOL),
    # training metrics
    "framework": Parameter("megatron", FRAMEWORK),
    "log_interval": Parameter(100, POSITIVE),
    "log_throughput": Parameter(False, BOOL),
    "log_avg_skip_iterations": Parameter(2, COUNT),
    "log_avg_reset_interval": Parameter(10, POSITIVE),
    "log_params_norm": Parameter(False, BOOL),
    "log_num_zeros_in_grad": Parameter(False, BOOL),
    "log_progress": Parameter(False, BOOL),
    "timing_log_level": Parameter(0, COUNT),
    "timing_log_option": Parameter("minmax", _one_of("max", "minmax", "all")),
    "metrics.log_freq": Parameter(10, POSITIVE),
    "metrics.disable_color_printing": Parameter(False, BOOL),
    "metrics.save_for_all_ranks": Parameter(False, BOOL),
    # profiling
    "profile": Parameter(False, BOOL),
    "use_pytorch_profiler": Parameter(False, BOOL),
    "profile_ranks": Parameter([0], COUNTS),
    "profile_step_start": Parameter(10, COUNT),
    "profile_step_end": Parameter(12, COUNT),
    "record_memory_history": Parameter(False, BOOL),
    "memory_snapshot_path": Parameter("snapshot.pickle", TEXT),
    "disable_profiler_activity_cpu": Parameter(False, BOOL),
    "torch_profiler_record_shapes": Parameter(True, BOOL),
    "torch_profiler_with_stack": Parameter(True, BOOL),
    "torch_profiler_use_gzip": Parameter(False, BOOL),
    "profiling.enable_profiling": Parameter(False, BOOL),
    "profiling.profile_freq": Parameter(10, POSITIVE),
    "profiling.enable_memory_snapshot": Parameter(False, BOOL),
    "profiling.save_memory_snapshot_folder": Parameter("memory_snapshot", TEXT),
    "profiling.save_traces_folder": Parameter("profile_traces", TEXT),
    # ROCm memory
    "use_rocm_mem_info": Parameter(False, BOOL),
    "use_rocm_mem_info_iters": Parameter([1, 2], COUNTS),
}
