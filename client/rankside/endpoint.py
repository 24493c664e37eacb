"""Where the agent listens, whether one does, and starting one for this node where none is.

Separate from the transport: this file knows paths and processes, that one messages and time.
"""

# Of the standard library, what `import rankside` does not need is imported where it is used: every rank of a
# thousand waits for that import at its start.
from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

AUTO = "auto"
_TMP = Path("/tmp")
SERVICE_SOCKET = "/run/rankside/agent.sock"
CHOICES = "auto, /a/path or ipc:///a/path, tcp://host:port (an agent's: on this host only)"
_LONGEST_PATH = 107  # bytes of a unix socket's; longer ones are cut or refused by the kernel
_START_DEADLINE = 30.0  # an agent on a loaded node; a second at most on a quiet one
# What the launcher set for a rank is not true of the agent.
_OF_A_RANK = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WANDB_SERVICE", "RANKSIDE_DISABLE")


def runtime_dir(tmp: Path = _TMP) -> Path:
    """This user's folder for sockets on this node, mode 0700.

    Always below /tmp and never $TMPDIR or $XDG_RUNTIME_DIR: a job and a login must find the same one.
    Raises OSError where somebody else holds that name.
    """
    folder = tmp / f"rankside-{os.getuid()}"
    own(folder, "set RANKSIDE_ENDPOINT")
    return folder


def own(folder: Path, otherwise: str = "set RANKSIDE_SPOOL_DIR") -> None:
    """Make a folder that is ours alone. Raises OSError where somebody else holds that name."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(folder)  # no symlink is followed
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder}: is not a folder of uid {os.getuid()}; remove it or {otherwise}")
    if found.st_mode & 0o077:
        folder.chmod(0o700)


def default_endpoint() -> str:
    """This user's agent on this node."""
    return f"ipc://{runtime_dir()}/agent.sock"


def named(given: object) -> str:
    """An endpoint as ranks and agents write it; a bare path is a socket's. Raises ValueError with choices."""
    text = given if isinstance(given, str) else ""
    path = text.removeprefix("ipc://")
    if path.startswith("/") and not path.endswith("/") and "\0" not in path:
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return f"ipc://{path}"
        raise ValueError(f"endpoint: {path}: has more than the {_LONGEST_PATH} bytes of a socket's path")
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    if text == AUTO or (text.startswith("tcp://") and host and _is_port(port)):
        return text
    raise ValueError(f"endpoint: {given!r} is not allowed; choices: {CHOICES}")


def of_ranks(given: object) -> str:
    """As `named`, of a place that ranks can connect to. Raises ValueError with choices."""
    text = named(given)
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    if text.startswith("tcp://") and "*" in (host, port):
        raise ValueError(f"endpoint: {text}: no rank can connect there; choices: {CHOICES}")
    return text


def _is_port(text: str) -> bool:
    return text == "*" or (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 65536)


def wanted(given: object = None) -> str:
    """What the argument names, else $RANKSIDE_ENDPOINT, else "auto". Raises ValueError with choices."""
    return named(given or os.environ.get("RANKSIDE_ENDPOINT") or AUTO)


def choose(given: str | None) -> tuple[str, bool]:
    """The endpoint to talk to now, and whether an agent may be started there.

    The argument, $RANKSIDE_ENDPOINT, the node's service, this user's own agent, in this order. Raises
    ValueError for what is none.
    """
    target = wanted(given)
    if target != AUTO:
        return target, False
    if listens(f"ipc://{SERVICE_SOCKET}"):
        return f"ipc://{SERVICE_SOCKET}", False
    return default_endpoint(), True


def listens(endpoint: str) -> bool:
    """Whether somebody accepts connections there. A stale socket file refuses, and is not taken for one."""
    path = endpoint.removeprefix("ipc://")
    if path == endpoint:
        return True  # tcp: only the answer tells
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
    except BlockingIOError:
        return True  # a frozen agent's full queue
    except OSError:
        return False
    return True


def is_private(endpoint: str) -> bool | None:
    """Whether nobody but this user and root can listen there: secrets may be said then. None: nobody yet."""
    path = endpoint.removeprefix("ipc://")
    if path == endpoint or not path.startswith("/"):
        return False
    trusted = (0, os.getuid())
    try:
        folder = os.stat(os.path.dirname(path))
        if folder.st_uid not in trusted or folder.st_mode & 0o022:
            return False
        return not os.path.lexists(path) or os.lstat(path).st_uid in trusted
    except FileNotFoundError:
        return None
    except OSError:
        return False


def spool_roots() -> list[Path]:
    """Folders for spools, best first: memory of the node, then its disk."""
    named = os.environ.get("RANKSIDE_SPOOL_DIR")
    if named:
        return [Path(named)]
    import tempfile

    return [
        Path(f"/dev/shm/rankside-{os.getuid()}"),
        Path(tempfile.gettempdir()) / f"rankside-spool-{os.getuid()}",
    ]


def own_default(root: Path) -> None:
    """Make a spool root of our choosing ours alone; a named one is its user's to share. Raises OSError."""
    if not os.environ.get("RANKSIDE_SPOOL_DIR"):
        own(root)


def spool_group(given: str | None) -> str:
    """Sub-folder for the channels of one agent: agents on other endpoints leave it alone."""
    target = wanted(given)
    if target == AUTO:
        return "node"
    plain = (f"ipc://{SERVICE_SOCKET}", default_endpoint())
    import hashlib

    return "node" if target in plain else hashlib.sha256(os.fsencode(target)).hexdigest()[:12]


def start_agent(
    endpoint: str,
    command: list[str] | None = None,
    folder: Path | None = None,
    give_up: Callable[[], bool] = lambda: False,
) -> str | None:
    """Start a detached agent unless somebody just did. Returns what went wrong, or None.

    Eight ranks that start together come here together: a lock lets one of them through.
    """
    folder = folder or runtime_dir()
    with _only_one(folder / "start.lock", give_up):
        if give_up() or listens(endpoint):
            return None
        command = command or _agent_command()
        if command is None:
            return "no agent is running and none is installed here: pip install 'rankside[agent]'"
        return _start(command, endpoint, folder, give_up)


def _start(command: list[str], endpoint: str, folder: Path, give_up: Callable[[], bool]) -> str | None:
    import subprocess

    log = folder / "agent.log"
    with open(log, "ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder,  # a training's folder may hold a wandb/ or agent/ that would be imported
            env={
                **{name: value for name, value in os.environ.items() if name not in _OF_A_RANK},
                "PYTHONUTF8": "1",  # whatever the rank's locale is: others' paths are not all ASCII
                "RANKSIDE_ENDPOINT": endpoint,  # where we wait for it, whatever the rank was told
            },
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_DEADLINE
    while time.monotonic() < deadline and not give_up():
        if listens(endpoint):
            return None
        if process.poll() is not None:
            return f"the agent ended with {process.returncode} at its start; see {log}"
        time.sleep(0.05)
    if give_up():
        return None
    return f"the agent did not listen within {_START_DEADLINE:.0f} s; see {log}"


def _agent_command() -> list[str] | None:
    import shutil
    from importlib.util import find_spec

    if find_spec("rankside_agent") is not None:
        return [sys.executable, "-m", "rankside_agent", "agent", "--auto"]
    script = shutil.which("rankside")
    return [script, "agent", "--auto"] if script else None


@contextmanager
def _only_one(path: Path, give_up: Callable[[], bool]) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _START_DEADLINE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline or give_up():
                    break
                time.sleep(0.05)
        yield
    finally:
        os.close(fd)
