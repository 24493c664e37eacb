"""Every monitoring parameter of a Primus module configuration: its default, another value, and what it does.

One table, and real trainings under a real agent. What is profiling only is checked and kept so far, for who
will use it: that is what is looked at, and it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rankside import settings
from rankside.parameters import PARAMETERS
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.event_run import EventRun
from rankside_agent.sinks.points import Scalars, Source

DB = "sqlite:///{base}/told.db"
ALL_ON = {"disable_wandb": False, "disable_tensorboard": False, "disable_mlflow": False}
OTHERS = {
    **ALL_ON,
    "wandb_project": "a-project",
    "wandb_exp_name": "a-name",
    "wandb_entity": "an-entity",
    "wandb_save_dir": "/nowhere",
    "tensorboard_dir": "/nowhere",
    "tensorboard_log_interval": 4,
    "log_timers_to_tensorboard": True,
    "log_batch_size_to_tensorboard": True,
    "log_learning_rate_to_tensorboard": False,
    "log_validation_ppl_to_tensorboard": True,
    "log_memory_to_tensorboard": True,
    "log_world_size_to_tensorboard": True,
    "log_loss_scale_to_tensorboard": False,
    "mlflow_run_name": "a-run",
    "mlflow_experiment_name": "an-experiment",
    "mlflow_upload_traces": True,
    "mlflow_upload_logs": True,
    "mlflow_upload_performance_metrics": True,
    "log_interval": 5,
    "log_params_norm": True,
    "log_num_zeros_in_grad": True,
    "log_progress": True,
    "timing_log_level": 2,
    "timing_log_option": "all",
}
# Checked and kept: another value of each, none of which has an effect of its own yet
KEPT = {
    "use_pytorch_profiler": True,
    "profile_ranks": [0, 3],
    "profile_step_start": 3,
    "profile_step_end": 5,
    "record_memory_history": True,
    "memory_snapshot_path": "other.pickle",
    "disable_profiler_activity_cpu": True,
    "torch_profiler_record_shapes": False,
    "torch_profiler_with_stack": False,
    "torch_profiler_use_gzip": True,
    "profiling.enable_profiling": True,
    "profiling.profile_freq": 3,
    "profiling.enable_memory_snapshot": True,
    "profiling.save_memory_snapshot_folder": "other_memory",
    "profiling.save_traces_folder": "other_traces",
}
TITAN_ON = {"enable_tensorboard": True, "enable_wandb": True}
TITAN_OTHERS = {
    **TITAN_ON,
    "save_tb_folder": "other_tb",
    "log_freq": 4,
    "disable_color_printing": True,
    "save_for_all_ranks": True,
}
NAMED = {"WANDB_PROJECT": "told-project", "WANDB_RUN_NAME": "told-name", "WANDB_TEAM": "told-team"}
TRAININGS: dict[str, dict[str, Any]] = {
    "nothing": {"steps": 100},
    "on": {"config": {**ALL_ON, "log_throughput": True}, "steps": 100},
    "others": {
        "config": OTHERS,
        "steps": 20,
        "environ": {
            "DATABRICKS_HOST": "http://127.0.0.1:9",
            "MLFLOW_TRACKING_URI": DB,
            "WANDB_API_KEY": "0" * 40,
            "WANDB_MODE": "offline",
        },
    },
    "titan": {"config": {"metrics": TITAN_ON}, "steps": 20, "world_size": 2},
    "titan_others": {"config": {"metrics": TITAN_OTHERS}, "steps": 20, "world_size": 2, "environ": NAMED},
    "framework": {"config": {"framework": "torchtitan"}, "steps": 20},
    "averages": {
        "config": {
            "disable_tensorboard": False,
            "log_throughput": True,
            "log_interval": 12,
            "log_avg_skip_iterations": 4,
            "log_avg_reset_interval": 3,
            "use_rocm_mem_info_iters": [2, 5],
        },
        "steps": 12,
    },
    "profile": {
        "config": {
            "profile": True,
            "log_throughput": True,
            "log_interval": 4,
            "use_rocm_mem_info": True,
            **{name: value for name, value in KEPT.items() if "." not in name},
            "profiling": {name[10:]: value for name, value in KEPT.items() if "." in name},
            "framework": "megatron",
        },
        "steps": 4,
    },
    "levels": {"config": {"file_sink_level": "WARNING", "stderr_sink_level": "ERROR"}},
    "sink_level": {
        "config": {"sink_level": "ERROR", "file_sink_level": "DEBUG", "stderr_sink_level": "DEBUG"}
    },
    "verbose": {"environ": {"PRIMUS_LOG_LEVEL": "DEBUG", "PRIMUS_LOG_TIMESTAMP": "0"}},
    "terse": {"environ": {"PRIMUS_LOG_LEVEL": "ERROR"}},
    "debug": {"argv": ["--debug"]},
}


class Row(NamedTuple):
    """What `look` shows of the training `plain`, where the parameter has its default, and of `changed`."""

    look: Callable[[Any], Any]
    plain: str
    default: Any
    changed: str
    other: Any


def in_board(tag: str, default: bool = False) -> Row:
    return Row(lambda seen: tag in seen.scalars, "on", default, "others", not default)


def in_log(text: str, plain: str = "nothing", changed: str = "others") -> Row:
    return Row(lambda seen: text in seen.log, plain, False, changed, True)


def folder(name: str, plain: str = "nothing", changed: str = "on") -> Row:
    return Row(lambda seen: seen.there(name), plain, False, changed, True)


def wandb(name: str, default: str, other: str) -> Row:
    return Row(lambda seen: seen.wandb[name], "on", default, "others", other)


def kept(name: str) -> Row:
    return Row(lambda seen: seen.kept[name], "nothing", PARAMETERS[name].default, "profile", KEPT[name])


def measured(seen: Any) -> list[int]:
    """Samples in which the node's GPUs were asked."""
    return sorted(seen.scalars.get("rocm_used_mem(GB)", {}))


