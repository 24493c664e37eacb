"""Who this process is: rank, world size, node, and the run it belongs to.

Separate because the answer comes from many launchers, and everything else only wants the answer.
"""

from __future__ import annotations

import operator
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rankside import device


class Launcher(NamedTuple):
    """The variables of one launcher: rank, world size, rank on this node, and what tells its jobs apart."""

    name: str
    rank: str
    world_size: str
    local_rank: str
    job: tuple[str, ...]


# The order is the precedence. torchrun under Slurm sets both kinds; only its own are true then.
LAUNCHERS = (
    Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID"),
    ),
    Launcher(
        "slurm",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ),
    Launcher(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher("mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", ("PMI_ID", "HYDI_CONTROL_FD")),
)
# Ids that exist once in a cluster; jobs without one are told apart by the launching process.
_UNIQUE = ("SLURM_JOB_ID", "PMIX_NAMESPACE")
_MOST_RANKS = 1 << 31
_LONGEST_NAME = 200  # bytes; file systems allow 255, and endings come on top


@dataclass(frozen=True)
class Rank:
    """Place of this process in its job. `rank` is None where nothing says it."""

    rank: int | None
    world_size: int
    local_rank: int | None
    label: str
    job: str
    shared_job: bool  # whether ranks that start much later may still belong to the same job
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> bool:
        """Whether it is the last rank, which speaks for the run; one that knows of no other is."""
        return is_last(self.rank, self.world_size)


@dataclass(frozen=True)
class Hello:
    """What an agent must know of a channel; it lies in the spool too: a dead rank's is recovered by it."""

    channel: str
    exp_root: str
    exp_name: str
    user: str
    team: str
    module: str
    role: str
    rank: int | None
    label: str
    world_size: int
    local_rank: int | None
    host: str
    node_ip: str
    pid: int
    parent: str | None  # the channel this process was forked from
    job: str
    shared_job: bool
    started: float
    spool: str
    config: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    gpus: dict[str, Any] = field(default_factory=dict)  # device.visible: its masks, and what it sees
    launch: dict[str, Any] = field(default_factory=dict, repr=False)  # how it was started; nothing secret
    environ: dict[str, str] = field(default_factory=dict, repr=False)  # trackers' variables, with secrets
    outputs: str = ""  # of `parent`'s descriptors: the folder of captured output that this channel records

    def packed(self) -> dict[str, Any]:
        """As a plain dict."""
        return asdict(self)

    @classmethod
    def unpacked(cls, value: Any) -> Hello:
        """From a stranger's dict. Raises ValueError that names what is missing or of the wrong type."""
        if not isinstance(value, dict):
            raise ValueError("hello: not a mapping")
        found: dict[str, Any] = {}
        for name, kinds in _HELLO_TYPES.items():
            if name in _HELLO_OPTIONAL and name not in value:
                continue
            if name not in value or not isinstance(value[name], kinds):
                raise ValueError(f"hello: {name} is missing or not {' or '.join(k.__name__ for k in kinds)}")
            if isinstance(value[name], str) and (len(value[name]) > 4096 or "\0" in value[name]):
                raise ValueError(f"hello: {name} is too long or holds a NUL")
            found[name] = value[name]
        if found.get("gpus"):
            found["gpus"] = device.checked_visible(found["gpus"])
        if found.get("launch") or found.get("environ"):
            from rankside import launch

            found["launch"] = launch.checked_launch(found.get("launch", {}))
            found["environ"] = launch.checked_environ(found.get("environ", {}))
        return cls(**found)


# Left out by clients of older versions, whose spools may still lie there
_HELLO_OPTIONAL = ("config", "version", "gpus", "launch", "environ", "outputs")
_OPTIONAL_INT = (int, type(None))
_HELLO_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("channel", "exp_root", "exp_name", "user", "team", "module", "role", "label"), (str,)),
    **dict.fromkeys(("host", "node_ip", "job", "spool", "version", "outputs"), (str,)),
    **dict.fromkeys(("rank", "local_rank"), _OPTIONAL_INT),
    **dict.fromkeys(("world_size", "pid"), (int,)),
    "parent": (str, type(None)),
    "shared_job": (bool,),
    "started": (float, int),
    **dict.fromkeys(("config", "gpus", "launch", "environ"), (dict,)),
}


def is_last(rank: int | None, world_size: int) -> bool:
    """Whether this rank speaks for the run: the last one, or one that knows of no other."""
    return rank is None or rank + 1 == world_size


