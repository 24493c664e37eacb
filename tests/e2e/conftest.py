"""A node of its own for each test: endpoint, state, spool and run folder below one short temporary path."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_FOREIGN = ("RANKSIDE_", "PRIMUS_", "SLURM_", "WANDB_", "MLFLOW_", "DATABRICKS_")
PATIENCE = 60.0  # seconds; what fails, fails after this


class Node:
    """Starts real agents and real ranks, and ends each by its own id."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.exp = base / "exp"
        self.endpoint = f"ipc://{base}/a.sock"
        self.state = base / "state"
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)},
            "RANKSIDE_ENDPOINT": self.endpoint,
            "RANKSIDE_STATE_DIR": str(self.state),
            "RANKSIDE_SPOOL_DIR": str(base / "spool"),
            "PYTHONUNBUFFERED": "1",
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def command(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`rankside ...`, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "rankside_agent", *words],
            env={**self.env, **env},
            cwd=self.base,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def agent(self, *options: str, wait: bool = True, **env: str) -> subprocess.Popen[bytes]:
        """A real agent in the foreground; `wait` until it listens."""
        process = self._start([sys.executable, "-m", "rankside_agent", "agent", *options], "agent", env)
        if wait:
            self.until(lambda: self.log("agent").count("listens on") == self.agents, "agent listening")
        return process

    @property
    def agents(self) -> int:
        return sum(1 for process in self.started if "agent" in process.args)

    def rank(
        self, body: str, rank: int | None = 0, world: int = 1, settings: str = "", **env: str
    ) -> subprocess.Popen[bytes]:
        """A real rank that runs `body`; `mon` and `log` are there, everything else is its own business."""
        head = f"""
            import logging, os, signal, sys, time
            import rankside
            mon = rankside.init(exp_root={str(self.exp)!r}, rank={rank}, world_size={world}, {settings})
            mon.capture_logging()
            log = logging.getLogger("train")
            """
        script = self.base / f"rank-{rank}-{len(self.started)}.py"
        script.write_text(textwrap.dedent(head) + textwrap.dedent(body))
        return self._start([sys.executable, str(script)], f"rank-{rank}", env)

    def _start(self, command: list[str], name: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        with open(self.base / f"{name}.out", "ab") as out:
            process = subprocess.Popen(
                command,
                env={**self.env, **env},
                cwd=self.base,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
        """Signal it and wait."""
        if process.poll() is None:
            process.send_signal(number)
        return process.wait(PATIENCE)

    def finish(self, *processes: subprocess.Popen[bytes], code: int = 0) -> None:
        """Wait for processes that end by themselves."""
        for process in processes:
            assert process.wait(PATIENCE) == code, self.outputs()

    def until(self, true: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
        """Wait for an event, with a deadline."""
        deadline = time.monotonic() + patience
        while not true():
            assert time.monotonic() < deadline, f"waited in vain for: {what}\n{self.outputs()}"
            time.sleep(0.02)

    def log(self, name: str) -> str:
        """What a process printed."""
        path = self.base / f"{name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def outputs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.base.glob("*.out")
        )

    def lines(
        self, rank: int | str = 0, level: str = "debug", module: str = "pretrain", root: str = "logs"
    ) -> list[str]:
        """Lines of a rank's level file, rotated ones first."""
        folder = self.exp / root / module / f"rank-{rank}"
        paths = [*sorted(folder.glob(f"{level}.2*.log")), folder / f"{level}.log"]
        return [
            line
            for path in paths
            if path.exists()
            for line in path.read_text(errors="replace").split("\n")
            if line
        ]

    def texts(self, rank: int | str = 0, **where: str) -> list[str]:
        """The texts alone, what stands behind the location."""
        return [found[1] for line in self.lines(rank, **where) if (found := re.search(r"\] : (.*)$", line))]

    def node_lines(self, module: str = "pretrain") -> list[str]:
        folder = self.exp / "logs" / module
        return [
            line
            for path in sorted(folder.glob("node-*.log"))
            for line in path.read_text().split("\n")
            if line
        ]

    def all_delivered(self) -> bool:
        """Every run was finished and moved away; one that no agent has found yet is not."""
        runs, done = self.state / "runs", self.state / "done"
        return runs.exists() and done.exists() and not any(runs.iterdir()) and any(done.iterdir())

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(10)


@pytest.fixture
def node() -> Iterator[Node]:
    base = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))  # a socket's path has 107 bytes
    made = Node(base)
    yield made
    made.close()
    shutil.rmtree(base, ignore_errors=True)


def numbered(texts: list[str], word: str = "line") -> list[int]:
    return [int(text.split()[1]) for text in texts if text.startswith(f"{word} ")]


@pytest.fixture
def numbers() -> Callable[..., list[int]]:
    """The numbers of lines `line 1`, `line 2` and so on."""
    return numbered