def begun_anew(seen: Any) -> list[int]:
    """Iterations whose mean is of themselves alone; each takes longer than the one before: see train.py."""
    means = seen.scalars["average/iteration-time"]
    return [step for step, mean in means.items() if mean == pytest.approx(step / 100)][:3]


def lowest(seen: Any) -> tuple[str, str]:
    """The lowest level in the files and on the console."""
    return seen.said()[0], seen.said(where="console")[0]


MLFLOW_NAME = (lambda seen: seen.mlflow.run.info.run_name, lambda seen: seen.experiment)
TABLE: dict[str, Row] = {
    "sink_level": Row(lowest, "nothing", ("DEBUG", "INFO"), "sink_level", ("ERROR", "ERROR")),
    "file_sink_level": Row(
        lambda seen: seen.files,
        *("nothing", ["debug", "error", "info", "warning"], "levels", ["error", "warning"]),
    ),
    "stderr_sink_level": Row(
        lambda seen: seen.said(where="console"), "nothing", ["INFO", "WARNING", "ERROR"], "levels", ["ERROR"]
    ),
    "disable_wandb": folder("wandb"),
    "wandb_project": wandb("project", "team_user", "a-project"),
    "wandb_exp_name": wandb("display_name", "on", "a-name"),
    "wandb_entity": wandb("entity", "", "an-entity"),
    "wandb_save_dir": in_log("wandb_save_dir is deprecated and ignored"),
    "metrics.enable_wandb": folder("wandb", changed="titan"),
    "disable_tensorboard": folder("tensorboard"),
    "tensorboard_dir": in_log("tensorboard_dir is deprecated and ignored"),
    "tensorboard_log_interval": Row(
        lambda seen: sorted(seen.scalars["lm loss"])[:3], "on", [1, 2, 3], "others", [4, 8, 12]
    ),
    "log_timers_to_tensorboard": in_board("forward-compute-time"),
    "log_batch_size_to_tensorboard": in_board("batch-size"),
    "log_learning_rate_to_tensorboard": in_board("learning-rate", default=True),
    "log_validation_ppl_to_tensorboard": in_board("lm loss validation ppl"),
    "log_memory_to_tensorboard": in_board("mem-reserved-bytes"),
    "log_world_size_to_tensorboard": in_board("world-size"),
    "log_loss_scale_to_tensorboard": in_board("loss-scale", default=True),
    "metrics.enable_tensorboard": folder("tb", changed="titan"),
    "metrics.save_tb_folder": Row(
        lambda seen: [name for name in ("tb", "other_tb", "tensorboard") if seen.there(name)],
        *("titan", ["tb"], "titan_others", ["other_tb"]),
    ),
    "disable_mlflow": folder("mlflow.db"),
    "mlflow_run_name": Row(MLFLOW_NAME[0], "on", "team_user", "others", "a-run"),
    "mlflow_experiment_name": Row(MLFLOW_NAME[1], "on", "on", "others", "an-experiment"),
    "mlflow_upload_traces": Row(lambda seen: "traces" in seen.artifacts, "on", False, "others", True),
    "mlflow_upload_logs": Row(lambda seen: "logs" in seen.artifacts, "on", False, "others", True),
    "mlflow_upload_performance_metrics": Row(
        lambda seen: "perf/iteration_time_ms" in seen.mlflow.run.data.metrics, "on", False, "others", True
    ),
    "framework": Row(
        lambda seen: [word for word in ("iteration  ", "step: ") if word in seen.lines[-1]],
        *("nothing", ["iteration  "], "framework", ["step: "]),
    ),
    "log_interval": Row(lambda seen: seen.iterations, "nothing", [100], "others", [5, 10, 15, 20]),
    "log_throughput": Row(
        lambda seen: [word for word in ("compute per GPU", "hip mem usage") if word in seen.lines[-1]],
        *("nothing", [], "on", ["compute per GPU", "hip mem usage"]),
    ),
    "log_avg_skip_iterations": Row(
        lambda seen: min(seen.scalars["average/iteration-time"]), "on", 3, "averages", 5
    ),
    "log_avg_reset_interval": Row(begun_anew, "on", [3, 13, 23], "averages", [5, 8, 11]),
    "log_params_norm": in_log("| params norm: 7.000 |"),
    "log_num_zeros_in_grad": in_log("| num zeros: 9.0 |"),
    "log_progress": in_log("progress: iteration 20/20 (100.0%)"),
    "timing_log_level": Row(
        lambda seen: [
            name for name in ("interval", "optimizer", "forward-compute") if f" {name}" in timers(seen)
        ],
        *("nothing", ["interval"], "others", ["interval", "optimizer", "forward-compute"]),
    ),
    "timing_log_option": Row(
        lambda seen: timers(seen).split("\n")[0],
        *("nothing", "(min, max) time across ranks (ms):", "others", "times across ranks (ms):"),
    ),
    "metrics.log_freq": Row(
        lambda seen: seen.iterations, "titan", [1, 10, 20], "titan_others", [1, 4, 8, 12, 16, 20]
    ),
    "metrics.disable_color_printing": Row(
        lambda seen: "\x1b[" in seen.lines[-1], "titan", True, "titan_others", False
    ),
    "metrics.save_for_all_ranks": Row(
        lambda seen: "rank-0/lm loss" in seen.scalars, "titan", False, "titan_others", True
    ),
    "profile": Row(
        lambda seen: (seen.there("tensorboard"), seen.kept["disable_tensorboard"]),
        *("nothing", (False, True), "profile", (True, False)),
    ),
    **{name: kept(name) for name in KEPT},
    "use_rocm_mem_info": Row(measured, "on", [1, 2], "profile", [1, 2, 3, 4]),
    "use_rocm_mem_info_iters": Row(measured, "on", [1, 2], "averages", [2, 5]),
}
# Seen in a file as it is written, not in one that is finished: a test of its own, below
APART = {"tensorboard_queue_size"}
VARIABLES: dict[str, Row] = {
    "PRIMUS_LOG_LEVEL": Row(lambda s: s.said(where="console")[0], "nothing", "INFO", "verbose", "DEBUG"),
    "PRIMUS_LOG_LEVEL is never terser": Row(
        lambda s: s.said(where="console")[0], "nothing", "INFO", "terse", "INFO"
    ),
    "PRIMUS_LOG_TIMESTAMP": Row(
        lambda s: s.console.startswith("[rank-0/1][DEBUG]"), "nothing", False, "verbose", True
    ),
    "--debug": Row(lambda s: s.said(where="console")[0], "nothing", "INFO", "debug", "DEBUG"),
    "Megatron's logging_level": Row(
        lambda s: s.log.partition("logging_level is ")[2][:2], "nothing", "20", "sink_level", "40"
    ),
    "WANDB_API_KEY": Row(lambda s: s.has("WANDB_API_KEY is not set"), "on", True, "others", False),
    "WANDB_PROJECT": Row(
        lambda s: s.wandb["project"],
        *("titan", "Primus-Titan-Pretrain-team_user", "titan_others", "told-project"),
    ),
    "WANDB_RUN_NAME": Row(lambda s: s.wandb["display_name"], "titan", "titan", "titan_others", "told-name"),
    "WANDB_TEAM": Row(lambda s: s.wandb["entity"], "titan", "", "titan_others", "told-team"),
    "MLFLOW_TRACKING_URI": Row(lambda s: s.there("mlflow.db"), "on", True, "others", False),
    "DATABRICKS_HOST": Row(lambda s: s.has("neither is DATABRICKS_HOST"), "on", True, "others", False),
}


