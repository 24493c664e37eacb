"""The node of one chaos run: small disks, a clock, an agent that comes and goes, ranks; it ends them all.

Separate from the deeds, which say what is done to them, and from the driver, which says when.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from tests.chaos import shifted
from tests.chaos.disk import Disk
from tests.chaos.plan import Plan, Start

REPOSITORY = Path(__file__).parents[2]
_FOREIGN = ("RANKSIDE_", "PRIMUS_", "SLURM_", "WANDB_", "MLFLOW_", "DATABRICKS_", "OMPI_", "PMI_")

_NO_ROOM = 2  # how an agent ends that cannot begin its state folder


class Stage:
    """Real processes below one short temporary path."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.base = Path(tempfile.mkdtemp(prefix="ch-", dir="/tmp"))  # a socket's path has 107 bytes
        self.disks = {name: Disk(self.base / name) for name in ("exp", "state")}
        self.exp = self.disks["exp"].path / "run"
        self.kept = self.disks["exp"].path / "kept"  # what deeds took away from the user's eyes
        self.state = self.disks["state"].path / "agent"
        self.oracle = self.base / "oracle"
        for folder in (self.kept, self.oracle):
            folder.mkdir()
        self.clock = str(self.base / "clock")
        shifted.make(self.clock)
        (self.base / "agent.json").write_text(json.dumps(plan.agent))  # every JSON is YAML
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)},
            "PYTHONPATH": ":".join(str(REPOSITORY / part) for part in ("", "client", "agent")),
            "PYTHONUNBUFFERED": "1",
            "RANKSIDE_ENDPOINT": f"ipc://{self.base}/a.sock",
            "RANKSIDE_STATE_DIR": str(self.state),
            "RANKSIDE_SPOOL_DIR": str(self.base / "spool"),
            "WANDB_MODE": "offline",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "2",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "GIT_PYTHON_REFRESH": "quiet",
        }
        self.agent: subprocess.Popen[bytes] | None = None
        self.expected = True  # whether the agent may end now: somebody has told it to
        self.ranks: dict[tuple[int, int], subprocess.Popen[bytes]] = {}  # living ones, by start and rank
        self.exits: list[str] = []  # how ranks ended that nobody killed
        self.killed: set[int] = set()  # pids
        self.proxy: Any = None
        self._server: Any = None

    # -- processes -----------------------------------------------------------------------------------

    def start_agent(self) -> None:
        """One more life of it, unless there is one."""
        if self.agent is None:
            command = ["tests.chaos.shifted", self.clock, "rankside_agent", "agent"]
            self.agent = self._run([*command, "--config", str(self.base / "agent.json")], "agent")
            self.expected = False

    def agent_gone(self) -> bool:
        """Whether it has ended since the last look."""
        if self.agent is None or self.agent.poll() is None:
            return False
        no_room = self.disks["state"].was_full and self.agent.returncode == _NO_ROOM
        if not self.expected and not (no_room and "No space left" in self._last_words("agent")):
            self.exits.append(f"the agent ended by itself: {self.agent.returncode}")
        self.agent = None
        return True

    def _last_words(self, name: str) -> str:
        return (self.base / f"{name}.out").read_text(errors="replace")[-300:]

    def start_ranks(self, start: Start) -> None:
        """All ranks of a start, as torchrun starts them again."""
        for told in start.ranks:
            rank = told["rank"]
            given = {
                **told,
                "exp_root": str(self.exp),
                "oracle": str(self.oracle),
                "clock": self.clock,
                "ready": str(self.base / f"ready-{start.number}-{rank}"),
                "config": self._config(),
            }
            environ = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(start.world),
                "LOCAL_WORLD_SIZE": str(start.world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29500",
                "TORCHELASTIC_RUN_ID": "none",
                "TORCHELASTIC_RESTART_COUNT": str(start.number - 1),
            }
            process = self._run(["tests.chaos.rank", json.dumps(given)], f"rank-{rank}", environ)
            self.ranks[start.number, rank] = process

    def rank(self, rank: int) -> subprocess.Popen[bytes] | None:
        """That of the newest start that has one."""
        found = [process for (_, number), process in sorted(self.ranks.items()) if number == rank]
        return found[-1] if found else None

    def reap(self) -> None:
        """Forget ranks that have ended; one that nobody killed must have done so as it was told."""
        for key, process in list(self.ranks.items()):
            if process.poll() is not None:
                del self.ranks[key]
                planned = self.plan.starts[key[0] - 1].ranks[key[1]]["ending"] == "raise"
                if process.returncode != int(planned) and process.pid not in self.killed:
                    self.exits.append(f"start {key[0]} rank {key[1]} ended with {process.returncode}")

    def children_over(self) -> bool:
        """Whether no forked child of any rank lives."""
        return not self._ours("tests.chaos.rank")

    def sinks(self) -> list[psutil.Process]:
        """The agent's processes of trackers, orphans of an earlier one included; in a fixed order."""
        return sorted(self._ours("rankside_agent.sinks.run"), key=lambda each: each.pid)

    def _ours(self, module: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                mine = module in words and any(str(self.base) in word for word in words)
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _run(
        self, words: list[str], name: str, environ: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with open(self.base / f"{name}.out", "ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**self.environ, **(environ or {})},
                cwd=self.base,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def frozen(self, work: Callable[[], None]) -> None:
        """Do something while the agent stands still, in the middle of whatever it does."""
        agent = self.agent
        if agent is None:
            work()
            return
        already = _stopped(agent.pid)
        agent.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while not _stopped(agent.pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        try:
            work()
        finally:
            if not already:
                agent.send_signal(signal.SIGCONT)

    def limit_files(self, most: int) -> None:
        """Their size, for the agent and all sinks that live now: what a limited agent starts is limited."""
        agent = [self.agent.pid] if self.agent else []
        for pid in [*agent, *(sink.pid for sink in self.sinks())]:
            with suppress(ProcessLookupError, PermissionError):
                hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, hard))

    # -- trackers ------------------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        names = {
            "tensorboard": "tensorboard",
            "mlflow": "mlflow",
            "mlflow-server": "mlflow",
            "wandb": "wandb",
        }
        return {
            **{f"disable_{names[each]}": False for each in self.plan.trackers},
            "wandb_project": "p",
            "log_interval": 5,
            "log_timers_to_tensorboard": True,  # the iteration-time is one of them
        }

    def start_trackers(self) -> None:
        """A real MLflow server behind a proxy, where the plan has one."""
        if "mlflow-server" in self.plan.trackers:
            sys.path.insert(0, str(REPOSITORY / "tests/agent/sinks"))
            from mlflow_server import Proxy, Server

            folder = self.base / "mlflow"
            folder.mkdir()
            self._server = Server(folder).start()
            self.proxy = Proxy(self._server).start()
            self.environ["MLFLOW_TRACKING_URI"] = self.proxy.uri

    @property
    def mlflow_uri(self) -> str:
        """Where MLflow's own client finds what was logged."""
        return self._server.uri if self._server else f"sqlite:///{self.exp}/mlflow.db"

    # -- the end -------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing stands in the way any more."""
        for disk in self.disks.values():
            disk.free()
        self.limit_files(resource.RLIM_INFINITY)
        for process in [*self.ranks.values(), *([self.agent] if self.agent else [])]:
            process.send_signal(signal.SIGCONT)
        for sink in self.sinks():
            with suppress(psutil.Error):
                sink.resume()
        if self.proxy:
            self.proxy.trouble = 0
            if self.proxy._http is None:
                self.proxy.start()

    def delivered(self) -> bool:
        """No run is unfinished, no spool is left."""
        runs, done = self.state / "runs", self.state / "done"
        if any((self.base / "spool").glob("*/*/channel")):  # without it a rank died before it had said a word
            return False
        told = any(self.oracle.iterdir())
        return runs.exists() and not any(runs.iterdir()) and (not told or any(done.glob("*")))

    def status(self) -> str:
        """What the agent says of itself."""
        command = [sys.executable, "-m", "rankside_agent", "status", "--json"]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def close(self, keep: bool) -> None:
        """End what lives, by its id; `keep`: what lies on the disks stays, under the base."""
        processes = [*self.ranks.values(), *([self.agent] if self.agent else [])]
        for process in processes:
            process.kill()
            process.wait(10)
        for module in ("rankside_agent.sinks.run", "tests.chaos.rank"):
            for sink in self._ours(module):
                for each in [sink, *_descendants(sink)]:
                    with suppress(psutil.Error):
                        each.kill()
        if self.proxy:
            self.proxy.stop()
            self._server.stop()
        for disk in self.disks.values():
            disk.close(keep)
        if not keep:
            shutil.rmtree(self.base, ignore_errors=True)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except OSError:
        return True
