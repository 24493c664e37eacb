"""The git state of the working tree that a training was started from, kept in a file for the trackers.

Separate, and in a thread of its own, because `git` may take long or hang (a working tree on a network drive).
The repository is a stranger's: nothing in it or in its configuration is run, fetched or written.
"""

from __future__ import annotations

import logging
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankside import secrets
from rankside_agent import files

log = logging.getLogger(__name__)

TIMEOUT = 10.0  # seconds for all of it
STATUS_LINES = 300
DIFF_FILES = 300
_MOST_BYTES = 256 << 10  # of one command's output
_MOST_AT_ONCE = 16  # threads; each new attempt asks for one, and strangers start attempts
_LONGEST_URL = 2000

# What a repository's own configuration could make git run; `-c` comes before it. Filters have free names and
# are found by `_without_filters`.
_HARMLESS = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "core.untrackedCache=false"),
    *("core.sshCommand=false", "core.askPass=false", "credential.helper=", "gc.auto=0", "color.ui=false"),
    *("maintenance.auto=false", "status.submoduleSummary=false", "core.quotePath=true"),
    "safe.directory=*",  # the agent may run as another user; it is safe, for nothing of it is run
)
_ENVIRON = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch what is missing, through its own ssh command
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C",
}
_FILTERS = r"^filter\..*\.(clean|process|required)$"
# A submodule's own git would be run with a configuration that the settings above do not reach
_STATUS = (
    "status",
    "--porcelain=v1",
    "--untracked-files=normal",
    "--ignore-submodules=dirty",
    "--no-renames",
)
_DIFF = (
    *("diff", "--stat=120", f"--stat-count={DIFF_FILES}", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--ignore-submodules=dirty", "--submodule=short", "HEAD", "--"),
)

_underway: set[Path] = set()
_lock = threading.Lock()


def begin(cwd: str, path: Path) -> threading.Thread | None:
    """`capture` in a thread; None where the file is there, or on its way, or too many are at work."""
    with _lock:
        if path in _underway or path.exists() or len(_underway) >= _MOST_AT_ONCE:
            return None
        _underway.add(path)
    thread = threading.Thread(target=_captured, args=(cwd, path), name="rankside-origin", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads
        _underway.discard(path)
        return None
    return thread


def _captured(cwd: str, path: Path) -> None:
    try:
        capture(cwd, path)
    finally:
        _underway.discard(path)


def capture(cwd: str, path: Path, timeout: float = TIMEOUT) -> None:
    """Write the git state at `cwd` to `path` as JSON; {} where there is no repository or no git."""
    try:
        found = _look(cwd, timeout)
    except Exception as error:  # noqa: BLE001  a stranger's folder, a foreign program: training goes on without
        log.warning("git state of %s: %s: %s", cwd, type(error).__name__, error)
        found = {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_json(path, found)
    except OSError as error:
        log.warning("git state of %s: %s", cwd, error)


def _look(cwd: str, timeout: float) -> dict[str, Any]:
    binary = shutil.which("git")
    if binary is None or not os.path.isabs(cwd) or not os.path.isabs(binary):
        return {}
    git = _Git(binary, cwd, time.monotonic() + timeout)
    if git.line("rev-parse", "--is-inside-work-tree") != "true":
        return {}
    commit = git.line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    found = {
        "cwd": cwd,
        "commit": commit,
        "branch": git.line("symbolic-ref", "--quiet", "--short", "HEAD"),
        "repo_url": _without_credentials(_remote(git)),
    }
    status: list[str] = []
    changed, diff = None, ""
    if git.without_filters():
        status, changed = _status(git)
        diff = git.run(*_DIFF)[1].rstrip("\n") if commit and changed is not False else ""
    return {**found, "dirty": changed, "status": status, "diff_stat": diff, "captured": time.time()}


def _status(git: _Git) -> tuple[list[str], bool | None]:
    """Its lines, and whether anything tracked has changed; None where git was ended before it was known."""
    status, text = git.run(*_STATUS)
    lines = text.split("\n")[:-1]  # what was cut off in mid-line is none
    changed = True if any(not line.startswith("??") for line in lines) else None if status != 0 else False
    if len(lines) > STATUS_LINES:
        lines = [*lines[:STATUS_LINES], f"... {len(lines) - STATUS_LINES} more"]
    return lines, changed


def _remote(git: _Git) -> str:
    """The address of `origin`, or else of the first remote."""
    found = [line.partition(" ") for line in git.lines("config", "--get-regexp", r"^remote\..*\.url$")]
    named = {key: value for key, _, value in reversed(found)}
    return named.get("remote.origin.url") or (found[0][2] if found else "")


def _without_credentials(url: str) -> str:
    """Nothing before the host but the login name of ssh, which is no secret."""
    bare = re.sub(r"^(ssh|git\+ssh)://([^\s/:@]+)(?::[^\s/@]*)?@", r"\1://\2\n", url)
    bare = re.sub(r"://[^\s/?#]*@", "://", bare)
    return secrets.masked_text(bare).replace("\n", "@", 1)[:_LONGEST_URL]


class _Git:
    """Runs git in one folder, until a deadline."""

    def __init__(self, binary: str, cwd: str, deadline: float) -> None:
        self._command = [binary, "-C", cwd, *_settings(_HARMLESS)]
        self._deadline = deadline
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._environ = {**kept, **_ENVIRON}

    def without_filters(self) -> bool:
        """Clean filters are commands of the repository's, run on files that seem to have changed. False where
        they cannot be switched off."""
        status, text = self.run("config", "-z", "--name-only", "--get-regexp", _FILTERS)
        names = [name for name in text.split("\0") if name]
        if status is None or any("=" in name for name in names):
            return False
        off = [f"{name}={'false' if name.endswith('.required') else ''}" for name in names]
        self._command += _settings(off)
        return True

    def line(self, *arguments: str) -> str:
        """The first line; empty where the command fails."""
        return next(iter(self.lines(*arguments)), "")

    def lines(self, *arguments: str) -> list[str]:
        """Its output; empty where it fails."""
        status, text = self.run(*arguments)
        return text.split("\n")[:-1] if status == 0 else []

    def run(self, *arguments: str) -> tuple[int | None, str]:
        """(status, output); the status is None where it was ended for its length or its time."""
        child = subprocess.Popen(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=self._environ,
            start_new_session=True,  # what it starts ends with it
        )
        assert child.stdout is not None
        whole, data = self._read(child.stdout.fileno())
        if not whole:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: not waited for
            child.wait(1.0)
        child.stdout.close()
        return (child.returncode if whole else None), data.decode("utf-8", "replace")

    def _read(self, fd: int) -> tuple[bool, bytes]:
        data = b""
        readable = select.poll()  # select() takes no descriptor from 1024 on, and an agent may have many
        readable.register(fd, select.POLLIN)
        while len(data) < _MOST_BYTES:
            left = self._deadline - time.monotonic()
            if left <= 0 or not readable.poll(left * 1000):
                return False, data
            piece = os.read(fd, 1 << 16)
            if not piece:
                return True, data
            data += piece
        return False, data


def _settings(items: Iterable[str]) -> list[str]:
    return [word for item in items for word in ("-c", item)]
