"""A run's folder as the agent makes it, with a real journal, and readers of what the sinks made of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankside import wire
from rankside.wire import Kind
from rankside_agent.journal import Journal
from rankside_agent.sinks import cursor_path
from rankside_agent.sinks.forwarder import Forwarder
from rankside_agent.sinks.run import DONE, serve


class RunFolder:
    """One run: `open` begins a channel, `add` appends records as a rank would have sent them."""

    def __init__(self, root: Path, exp_root: Path | None = None, segment_bytes: int = 64 << 10) -> None:
        self.exp_root = exp_root or root / "exp"
        self.key = uuid.uuid4().hex[:12]  # of its own: a server may serve several tests
        self.path = root / "runs" / "demo-0a1b2c3d4e"
        (self.path / "sinks").mkdir(parents=True)
        self.write_facts()
        self.journal = Journal(self.path / "journal" / "points", segment_bytes)
        self.time = 1_767_000_000.0
        self._sequence: dict[int, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def write_facts(self) -> None:
        """run.json."""
        facts = {"run_id": self.path.name, "exp_root": str(self.exp_root), "sinks": ["tensorboard"]}
        facts |= {"key": self.key, "attempts": []}
        (self.path / "run.json").write_text(json.dumps(facts))

    def open(self, rank: int = 7, attempt: int = 1, log_root: str = "logs", **more: Any) -> int:
        """A channel of `rank` in a world of 8; its index."""
        index = len(self._sequence) + 1
        wanted = {"disable_tensorboard": False, "disable_mlflow": False, "disable_wandb": False}
        config = {**wanted, "log_timers_to_tensorboard": True, **more.pop("config", {})}
        info = {
            "channel": f"node-{rank}-{attempt}-{index}",
            "exp_root": str(self.exp_root),
            "exp_name": f"exp-{self.key}",
            "team": "team",
            "user": "user",
            "rank": rank,
            "label": str(rank),
            "world_size": 8,
            "role": "worker",
            "parent": None,
            "started": self.time,
            "config": config,
            "attempt": attempt,
            "log_root": log_root,
            "last": 0,
            **more,
        }
        self.journal.open_channel(index, info)
        self._sequence[index] = 0
        return index

    def add(self, channel: int, *records: tuple[Kind, Any]) -> None:
        """One batch; a body without a time gets one."""
        first = self._sequence[channel] + 1
        frames = []
        for kind, body in records:
            self._sequence[channel] += 1
            self.time += 0.001
            frames.append(wire.seal(self._sequence[channel], kind, wire.pack((self.time, *body))))
        last = self._sequence[channel]
        self.journal.batch(channel, first, last, len(frames), b"".join(frames))

    def metrics(self, channel: int, step: int | None, **values: Any) -> None:
        """One record of metrics."""
        self.add(channel, (Kind.METRICS, (step, values)))

    def figures(self, channel: int, step: int | None, **values: float) -> None:
        """Scalars of the agent's own."""
        self.time += 0.001
        self.journal.figures(channel, {"sample": 0, "time": self.time, "step": step, "values": values})

    def end(self, channel: int, status: str = "finished") -> None:
        """The channel's process is gone."""
        self.journal.end_channel(channel, {"time": self.time, "status": status, "how": "clean"})

    def start(self, name: str = "tensorboard") -> subprocess.Popen[bytes]:
        """The sink's process, as the supervisor starts it."""
        log = (self.path / "sinks" / f"{name}.log").open("ab")
        command = [sys.executable, "-m", "rankside_agent.sinks.run", name, str(self.path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.path, start_new_session=True
        )
        log.close()
        self._processes.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], timeout: float = 60.0) -> None:
        """Close stdin, and see the process leave well."""
        assert process.stdin is not None
        process.stdin.close()
        logs = sorted((self.path / "sinks").glob("*.log"))
        assert process.wait(timeout) == 0, "".join(log.read_text() for log in logs)

    def drain(self, name: str = "tensorboard") -> None:
        """Start a process at the end of its stdin: it delivers all there is, and exits."""
        self.finish(self.start(name))

    def deliver(self, name: str = "tensorboard") -> None:
        """As `drain`, in this process: for what does not depend on one of its own."""
        assert serve(Forwarder(self.path, name), _AtItsEnd()) == DONE, self.status(name)

    def status(self, name: str = "tensorboard") -> dict[str, Any]:
        """What the sink's cursor file says."""
        try:
            found: dict[str, Any] = json.loads(cursor_path(self.path, name).read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def close(self) -> None:
        """End what is left."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(10)
            if process.stdin:
                process.stdin.close()
        self.journal.close()


class _AtItsEnd:
    """A stdin that has ended."""

    def wait(self, _seconds: float) -> bool:
        return True


class Board:
    """What a user of TensorBoard sees in a folder: read with TensorBoard's own accumulators.

    `refresh` goes on reading where it was, as a page that stays open does.
    """

    def __init__(self, folder: Path, read: bool = True) -> None:
        from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator

        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._notebook = event_accumulator.EventAccumulator(
            str(folder), size_guidance={"scalars": 0, "tensors": 0}
        )
        self._page = plugin_event_accumulator.EventAccumulator(str(folder), size_guidance={"tensors": 0})
        if read:
            self.refresh()

    def refresh(self) -> Board:
        """Read on."""
        self._notebook.Reload()
        self._page.Reload()
        return self

    def events(self, tag: str) -> list[Any]:
        """The scalars of a tag in the order shown; the same by both accumulators."""
        found = self._notebook.Scalars(tag) if tag in self._notebook.Tags()["scalars"] else []
        page = self._page.Tensors(tag) if tag in self._page.Tags()["tensors"] else []
        assert [(event.step, event.wall_time) for event in found] == [(e.step, e.wall_time) for e in page]
        return list(found)

    def scalars(self, tag: str) -> list[tuple[int, float]]:
        """(step, value) in the order shown."""
        return [(event.step, event.value) for event in self.events(tag)]

    def texts(self, tag: str) -> list[tuple[int, str]]:
        """(step, content) of a text."""
        page = self._page.Tensors(tag) if tag in self._page.Tags()["tensors"] else []
        return [(event.step, event.tensor_proto.string_val[0].decode()) for event in page]

    def files(self) -> list[Path]:
        """Event files, in the order in which they are read."""
        return sorted(self.folder.glob("*tfevents*"))


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., RunFolder]]:
    """Makes a run's folder."""
    made: list[RunFolder] = []

    def make(**settings: Any) -> RunFolder:
        made.append(RunFolder(tmp_path / f"node-{len(made)}", **settings))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture
def run(make_run: Callable[..., RunFolder]) -> RunFolder:
    """A run's folder."""
    return make_run()


@pytest.fixture
def make_board() -> type[Board]:
    """Reads a folder as TensorBoard does."""
    return Board


@pytest.fixture
def board(run: RunFolder) -> Callable[[], Board]:
    """Reads the run's TensorBoard folder, from its beginning."""
    return lambda read=True: Board(run.exp_root / "tensorboard", read)


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits for a condition, not for a time."""

    def wait(condition: Callable[[], Any], timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout:g} s"
            time.sleep(0.01)

    return wait