def timers(seen: Any) -> str:
    """The last block of timers, from its title on."""
    _, title, rest = seen.log.rpartition("time across ranks (ms):" if "(min" in seen.log else "times across")
    before = seen.log[: -len(title + rest)].rpartition(" : ")[2]
    return f"{before}{title}{rest}"


def test_the_table_holds_every_parameter_and_no_other():
    assert TABLE.keys() | APART == PARAMETERS.keys()


@pytest.mark.timeout(300)
def test_every_parameter_and_variable_does_what_it_is_there_for(node, trained):
    told = {
        name: {
            **each,
            "environ": {n: v.format(base=node.base) for n, v in each.get("environ", {}).items()},
        }
        for name, each in TRAININGS.items()
    }
    shown = trained(told)
    rows = {**TABLE, **VARIABLES}
    found = {
        name: (_look(row, shown[row.plain]), _look(row, shown[row.changed])) for name, row in rows.items()
    }
    wrong = {
        name: f"{name}: {seen[0]} and {seen[1]}, not {row.default} and {row.other}"
        for (name, row), seen in zip(rows.items(), found.values(), strict=True)
        if seen != (row.default, row.other)
    }
    assert not wrong, "\n".join(wrong.values())  # all of them: pytest's own comparison stops after a few


def _look(row: Row, seen: Any) -> Any:
    try:
        return row.look(seen)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("given", "number"), [({}, 1000), ({"tensorboard_queue_size": 3}, 3)])
