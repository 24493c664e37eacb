"""`rankside replay` with real processes: what a tracker has not got, it gets, each point once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="the agent's extra is not installed")

from rankside import wire
from rankside.wire import Kind
from rankside_agent.demo.trackers import TRACKERS, reader
from rankside_agent.journal import Journal
from rankside_agent.sinks.event_file import records

LONG = 20_000  # steps; a replay of them is met at work


class State:
    """A run's state folder as an agent leaves it: of one rank, with a loss at every step."""

    def __init__(self, node: Any, folder: str = "done", steps: int = 50, ended: float | None = 1.7e9) -> None:
        self.exp = node.exp
        self.folder = node.state / folder / "exp-0123456789"
        self.steps = steps
        self.folder.mkdir(parents=True)
        self.facts: dict[str, Any] = {
            "run_id": self.folder.name,
            "exp_name": "exp",
            "exp_root": str(node.exp),
            "key": "0123456789ab",
            "world_size": 1,
            "updated": 1.7e9,
            "sinks": [],
            "attempts": [{"n": 1, "job": "j", "log_root": "logs", "ended": ended, "status": "running"}],
        }
        if ended is not None:
            self.facts["attempts"][0]["status"] = "finished"
        self.write_facts()
        self.journal = Journal(self.folder / "journal" / "points", 1 << 20)
        self._write_journal(ended is not None)

    def write_facts(self) -> None:
        self.folder.joinpath("run.json").write_text(json.dumps(self.facts))

    def _write_journal(self, ended: bool) -> None:
        rank = {"rank": 0, "world_size": 1, "label": "0", "role": "worker", "parent": None}
        self.journal.open_channel(1, {**rank, "channel": "c", "attempt": 1, "config": {}, "log_root": "logs"})
        for first in range(1, self.steps + 1, 100):
            steps = range(first, min(first + 100, self.steps + 1))
            bodies = [wire.pack((1.7e9 + step / 1000, step, {"loss": 1 / step})) for step in steps]
            frames = [
                wire.seal(*each) for each in zip(steps, [Kind.METRICS] * len(steps), bodies, strict=True)
            ]
            self.journal.batch(1, steps[0], steps[-1], len(frames), b"".join(frames))
        if ended:
            self.journal.end_channel(1, {"time": 1.7e9, "status": "finished", "how": "clean"})
        self.journal.close()

    def cursor(self) -> dict[str, Any]:
        """Of the tensorboard sink, wherever the folder lies by now."""
        for place in ("runs", "done"):
            path = self.folder.parents[1] / place / self.folder.name / "sinks" / "tensorboard.json"
            if path.exists():
                return json.loads(path.read_text())
        return {}

    def shown(self) -> list[int]:
        """The steps in the event files, in the order of writing."""
        return steps_in(self.exp)

    def whole(self) -> bool:
        return self.shown() == list(range(1, self.steps + 1))


def steps_in(exp: Path) -> list[int]:
    from tensorboard.compat.proto.event_pb2 import Event

    events = [
        Event.FromString(data)
        for path in sorted((exp / "tensorboard").glob("*tfevents*"))
        for _, data in records(path)
    ]
    return [event.step for event in events for value in event.summary.value if value.tag == "loss"]


def start(node: Any, *words: str, **env: str) -> subprocess.Popen[bytes]:
    return node._start([sys.executable, "-m", "rankside_agent", "replay", *words], "replay", env)


def at_work(node: Any, state: State) -> dict[str, Any]:
    """The cursor, once the replay's process has delivered a part."""
    node.until(lambda: state.cursor().get("read"), "a part is delivered")
    return state.cursor()


# -- what is forwarded -------------------------------------------------------------------------------


def test_a_run_that_no_tracker_was_told_of_is_forwarded_to_all_of_them_once_it_is_wanted(node):
    """Each is read back with its own means."""
    node.agent()
    node.finish(node.rank("for step in range(1, 21): mon.metrics({'loss': 1 / step}, step=step)"))
    node.until(node.all_delivered, "the run finished")
    assert not (node.exp / "tensorboard").exists()
    done = node.command("replay", "exp", "--to", *TRACKERS, WANDB_MODE="offline")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in TRACKERS:
        points = reader(name)(node.exp, 20)["loss"]
        assert [step for step, _ in points] == list(range(1, 21)), name
        assert [value for _, value in points] == pytest.approx([1 / step for step in range(1, 21)])
        assert f"{name}: all delivered, " in done.stdout
    assert f"the run's files: {node.exp}; " in done.stdout.strip().split("\n")[-1]


