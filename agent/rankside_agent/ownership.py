"""One agent an endpoint, one a state folder: locks that end with the process, and stale sockets.

Separate because ZeroMQ lets a second bind take a path over without a word.
"""

from __future__ import annotations

import fcntl
import os
import stat
from ipaddress import ip_address
from pathlib import Path

import zmq

from rankside import wire
from rankside.endpoint import CHOICES, named


class Taken(RuntimeError):
    """Somebody else owns it; the message says who."""


class Lock:
    """A file held for as long as this process lives; it holds the owner's pid for people to read."""

    def __init__(self, path: Path, what: str) -> None:
        """Raises Taken, and OSError where the file cannot be made."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:  # flock, and not lockf, which ends when anything in this process has read the file and closed it
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            owner = os.read(self._fd, 100).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise Taken(f"{what} is served by another agent (pid {owner})") from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def intact(self) -> bool:
        """Whether another process would find it held: somebody may have removed the file."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except OSError:
            return False

    def release(self) -> None:
        """Let go; the file stays, for removing it would let two owners in."""
        os.close(self._fd)


class Endpoint:
    """The bound ROUTER socket and, for a path, the lock beside it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], target: str) -> None:
        """Raises Taken where another agent lives there, ValueError for what may not be bound."""
        self.target = target = named(target)
        self._path = Path(target.removeprefix("ipc://")) if target.startswith("ipc://") else None
        self._lock: Lock | None = None
        if self._path is not None:
            self._prepare(self._path)
        elif not _is_local(target):
            raise ValueError(f"endpoint: {target!r} is not allowed; choices: {CHOICES}")
        self.socket = _router(context)
        try:
            self.socket.bind(target)
        except zmq.ZMQError as error:
            self.socket.close(linger=0)
            if self._lock is not None:
                self._lock.release()
            raise Taken(f"{target}: {error.strerror}") from None
        if self._path is not None:
            self._path.chmod(0o600)
            self._inode = self._path.stat().st_ino

    def _prepare(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = path.parent.stat()  # before anything is opened in it: a stranger's link may wait there
        if folder.st_uid != os.getuid() or folder.st_mode & 0o022:
            raise ValueError(f"endpoint: {path.parent}: must be this user's own, and writable by nobody else")
        if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
            raise ValueError(f"endpoint: {path}: exists and is no socket")
        self._lock = Lock(path.with_name(f"{path.name}.lock"), f"ipc://{path}")
        path.unlink(missing_ok=True)  # a dead agent's: the lock says that nobody listens

    def intact(self) -> bool:
        """Whether ranks still find us there: somebody may have removed or replaced the path."""
        if self._path is None:
            return True
        try:
            return self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Unbind, remove the path, let go of the lock, in this order."""
        self.socket.close(linger=200)
        if self._path is not None and self.intact():
            self._path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()


def _is_local(target: str) -> bool:
    host = target.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return target.startswith("tcp://") and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False


def _router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.ROUTER)
    socket.linger = 200  # milliseconds for the last acknowledgements
    socket.maxmsgsize = wire.MAX_MESSAGE
    socket.rcvhwm = 32  # batches of one rank in our memory; the rest waits in its spool
    socket.sndhwm = 1000
    return socket