def test_tensorboard_queue_size_is_how_many_events_wait_for_one_write(tmp_path, given, number):
    source = Source("c", 1, "0", "logs", 0.0, settings.resolve(None, given).values)
    run = EventRun(tmp_path, "a", {}, Counts())
    sizes = []
    for step in range(1, number + 1):
        run.take(Scalars(source, float(step), step, {"lm loss": 1.0}))
        (file,) = tmp_path.iterdir()
        sizes.append(file.stat().st_size)
    assert len(set(sizes[:-1])) == 1
    assert sizes[-1] > sizes[0]


@pytest.mark.parametrize("name", [name for name in PARAMETERS if "." in name])
def test_a_name_of_torchtitan_may_be_nested_or_have_a_dot(name):
    group, _, inner = name.partition(".")
    other = KEPT.get(name, TITAN_OTHERS.get(inner))
    assert other != PARAMETERS[name].default
    for given in ({name: other}, {group: {inner: other}}):
        assert settings.resolve(given, {}).values[name] == other
        assert settings.resolve(None, given).values[name] == other


BAD = {
    "profile": 2,
    **dict.fromkeys((name for name in KEPT if isinstance(PARAMETERS[name].default, bool)), "maybe"),
    **dict.fromkeys((name for name in KEPT if isinstance(PARAMETERS[name].default, str)), 7),
    **dict.fromkeys((name for name in KEPT if type(PARAMETERS[name].default) is int), -1),
    "profile_ranks": "0,1",
}


def test_a_bad_value_of_what_is_only_kept_is_refused_with_place_and_choices():
    assert BAD.keys() == {*KEPT, "profile"}
    for name, value in BAD.items():
        nested = {"profiling": {name[10:]: value}} if "." in name else {name: value}
        for given in (nested, {name: value}):
            with pytest.raises(settings.ConfigError) as refused:
                settings.resolve(given, {})
            assert name.rpartition(".")[2] in str(refused.value)
            assert PARAMETERS[name].kind.choices in str(refused.value)
