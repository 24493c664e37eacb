"""One rank of a training that logs in every way there is: `speaker.py SIDE KINDS SEED COUNT`.

SIDE is "primus" (the rebuilt one alone), "installed" (the same, with rankside put in its place), "plain"
(rankside's own calls) or "master-primus" and "master-rankside", the launcher. Separate because each side
needs a process of its own, and all of them this one program.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import errors
import loguru
import sequence
from sequence import Act

WHO = {"work_group": "team", "user_name": "ann", "exp_name": "llama"}
LEVELS = {"sink_level": None, "file_sink_level": "DEBUG", "stderr_sink_level": "INFO"}
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_MODULES: dict[tuple[str, int], dict[str, Any]] = {}


def of_primus() -> SimpleNamespace:
    """Primus' own calls."""
    from primus.core.runtime import init_worker_logger, update_module_name
    from primus.core.utils import distributed_logging, logger, module_utils

    init_worker_logger(
        SimpleNamespace(exp_root_path=os.environ["EXP"], exp_meta_info=WHO), "pretrain", config()
    )
    calls = {**vars(logger), **vars(module_utils), "old_block": distributed_logging.log_dict_aligned}
    return SimpleNamespace(**calls, switch=update_module_name, close=lambda: None)


def installed() -> SimpleNamespace:
    """Primus' own calls, which rankside has taken over; by a patch that imported them before."""
    from primus.core.utils import distributed_logging, logger, module_utils

    early = {**vars(logger), **vars(module_utils), "old_block": distributed_logging.log_dict_aligned}
    import rankside
    from rankside.integrations import primus

    assert primus.install()
    from primus.core.runtime import init_worker_logger, update_module_name

    init_worker_logger(
        SimpleNamespace(exp_root_path=os.environ["EXP"], exp_meta_info=WHO), "pretrain", config()
    )
    return SimpleNamespace(**early, switch=update_module_name, close=rankside.current().close)


def plain() -> SimpleNamespace:
    """rankside's own calls; of loguru where it has none."""
    import rankside
    from rankside import ranks

    wait = float(os.environ.get("FLUSH_SECONDS", "30"))
    mon = rankside.init(
        exp_root=os.environ["EXP"], module_name="pretrain", config=config().params, flush_seconds=wait, **WHO
    )
    mon.capture_logging("DEBUG", console=True)
    calls = {name: getattr(loguru.logger, name) for name in ("debug", "info", "warning", "error")}
    switch = lambda name, config: mon.set_module(name, **config.params)  # noqa: E731
    return SimpleNamespace(**vars(ranks), **calls, log=loguru.logger.info, switch=switch, close=mon.close)


def master_primus() -> SimpleNamespace:
    """The launcher of Primus."""
    from primus.core.utils import logger

    who = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    levels = {name: level for name, level in config().params.items() if level}
    cfg = logger.LoggerConfig(
        os.environ["EXP"], **WHO, module_name="launcher", node_ip=os.environ["THIS_NODE"], **levels, **who
    )
    logger.setup_logger(cfg, is_head=True)
    return SimpleNamespace(**vars(logger), close=lambda: None)


def master_rankside() -> SimpleNamespace:
    """The launcher, with rankside."""
    import rankside

    mon = rankside.init(
        exp_root=os.environ["EXP"], module_name="launcher", role="master", config=config().params, **WHO
    )
    mon.capture_logging("DEBUG", console=True)
    calls = {name: getattr(loguru.logger, name) for name in ("debug", "info", "warning", "error")}
    return SimpleNamespace(**calls, log=loguru.logger.info, close=mon.close)


SIDES = {
    "primus": of_primus,
    "installed": installed,
    "plain": plain,
    "master-primus": master_primus,
    "master-rankside": master_rankside,
}


def config() -> SimpleNamespace:
    """The levels, as a test wants them."""
    return SimpleNamespace(params={name: os.environ.get(name.upper(), LEVELS[name]) for name in LEVELS})


def _bound(act: Act) -> Any:
    return loguru.logger.bind(step=act.number, user_of="a bound value")


def _standard(act: Act) -> logging.Logger:
    return logging.getLogger(f"megatron.core.{act.module}")


