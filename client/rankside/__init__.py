"""rankside: monitoring beside distributed training. The thin client; everything public is here."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from rankside import console, device, identity, settings
from rankside.client import Monitor, Options, living, new_channel
from rankside.no_monitor import NoMonitor, disabled
from rankside.place import find_place
from rankside.settings import ConfigError
from rankside.transport import warn
from rankside.version import __version__

__all__ = ["ConfigError", "Monitor", "NoMonitor", "__version__", "current", "init"]

ROLES = ("worker", "master")
_FIRST_MODULE = "pretrain"


def __dir__() -> list[str]:
    return __all__


_current: Monitor = NoMonitor()


def init(
    exp_name: str | None = None,
    *,
    exp_root: str | os.PathLike[str] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    work_group: str | None = None,
    user_name: str | None = None,
    module_name: str = _FIRST_MODULE,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    endpoint: str | None = None,
    role: str = "worker",
    spool_bytes: int = 64 << 20,
    flush_seconds: float = settings.DEFAULT_FLUSH,
    **overrides: Any,
) -> Monitor:
    """Start monitoring this process; returns at once, whether or not an agent listens.

    Rank and world size come from torchrun's, Slurm's or MPI's environment where not given. `config` is a
    file, a dict or keywords with the names of the Primus module configuration. The endpoint defaults to
    $RANKSIDE_ENDPOINT, the node's service, or "auto": an agent is started for this node where none is.

    Called again for the same run and rank while its monitor is open, that monitor is given: a framework's
    adapter may come after the script, and a notebook's cell twice. A module and levels that are given then
    hold from there on; of other parameters that differ a warning says that the first ones stay.

    Raises ConfigError (a ValueError) for a bad parameter, here and nowhere later.
    """
    global _current  # noqa: PLW0603  one monitor a process is what library code asks for
    if disabled():
        return _current
    if role not in ROLES:
        raise ConfigError(f"init(): role: {role!r} is not allowed; choices: {', '.join(ROLES)}")
    settings.check_limits(spool_bytes, flush_seconds, endpoint or os.environ.get("RANKSIDE_ENDPOINT") or None)
    resolved = settings.resolve(config, overrides, str(module_name))
    place = find_place(exp_name, exp_root, workspace, work_group, user_name, os.environ, resolved.names)
    try:
        found = identity.find_rank(rank, world_size, local_rank)
    except ValueError as error:
        raise ConfigError(f"init(): {error}") from None
    notes = (*found.notes, *resolved.notes, *console.misread(os.environ))
    known = living(place.exp_root, place.exp_name, role, found.label, found.world_size)
    if known is not None:
        given = {name: resolved.values[name] for name in resolved.given}
        known._again("" if module_name == _FIRST_MODULE else str(module_name), given, notes)
        _current = known
        return known
    host = identity.host()
    speaks = found.last and role == "worker"  # for the whole run: the trackers are forwarded from its node
    told, environ, remarks = _told(place.exp_root, resolved) if speaks else ({}, {}, ())
    hello = identity.Hello(
        channel=new_channel(host, found.label),
        exp_root=place.exp_root,
        exp_name=place.exp_name,
        user=place.user,
        team=place.team,
        module=str(module_name),
        role=role,
        rank=found.rank,
        label=found.label,
        world_size=found.world_size,
        local_rank=found.local_rank,
        host=host,
        node_ip=identity.node_ip(),
        pid=os.getpid(),
        parent=None,
        job=found.job,
        shared_job=found.shared_job,
        started=time.time(),
        spool="",
        config=resolved.values,
        version=__version__,
        gpus=device.visible() if role == "worker" else {},
        launch=told,
        environ=environ,
    )
    try:
        identity.Hello.unpacked(hello.packed())  # what an agent would refuse
    except ValueError as error:
        raise ConfigError(f"init(): {error}") from None
    options = Options(endpoint, int(spool_bytes), flush_seconds)
    _current = Monitor(hello, options, (*notes, *remarks))
    return _current


def _told(exp_root: str, resolved: settings.Config) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    """What one rank tells for all: how it was started, the trackers' variables, remarks."""
    try:
        from rankside import launch, particulars, remarks  # inside: a process may have no descriptors left

        how = {**launch.launch(), **particulars.tell(resolved.values, resolved.given)}
        environ = launch.tracker_environ(resolved.values)
        said = remarks.at_start(resolved.values, exp_root, os.environ)
    except Exception as error:  # noqa: BLE001  an odd environment must not stop a training
        warn(f"the trackers are not told how this was started: {type(error).__name__}: {error}")
        return {}, {}, resolved.remarks
    return how, environ, (*resolved.remarks, *said)


def current() -> Monitor:
    """This process's monitor; before `init`, one that does nothing, so that library code may always call."""
    return _current
