"""rsyslog beside the agent: the same records, from a socket into a rank's two files and the node's one.

Separate from the agent's scenes because it is somebody else's program, which is left out where it is not
installed. It acknowledges nothing and keeps nothing for a crash, which is what the agent's CPU pays for.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from samples import TEXT, yardstick
from usage import usage
from workplace import Workplace

_DEADLINE = 120.0  # seconds for one round
_LOOK = 0.005
_BLOCK = 500  # records for one write to the socket
_HEAD = "[%timestamp%][user/team][pretrain   ][ip-10.0.0.7][rank-%programname%/8][INFO]     "
_CONFIG = """
global(workDirectory="{folder}" maxMessageSize="64k")
module(load="imptcp")
template(name="debug" type="string" string="{root}/rank-%programname%/debug.log")
template(name="info" type="string" string="{root}/rank-%programname%/info.log")
template(name="node" type="string" string="{root}/node-host.log")
template(name="line" type="string" string="{head}[-----------train.py:215] :%msg%\\n")
ruleset(name="ranks") {{
  action(type="omfile" dynaFile="debug" template="line")
  action(type="omfile" dynaFile="info" template="line")
  action(type="omfile" dynaFile="node" template="line")
}}
input(type="imptcp" address="127.0.0.1" port="{port}" ruleset="ranks")
"""


@dataclass(frozen=True)
class _Scene:
    title: str


class Syslog:
    """A stand like the agent's: `flood` is a round of one sender as fast as it is taken."""

    def __init__(self, place: Workplace, records: int, round_of: type) -> None:
        self.scene = _Scene("rsyslog, 1 sender, files in memory")
        self.rounds: list = []  # type: ignore[type-arg]  # of round_of, the agent's own
        self._records = records
        self._round_of = round_of
        self._root = place.memory / "rsyslog"
        self._root.mkdir()
        self._port = _free_port()
        config = self._root / "rsyslog.conf"
        config.write_text(_CONFIG.format(folder=self._root, root=self._root, port=self._port, head=_HEAD))
        with (self._root / "rsyslogd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [_binary(), "-n", "-f", str(config), "-i", str(self._root / "pid")], stdout=log, stderr=log
            )
        self._socket = self._connected()

    @staticmethod
    def missing() -> bool:
        """Whether there is none on this machine."""
        return not os.path.exists(_binary())

    def flood(self) -> None:
        """One round: from the first byte until all three files have grown by all records."""
        os.sync()
        line = f"<14>Jan  2 03:04:05 host 7: {TEXT}\n".encode()
        packb, before = yardstick(), usage(self._process.pid)
        held, began, cpu = self._lines(), time.monotonic(), time.process_time()
        for _ in range(self._records // _BLOCK):
            self._socket.sendall(line * _BLOCK)
        spent = time.process_time() - cpu
        self._await(held + self._sent())
        seconds, after = time.monotonic() - began, usage(self._process.pid)
        packb = (packb + yardstick()) / 2
        self.rounds.append(self._round_of(self._sent(), seconds, before, after, spent, packb))

    def check(self) -> None:
        """Each record once in each of the three files."""
        wanted = self._sent() * len(self.rounds)
        for path in self._files():
            found = path.read_bytes().count(TEXT.encode())
            if found != wanted:
                raise RuntimeError(f"rsyslog: {found} records in {path.name}, not {wanted}")

    def end(self) -> None:
        """The process and its files."""
        self._socket.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def _sent(self) -> int:
        return self._records // _BLOCK * _BLOCK

    def _files(self) -> list[Path]:
        return [
            self._root / "rank-7" / "debug.log",
            self._root / "rank-7" / "info.log",
            self._root / "node-host.log",
        ]

    def _lines(self) -> int:
        """In the file that has fewest: all lines are of one length."""
        length = len(self._first()) if self._first() else 1
        return min((path.stat().st_size if path.exists() else 0) // length for path in self._files())

    def _first(self) -> bytes:
        try:
            with self._files()[0].open("rb") as file:
                return file.readline()
        except OSError:
            return b""

    def _await(self, lines: int) -> None:
        deadline = time.monotonic() + _DEADLINE
        while self._lines() < lines:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"rsyslog: {lines} records are not in its files")
            time.sleep(_LOOK)

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + _DEADLINE
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.02)


def _binary() -> str:
    return shutil.which("rsyslogd") or "/usr/sbin/rsyslogd"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