# kind: what is called, and with what, by a line of the module that the act names
KINDS: dict[str, Callable[[SimpleNamespace, Act], Call]] = {
    "loguru": lambda _, act: (loguru.logger.log, (act.level, act.text), {}),
    "loguru number": lambda _, act: (loguru.logger.log, (act.number, act.text), {}),
    "loguru bound": lambda _, act: (_bound(act).log, (act.level, act.text), {}),
    "loguru formatted": lambda _, act: (
        loguru.logger.info,
        ("{} of {who:>6} {:.3f} {{}}", act.text, 2 / 3),
        {"who": "ann"},
    ),
    "loguru tags": lambda _, act: (
        loguru.logger.opt(colors=True).info,
        ("<red>red</red> <b>and</b> not",),
        {},
    ),
    "loguru error": lambda _, act: (
        loguru.logger.opt(exception=_error(act)).log,
        (act.level, act.text),
        {},
    ),
    "standard": lambda _, act: (_standard(act).log, (getattr(logging, act.level, 20), act.text), {}),
    "standard number": lambda _, act: (_standard(act).log, (max(act.number, 11), act.text), {}),
    "standard formatted": lambda _, act: (_standard(act).warning, ("%5.1f%% of %s", 12.34, act.text), {}),
    "standard extra": lambda _, act: (_standard(act).error, (act.text,), {"extra": {"step": 3}}),
    "standard error": lambda _, act: (_standard(act).error, (act.text,), {"exc_info": _error(act)}),
    "standard root": lambda _, act: (logging.getLogger().info, (act.text,), {}),
    "console_only": lambda _, act: (loguru.logger.bind(console_only=True).log, (act.level, act.text), {}),
    "call": lambda front, act: (getattr(front, act.level.lower(), front.log), (act.text,), {}),
    "call formatted": lambda front, act: (front.info, ("{0} {name!r:>12}", act.number), {"name": act.level}),
    "rank 0": lambda front, act: (front.log_rank_0, (act.text, "left aside"), {}),
    "rank last": lambda front, act: (front.log_rank_last, (act.text,), {"end": ""}),
    "rank all": lambda front, act: (front.log_rank_all, (act.text,), {}),
    "rank 0 debug": lambda front, act: (front.debug_rank_0, (act.text,), {}),
    "rank all debug": lambda front, act: (front.debug_rank_all, (act.text,), {}),
    "rank 0 warning": lambda front, act: (front.warning_rank_0, (act.text,), {}),
    "rank 0 error": lambda front, act: (front.error_rank_0, (act.text,), {}),
    "rank 0 value": lambda front, act: (front.log_kv_rank_0, (act.level, act.number), {}),
    "value": lambda front, act: (front.log_kv, (act.level, act.text), {}),
    "value in a column": lambda front, act: (front.log_kv, ("lr", 0.1, act.line % 30), {"fillchar": "."}),
    "called for": lambda front, act: (front.warning_with_caller, (act.text, act.module, "f", act.line), {}),
    "value for": lambda front, act: (front.log_kv_with_caller, ("lr", 1, act.module, "f", act.line, 9), {}),
    "printed": lambda front, act: (front.debug_rank_all, (act.text, 3, None), {"sep": "|", "end": ""}),
    "block": lambda front, act: (
        front.log_dict_aligned,
        ("Config", sequence.DEEPER),
        {"rank_filter": "rank_all"},
    ),
    "old block": lambda front, act: (
        front.old_block,
        ("Config", sequence.BLOCKS[act.number % 4]),
        {"rank_filter": ("rank_all", "rank_last", "rank_0", "unknown")[act.line % 4]},
    ),
}
EVERYWHERE = [name for name in KINDS if name.split()[0] in ("loguru", "standard", "console_only", "call")]
CHOICES = {
    "all": list(KINDS),
    # rankside.ranks has the rank helpers and today's block, whose place there is its caller's
    "plain": [*EVERYWHERE, *(name for name in KINDS if name.startswith("rank "))],
    "master": EVERYWHERE,
    # loguru paints exceptions in many colours, and nameless levels in none
    "blocks": ["block"],
    "coloured": ["loguru", "loguru bound", "standard", "console_only", "call", "rank 0", "rank all debug"],
}


def _error(act: Act) -> BaseException:
    return ValueError("never raised") if act.error == "never raised" else errors.of(act.error)


def say(module: str, line: int, call: Call) -> None:
    """Make the call from that line of a module of that name."""
    found = _MODULES.get((module, line))
    if found is None:
        found = _MODULES[module, line] = {"__name__": f"somebody.{module}"}
        text = "\n" * (line - 1) + "def say(call, args, more): call(*args, **more)\n"
        exec(compile(text, f"/nowhere/{module}.py", "exec"), found)
    found["say"](*call)


def main(side: str, kinds: str, seed: str, count: str) -> None:
    front = SIDES[side]()
    every = list(sequence.acts(int(seed), int(count), CHOICES[kinds]))
    for number, act in enumerate(every):
        if number == len(every) * 2 // 3 and hasattr(front, "switch"):
            front.switch("sft", SimpleNamespace(params={"file_sink_level": "INFO"}))
        say(act.module, act.line, KINDS[act.kind](front, act))
    front.close()


if __name__ == "__main__":
    main(*sys.argv[1:5])
