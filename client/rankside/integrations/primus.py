"""In the place of Primus' logger set-up: its helpers and patches go on working, and speak through rankside.

    from rankside.integrations import primus
    primus.install()        # before Primus sets up its logger; or call primus.init_worker_logger yourself

Separate because it knows where Primus keeps its loggers, and how its helpers call them. What a version of
Primus does not have is passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FrameType, FunctionType, ModuleType
from typing import Any

import rankside
from rankside import ranks, settings
from rankside.integrations import primus_print
from rankside.integrations.care import active, tell
from rankside.loguru_guard import Careful
from rankside.no_monitor import disabled
from rankside.parameters import FRAMEWORKS, LEVELS, PARAMETERS

_RUNTIME, _LOGGER = "primus.core.runtime.logging", "primus.core.utils.logger"
# Where the rank helpers are: today, and in earlier versions
_HELPERS = (
    "primus.core.utils.module_utils",
    "primus.core.utils.distributed_logging",
    "primus.modules.module_utils",
)
_KV_WIDTH = 18  # of a name in logger.log_kv; the rank helper's is wider
_WIDEST = 1000  # that somebody may ask for
_SET_UP = ("init_worker_logger", "init_global_logger")
_TOLD_RANK = "update_rank_info"  # beside the logger, in versions with MaxText
# Which ranks speak, and on which level: primus/core/utils/module_utils.py
_SPOKEN: dict[str, tuple[str, str]] = {
    "log_rank_0": ("rank_0", "INFO"),
    "log_rank_last": ("rank_last", "INFO"),
    "log_rank_all": ("rank_all", "INFO"),
    "debug_rank_0": ("rank_0", "DEBUG"),
    "debug_rank_all": ("rank_all", "DEBUG"),
    "warning_rank_0": ("rank_0", "WARNING"),
    "error_rank_0": ("rank_0", "ERROR"),
    "log_kv_rank_0": ("rank_0", "INFO"),
}
_LEVELS: dict[str, str] = {
    "debug": "DEBUG",
    "log": "INFO",
    "info": "INFO",
    "log_kv": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
}
_CALLED: dict[str, str] = {
    "debug_with_caller": "DEBUG",
    "info_with_caller": "INFO",
    "log_kv_with_caller": "INFO",
    "warning_with_caller": "WARNING",
    "error_with_caller": "ERROR",  # Primus itself makes a warning of it
}


def install() -> bool:
    """Put `init_worker_logger` where Primus looks for it. False without Primus, and where we are disabled."""
    runtime = None if disabled() else _module(_RUNTIME)
    if runtime is None:
        return False
    for place in (runtime, _module("primus.core.runtime")):
        for name in _SET_UP:
            if place is not None and hasattr(place, name):
                setattr(place, name, init_worker_logger)
        if place is not None and hasattr(place, "update_module_name"):
            place.update_module_name = update_module_name  # type: ignore[attr-defined]  # a module's
    return True


def init_worker_logger(
    primus_config: Any, module_name: str = "primus", module_config: Any = None
) -> rankside.Monitor:
    """Primus' set-up with its own signature: files, console, captured loggers, rank helpers.

    The parameters of the module reach rankside, with those of the trackers. Raises ConfigError as
    `rankside.init` does.
    """
    meta = getattr(primus_config, "exp_meta_info", None) or {}
    known = {name: value for name, value in _params(module_config).items() if name in PARAMETERS}
    if known.get("framework") not in FRAMEWORKS:  # a backend of somebody's own
        known.pop("framework", None)
    monitor = rankside.init(
        exp_name=meta.get("exp_name"),
        exp_root=getattr(primus_config, "exp_root_path", None),
        work_group=meta.get("work_group"),
        user_name=meta.get("user_name"),
        module_name=module_name,
        config=_without_nulls(known),
    )
    monitor.capture_logging(_lowest(monitor), console=True)
    primus_print.capture(monitor)
    _take_over(_module(_LOGGER), [found for name in _HELPERS if (found := _module(name)) is not None])
    return monitor


def update_module_name(new_module_name: str, new_module_config: Any = None) -> None:
    """The next phase, with its own levels where its configuration names them."""
    params = _params(new_module_config)
    levels = {n: params[n] for n in settings.LEVEL_NAMES if params.get(n) is not None}
    monitor = rankside.current()
    monitor.set_module(new_module_name, **levels)
    if levels and active(monitor):
        monitor.capture_logging(_lowest(monitor))


def _lowest(monitor: rankside.Monitor) -> int:
    """What Primus' sinks let through: its files begin with DEBUG, and TRACE comes where one is set to it."""
    return min(LEVELS["DEBUG"], monitor.logging_level, settings.file_level(monitor.config))


def _params(module_config: Any) -> dict[str, Any]:
    """Flat, with TorchTitan's groups as `metrics.log_freq`."""
    found = getattr(module_config, "params", module_config)
    if not isinstance(found, Mapping):
        found = vars(found) if hasattr(found, "__dict__") else {}
    return {
        full: each
        for name, value in found.items()
        for full, each in (
            {f"{name}.{sub}": item for sub, item in value.items()}
            if isinstance(value, Mapping)
            else {name: value}
        ).items()
    }


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """A null in a Primus file stands for the default."""
    return {name: value for name, value in values.items() if value is not None}