def test_a_run_that_goes_on_is_forwarded_so_far_and_later_to_its_end(node):
    node.agent()
    body = """
        for step in range(1, 11): mon.metrics({'loss': 1 / step}, step=step)
        while not os.path.exists('go'): time.sleep(0.02)
        for step in range(11, 21): mon.metrics({'loss': 1 / step}, step=step)
        """
    rank = node.rank(body)
    journal = node.state / "runs"
    node.until(lambda: any(p.stat().st_size > 1500 for p in journal.glob("*/journal/points/*.seg")), "points")
    first = node.command("replay", str(node.exp), "--to", "tensorboard")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "the run goes on under the agent with pid" in first.stdout
    assert steps_in(node.exp) == list(range(1, 11))
    (cursor,) = journal.glob("*/sinks/tensorboard.json")
    assert json.loads(cursor.read_text())["finished"] == ""
    (node.base / "go").touch()
    node.finish(rank)
    node.until(node.all_delivered, "the run finished")
    assert node.command("replay", "exp", "--to", "tensorboard").returncode == 0
    assert steps_in(node.exp) == list(range(1, 21))
    (cursor,) = node.state.glob("done/*/sinks/tensorboard.json")
    assert json.loads(cursor.read_text())["finished"].startswith("1 finished ")


def test_a_second_replay_has_nothing_to_do_and_again_doubles_nothing(node):
    state = State(node)
    assert node.command("replay", "exp", "--to", "tensorboard").returncode == 0
    second = node.command("replay", "exp", "--to", "tensorboard")
    assert second.returncode == 0
    assert "tensorboard: had all 50 records (50 points); --again forwards them anew" in second.stdout
    assert "starting" not in second.stdout
    again = node.command("replay", "exp", "--to", "tensorboard", "--again")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "everything is sent again from the beginning" in again.stdout
    assert "all delivered, 50 points" in again.stdout
    assert state.whole()


