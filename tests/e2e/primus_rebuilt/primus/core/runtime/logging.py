"""Primus' set-up of a worker's logger, and its change of modules, rebuilt."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from loguru import logger as loguru_logger

from primus.core.utils import logger, module_utils

_state: dict[str, Any] = {}


def init_worker_logger(primus_config: Any, module_name: str = "primus", module_config: Any = None) -> None:
    """Once, at the start."""
    meta = primus_config.exp_meta_info
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    start = logger.LoggerConfig(
        exp_root_path=primus_config.exp_root_path,
        work_group=meta["work_group"],
        user_name=meta["user_name"],
        exp_name=meta["exp_name"],
        module_name=module_name,
        file_sink_level="DEBUG",
        # Corrected: earlier versions have the address of the master there
        node_ip=os.environ["THIS_NODE"],
        rank=rank,
        world_size=world_size,
    )
    _state["config"] = cfg = _with_levels(start, module_config)
    _state["files"] = logger.setup_logger(cfg)
    module_utils.set_logging_rank(rank, world_size)


def update_module_name(new_module_name: str, new_module_config: Any = None) -> None:
    """Other files, other levels where the module's configuration names them."""
    cfg = _with_levels(replace(_state["config"], module_name=new_module_name), new_module_config)
    for number in _state["files"]:
        loguru_logger.remove(number)
    loguru_logger.configure(extra={**_extra(cfg), "module_name": new_module_name})
    folder = Path(cfg.exp_root_path) / "logs" / new_module_name / f"rank-{cfg.rank}"
    _state["config"], _state["files"] = cfg, logger.add_file_sinks(folder, cfg.file_sink_level, False)


def _extra(cfg: logger.LoggerConfig) -> dict[str, Any]:
    return {
        "team": cfg.work_group,
        "user": cfg.user_name,
        "exp": cfg.exp_name,
        "node_ip": cfg.node_ip,
        "rank": cfg.rank,
        "world_size": cfg.world_size,
    }


def _with_levels(cfg: logger.LoggerConfig, module_config: Any) -> logger.LoggerConfig:
    """`sink_level` is both."""
    given = module_config.params if module_config is not None else {}
    both = given.get("sink_level")
    levels = {
        name: level
        for name in ("file_sink_level", "stderr_sink_level")
        if (level := both or given.get(name)) is not None
    }
    return replace(cfg, **levels)