def _module(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except Exception:  # noqa: BLE001  absent, or a version that cannot be imported here
        return None


def _take_over(logger: ModuleType | None, helpers: list[ModuleType]) -> None:
    """Functions keep their identity, for they were imported by name long ago; what they do is replaced."""
    if logger is not None:
        if getattr(logger, "_logger", None) is None:
            logger._logger = _bound_logger()  # type: ignore[attr-defined]  # a module's
        for name in _CALLED:
            _replace(logger, name, _of_caller)
        for name in _LEVELS:
            _replace(logger, name, _of_logger)
        _replace(logger, _TOLD_RANK, _of_rank_info)
    monitor = rankside.current()
    for module in helpers:
        set_rank = getattr(module, "set_logging_rank", None)
        if callable(set_rank):
            set_rank(monitor.rank or 0, monitor.world_size)
        for name in _SPOKEN:
            _replace(module, name, _of_printing_rank if _prints(module, name) else _of_rank)


def _prints(module: ModuleType, name: str) -> bool:
    """Whether it takes what print() takes: today's debug_rank_all stands in for it."""
    code = getattr(getattr(module, name, None), "__code__", None)
    return code is not None and not code.co_argcount


def _replace(module: ModuleType, name: str, said: Callable[..., None]) -> None:
    old = getattr(module, name, None)
    if isinstance(old, FunctionType) and not old.__closure__ and not hasattr(old, "rankside_said"):
        old.__globals__[f"_rankside{said.__name__}"] = said
        scope: dict[str, Any] = {}
        # a name of the tables above, and nothing else
        exec(_BODY.format(name=name, said=f"_rankside{said.__name__}"), scope)
        old.__code__ = scope[name].__code__
        old.__defaults__ = old.__kwdefaults__ = None
        old.rankside_said = said  # type: ignore[attr-defined]  # a second set-up has nothing to do


_BODY = "def {name}(*args, **kwargs):\n    {said}({name!r}, args, kwargs)\n"


def _of_rank(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    """A rank helper: dropped by most ranks, for the price of two look-ups."""
    wanted, level = _SPOKEN[name]
    if ranks.FILTERS[wanted](rankside.current()):
        if name == "log_kv_rank_0":
            text = _key_value(given, more, ranks.KEY_WIDTH)
        else:
            text = ranks.shown(given[0] if given else more.get("msg", ""))
        _say(level, text, sys._getframe(2))


def _of_printing_rank(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    """One that is called as print() is; where to and how it ends is no business of a log."""
    wanted, level = _SPOKEN[name]
    monitor = rankside.current()
    if given and ranks.FILTERS[wanted](monitor):
        between = more.get("sep")
        text = (between if isinstance(between, str) else " ").join(map(ranks.shown, given))
        _say(level, text, sys._getframe(2))


def _of_logger(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    """`logger.info(message, ...)`: formatted as loguru does where arguments follow, and never raising."""
    if given:
        message, *args = given
        if name == "log_kv":
            text = _key_value(given, more, _KV_WIDTH)
        else:
            text = ranks.shown(message)
            text = Careful(text).format(*args, **more) if args or more else text
        _say(_LEVELS[name], text, sys._getframe(2))


def _key_value(given: tuple[Any, ...], more: dict[str, Any], width: int) -> str:
    """As Primus prints it: key, value, and where they are given width and what it is filled with."""
    named = dict(zip(("key", "value", "width", "fillchar"), given, strict=False)) | more
    fill, wide = named.get("fillchar", " "), named.get("width", width)
    if not (isinstance(fill, str) and len(fill) == 1 and isinstance(wide, int)):
        fill, wide = " ", width
    key, value = (ranks.shown(named.get(name, "")) for name in ("key", "value"))
    return f"{key}:".ljust(min(wide, _WIDEST), fill) + value


def _say(level: str, text: str, frame: FrameType) -> None:
    stem = str(frame.f_globals.get("__name__", "")).rpartition(".")[2]
    rankside.current()._log(LEVELS[level], level, stem, frame.f_lineno, text)


def _of_caller(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    """`info_with_caller(message, module_name, function_name, line)`; log_kv has key and value for it."""
    said, place = (given[:2], given[2:5]) if name == "log_kv_with_caller" else (given[:1], given[1:4])
    if len(place) == 3:
        level = _CALLED[name]
        module, _, line = place
        more = {**dict(zip(("width", "fillchar"), given[5:], strict=False)), **more}
        text = _key_value(said, more, ranks.KEY_WIDTH) if len(said) == 2 else ranks.shown(said[0])
        number = line if isinstance(line, int) else 0
        rankside.current()._log(LEVELS[level], level, ranks.shown(module), number, text)


def _of_rank_info(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    """`update_rank_info(rank, world_size)`, which JAX knows only after the logger was set up.

    Primus shows the new rank from then on, in the files of the old one. Here it stays that of the start:
    folder, spool and who speaks to the trackers go by it, and agents on other nodes have decided by then.
    The rank helpers go by it, too. Where the two differ, a warning says so.
    """
    told = tuple({**dict(zip(("rank", "world_size"), given, strict=False)), **more}.values())
    monitor = rankside.current()
    if told != (monitor.rank, monitor.world_size):
        known = f"rank {monitor.rank} of {monitor.world_size} of its start"
        what = f"{name}: rank, world size {told}: files and trackers stay with {known}"
        tell(f"{what}; set RANK and WORLD_SIZE before")


def _bound_logger() -> Any:
    """What `primus.core.utils.logger` calls for all else: its loguru, whose records the capture takes."""
    from loguru import logger

    return logger