def find_rank(
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Rank:
    """Arguments, else torchrun's variables, Slurm's, MPI's; else rank unknown, labelled by host and pid.

    Raises ValueError for arguments that are no numbers or contradict each other.
    """
    notes: list[str] = []
    rank, world_size = _whole("rank", rank), _whole("world_size", world_size)
    local_rank = _whole("local_rank", local_rank)
    given = rank is not None
    launcher = next((each for each in LAUNCHERS if _number(environ, each.rank, notes) is not None), None)
    if rank is None and launcher is not None:
        rank = _number(environ, launcher.rank, notes)
        notes += _disagreements(launcher, environ)
    if launcher is not None:
        world_size = _number(environ, launcher.world_size, notes) if world_size is None else world_size
        local_rank = _number(environ, launcher.local_rank, notes) if local_rank is None else local_rank
    if rank is None:
        return _unknown(tuple(notes))
    said = world_size  # by an argument or a launcher: the same for all ranks of a start
    world_size = max(rank + 1, 1) if world_size is None else world_size
    if not 0 <= rank < world_size:
        problem = f"rank: {rank} is outside a world of {world_size}; ranks begin at 0 and are less than that"
        if given:
            raise ValueError(problem)
        notes.append(problem)
        world_size = rank + 1
    job, shared = _job(launcher, environ, said)
    return Rank(rank, world_size, local_rank, str(rank), job, shared, tuple(notes))


def _unknown(notes: tuple[str, ...]) -> Rank:
    known = ", ".join(each.rank for each in LAUNCHERS)
    note = f"no rank: none of {known} is set and none was given; this process logs under its host and pid. "
    note += "A single process: rankside.init(..., rank=0, world_size=1)"
    pid = os.getpid()
    job = f"process:{host()}:{pid}:{_born(pid)}"
    return Rank(None, 1, None, f"{safe_name(host())}-{pid}", job, False, (*notes, note))


def _whole(name: str, value: Any) -> int | None:
    try:
        whole = None if value is None else operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: {value!r} is no whole number") from None
    if whole is not None and abs(whole) >= _MOST_RANKS:
        raise ValueError(f"{name}: {whole} is not allowed; choices: whole numbers below {_MOST_RANKS}")
    return whole


def _number(environ: Mapping[str, str], name: str, notes: list[str]) -> int | None:
    text = environ.get(name, "")
    if text.strip().isdecimal() and len(text.strip()) < 10:
        return int(text)
    if text:
        note = f"{name}: {text!r} is no number from 0 and was ignored"
        if note not in notes:
            notes.append(note)
    return None


def _disagreements(chosen: Launcher, environ: Mapping[str, str]) -> list[str]:
    """Of launchers that count the same processes: torchrun in one Slurm task a node is no contradiction."""
    mine, world = environ.get(chosen.rank), environ.get(chosen.world_size)
    return [
        f"rank {mine} is {chosen.name}'s {chosen.rank}; {other.name}'s is {other.rank}={environ[other.rank]}"
        for other in LAUNCHERS
        if other is not chosen
        and environ.get(other.rank, mine) != mine
        and environ.get(other.world_size, world) == world
    ]


def _job(
    launcher: Launcher | None, environ: Mapping[str, str], world_size: int | None = None
) -> tuple[str, bool]:
    """What all ranks of one start share and no other start does; and whether it is certain to be so."""
    names = launcher.job if launcher else ()
    parts = [launcher.name if launcher else "parent", *(f"{name}={environ.get(name, '')}" for name in names)]
    if world_size is not None:
        parts.append(f"world={world_size}")  # a launcher's process may start a smaller and a larger one
    if any(environ.get(name) for name in names if name in _UNIQUE):
        return ":".join(parts), True
    if launcher is None or _on_one_node(launcher, environ):
        parent = os.getppid()
        parts.append(f"{host()}:{parent}:{_born(parent)}")
    return ":".join(parts), launcher is not None


def _on_one_node(launcher: Launcher, environ: Mapping[str, str]) -> bool:
    """Whether the ranks have their launching process in common, as far as the launcher tells.

    An operator of Kubernetes sets what torchrun does, without the number of ranks on a node; the address of
    the master then is all that its pods share.
    """
    world = environ.get("WORLD_SIZE", "1")
    if "LOCAL_WORLD_SIZE" in environ or world == "1" or launcher.world_size != "WORLD_SIZE":
        return environ.get("LOCAL_WORLD_SIZE", world) == world
    return _is_loopback(environ.get("MASTER_ADDR", ""))


def _is_loopback(address: str) -> bool:
    """A missing one, too: it is the master's default."""
    name = address.strip("[]").lower()
    return name in ("", "::1") or name.startswith("127.") or name.partition(".")[0] == "localhost"


def _born(pid: int) -> str:
    """Start time of a process in clock ticks since boot: with it, a pid names one process only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "?"


def host() -> str:
    """This node's name, without its domain."""
    return socket.gethostname().partition(".")[0] or "localhost"


def node_ip() -> str:
    """This node's own address, found without a packet: the one a route to elsewhere would use."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: connecting a datagram socket sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def safe_name(name: str) -> str:
    """`name` as one part of a path. Different names stay different: what is changed is percent-encoded."""
    text = "".join(char if _plain(char) else _encoded(char) for char in name)
    if text.startswith("."):
        text = "%2E" + text[1:]
    raw = text.encode()
    if len(raw) <= _LONGEST_NAME:
        return text or "%"
    from hashlib import sha256

    # "%%" stands in no other name: there two digits follow each percent sign
    return f"{raw[: _LONGEST_NAME - 30].decode(errors='ignore')}%%{sha256(raw).hexdigest()[:24]}"


def _plain(char: str) -> bool:
    return char.isprintable() and char not in "/\\%"


def _encoded(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