def test_a_copied_state_folder_is_given_by_its_path_and_nothing_but_sinks_is_written_in_it(node):
    state = State(node)
    copy = node.base / "elsewhere"
    state.folder.rename(copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = node.command("replay", "elsewhere", "--to", "tensorboard")
    assert done.returncode == 0, done.stdout + done.stderr
    assert state.whole()
    after = {
        path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and "sinks" not in path.parts
    }
    assert after == before
    assert sorted(path.name for path in (copy / "sinks").iterdir()) == [
        "tensorboard.json",
        "tensorboard.lock",
        "tensorboard.log",
    ]


def test_a_run_whose_end_nobody_saw_was_killed(node):
    state = State(node, folder="runs", ended=None)
    done = node.command("replay", "exp", "--to", "tensorboard")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nobody saw how the run ended" in done.stdout
    assert state.cursor()["finished"] == "1 killed 50"
    assert json.loads((state.folder / "run.json").read_text()) == state.facts


# -- ends before the end -----------------------------------------------------------------------------


def test_a_replay_that_is_killed_is_continued_without_a_doubled_point(node):
    state = State(node, steps=LONG)
    command = start(node, "exp", "--to", "tensorboard")
    process = at_work(node, state)["pid"]
    node.end(command, signal.SIGKILL)
    node.until(lambda: not Path(f"/proc/{process}/cmdline").exists(), "its process has ended too")
    first = state.cursor()
    assert 0 < first["read"] < LONG

    command = start(node, "exp", "--to", "tensorboard")
    node.until(lambda: state.cursor()["pid"] != first["pid"], "the second goes on")
    os.kill(state.cursor()["pid"], signal.SIGKILL)
    node.finish(command, code=1)
    assert "ended with status -9" in node.log("replay")
    assert f"run it again to go on: rankside replay {state.folder} --to tensorboard" in node.log("replay")
    assert state.cursor()["read"] < LONG

    assert node.command("replay", "exp", "--to", "tensorboard").returncode == 0
    assert state.whole(), Counter(state.shown()).most_common(3)


def test_ctrl_c_leaves_it_to_be_continued_and_says_how(node):
    state = State(node, steps=LONG)
    replay = start(node, "exp", "--to", "tensorboard")
    child = at_work(node, state)["pid"]
    replay.send_signal(signal.SIGTERM)
    replay.send_signal(signal.SIGINT)  # the impatient second one
    node.finish(replay, code=130)
    assert "this goes on: rankside replay exp --to tensorboard" in node.log("replay")
    assert "Traceback" not in node.log("replay")
    assert not Path(f"/proc/{child}").exists()
    assert state.cursor()["state"] == "waiting"
    assert node.command("replay", "exp", "--to", "tensorboard").returncode == 0
    assert state.whole()


def test_a_folder_that_the_agent_moves_meanwhile_is_followed(node):
    state = State(node, folder="runs", steps=LONG)
    replay = start(node, "exp", "--to", "tensorboard")
    at_work(node, state)
    (node.state / "done").mkdir()
    state.folder.rename(node.state / "done" / state.folder.name)
    node.finish(replay)
    assert "put the run's folder elsewhere meanwhile" in node.log("replay")
    assert not state.folder.exists()
    assert state.whole()


def test_a_tracker_that_is_away_is_waited_for_and_then_named(node):
    state = State(node)
    node.exp.mkdir()
    (node.exp / "tensorboard").write_text("in the way")
    waited = node.command("replay", "exp", "--to", "tensorboard", "--patience", "1")
    assert waited.returncode == 1
    assert "the tracker takes nothing now (" in waited.stdout
    assert "run it again to go on: rankside replay" in waited.stdout
    replay = start(node, "exp", "--to", "tensorboard", "--patience", "0")
    node.until(lambda: "0 of 50 records, waiting, next try in " in node.log("replay"), "it waits")
    (node.exp / "tensorboard").unlink()
    node.finish(replay)
    assert state.whole()


def test_the_callers_variables_go_before_the_trainings_and_no_rank_is_among_them(node):
    state = State(node)
    node.exp.mkdir()
    (node.exp / "tensorboard").write_text("in the way, so that the process stays to be looked at")
    (state.folder / "sinks").mkdir()
    told = {"MLFLOW_TRACKING_URI": "http://training", "WANDB_MODE": "offline"}
    (state.folder / "sinks" / "environ.json").write_text(json.dumps(told))
    ours = {"MLFLOW_TRACKING_URI": "http://here", "RANK": "3", "WANDB_SERVICE": "x", "WORLD_SIZE": "8"}
    replay = start(node, "exp", "--to", "tensorboard", **ours)
    node.until(lambda: state.cursor().get("state") == "waiting", "it waits")
    environ = Path(f"/proc/{state.cursor()['pid']}/environ").read_text().split("\0")
    found = dict(entry.split("=", 1) for entry in environ if entry)
    assert node.end(replay, signal.SIGINT) == 130
    assert found["MLFLOW_TRACKING_URI"] == "http://here"
    assert found["WANDB_MODE"] == "offline"
    assert "MLFLOW_TRACKING_URI" in found["RANKSIDE_REPLAY"].split(",")
    assert not {"RANK", "WORLD_SIZE", "WANDB_SERVICE"} & found.keys()


def test_a_run_that_a_living_sink_has_is_left_to_it(node):
    state = State(node)
    (state.folder / "sinks").mkdir()
    command = [sys.executable, "-m", "rankside_agent.sinks.run", "tensorboard", str(state.folder)]
    sink = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        node.until(lambda: state.cursor().get("pid") == sink.pid, "the sink has it")
        busy = node.command("replay", "exp", "--to", "tensorboard", "--again")
    finally:
        sink.communicate(timeout=30)
    assert busy.returncode == 1
    assert f"the process with pid {sink.pid} forwards this run to it now" in busy.stdout
    assert "Traceback" not in busy.stdout + busy.stderr


# -- wrong use ---------------------------------------------------------------------------------------


def test_what_is_not_known_is_told_with_what_is(node):
    State(node)
    unknown = node.command("replay", "other", "--to", "tensorboard")
    assert unknown.returncode == 1
    assert f"run 'other' is not known in {node.state}; known: exp" in unknown.stderr
    tracker = node.command("replay", "exp", "--to", "tensorboard,wandbb")
    assert tracker.returncode == 2
    assert "--to: unknown 'wandbb'; known: " in tracker.stderr
    assert node.command("replay", "exp").returncode == 2
    assert node.command("replay").returncode == 2


def test_a_journal_that_is_missing_or_empty_and_a_node_without_the_last_rank_are_told(node):
    state = State(node, steps=0)
    empty = node.command("replay", "exp", "--to", "tensorboard")
    assert empty.returncode == 1
    assert "is empty: no rank of exp sent metrics or params" in empty.stderr
    for segment in (state.folder / "journal" / "points").iterdir():
        segment.unlink()
    missing = node.command("replay", "exp", "--to", "tensorboard")
    assert missing.returncode == 1
    assert "points holds no journal" in missing.stderr
    assert not (state.folder / "sinks").exists()


def test_a_node_that_does_not_speak_for_the_run_is_refused(node):
    state = State(node)
    state.facts["world_size"] = 16
    state.facts["attempts"][0]["ranks"] = {str(rank): {} for rank in range(8)}
    state.write_facts()
    refused = node.command("replay", "exp", "--to", "tensorboard")
    assert refused.returncode == 1
    assert "holds 8 of 16 ranks, and not rank 15, which speaks for the run" in refused.stderr
