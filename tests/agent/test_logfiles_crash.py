"""Every line once and in order, wherever the agent dies: between any two system calls, and for real."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rankside_agent.journal import Journal
from rankside_agent.logfile import Rotation

Scene = Any  # of conftest.py
CALLS = ("open", "write", "rename", "replace", "truncate", "ftruncate", "mkdir", "close", "unlink")


class Crash(BaseException):
    """The process is gone."""


class Death:
    """Kills at the n-th system call that changes a disk: before it, in the middle of it, or after it."""

    def __init__(self, at: int, when: str, patch: pytest.MonkeyPatch) -> None:
        self.left, self._when, self.died = at, when, False
        for name in CALLS:
            patch.setattr(os, name, self._dying(getattr(os, name), name))

    def _dying(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if self.died:
                raise Crash  # nothing more comes from a dead process
            self.left -= 1
            if self.left:
                return real(*args, **more)
            self.died = True
            if self._when == "middle" and name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            elif self._when != "before":
                real(*args, **more)
            raise Crash

        return call


def write_until_death(scene: Scene, at: int, when: str, work: Callable[[Scene], None]) -> bool:
    """Whether it came to that."""
    with pytest.MonkeyPatch.context() as patch:
        death = Death(at, when, patch)
        with suppress(Crash):
            work(scene)
    return death.died


def check(scene: Scene, last: int) -> None:
    wanted = [f"line {number}" for number in range(1, last + 1)]
    for rank in range(2):
        half = [text for number, text in enumerate(wanted) if number % 2 == rank]
        found = scene.texts(rank) + scene.texts(rank, module="sft")
        assert found == half
        assert scene.texts(rank, level="info") + scene.texts(rank, level="info", module="sft") == half
        errors = [text for text in half if text.endswith("7")]
        found = scene.texts(rank, level="error") + scene.texts(rank, level="error", module="sft")
        assert found == errors
    assert scene.node_texts() + scene.node_texts("sft") == wanted


def fill(scene: Scene, first: int, last: int, module_at: int = -1) -> None:
    """Two ranks take turns; both go on in another module at `module_at`."""
    for number in range(first, last + 1):
        channel = scene.channels[(number - 1) % 2]
        if number in (module_at, module_at + 1):
            scene.journal.module(channel, "sft")
        scene.log(channel, f"line {number}", level=40 if number % 10 == 7 else 20)


@pytest.fixture
def rotating(scene: Scene) -> Scene:
    """Small files, small steps, and checkpoints as often as can be."""
    scene.rotation = Rotation(1500, None, False)
    scene.step_bytes = 500
    scene.channels = [scene.channel(rank) for rank in range(2)]
    scene.take_up()
    return scene


def advance_all(scene: Scene) -> None:
    while scene.files.advance():
        scene.now += 0.11  # every third step has a checkpoint


@pytest.mark.parametrize("when", ["before", "middle", "after"])
def test_killed_at_every_system_call_in_turn_it_loses_and_doubles_nothing(rotating: Scene, when: str):
    """One history, in which each start gets a few calls further than death did before."""
    last = 0
    for at in range(1, 80, 1 if when == "after" else 2):
        fill(rotating, last + 1, last + 6, module_at=121)
        last += 6
        rotating.take_up()
        write_until_death(rotating, at, when, advance_all)
    rotating.take_up()
    rotating.drain()
    check(rotating, last)


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_random_calls_again_and_again(rotating: Scene, seed: int):
    chance = random.Random(seed)
    last, deaths = 0, 0
    for _ in range(25):
        count = chance.choice([0, 1, 5, 20])
        fill(rotating, last + 1, last + count, module_at=101)
        last += count

        def start_and_write(scene: Scene) -> None:
            scene.take_up()
            advance_all(scene)

        when = chance.choice(["before", "middle", "after"])
        deaths += write_until_death(rotating, chance.randrange(1, 60), when, start_and_write)
    rotating.take_up()
    rotating.drain()
    check(rotating, last)
    assert deaths > 5


@pytest.mark.parametrize("at", range(1, 40))
def test_killed_in_a_rotation_it_goes_on_as_if_nothing_had_been(rotating: Scene, at: int):
    fill(rotating, 1, 30)
    rotating.drain()
    rotating.files.save()
    fill(rotating, 31, 40)
    write_until_death(rotating, at, "after", advance_all)
    rotating.take_up()
    rotating.drain()
    check(rotating, 40)


@pytest.mark.parametrize("seed", range(8))
def test_killed_while_files_wait_in_lanes_of_their_own(rotating: Scene, seed: int):
    chance = random.Random(seed)
    last = 0
    blocked = rotating.path(0)
    blocked.mkdir(parents=True)
    for turn in range(20):
        fill(rotating, last + 1, last + 10)
        last += 10
        if turn == 10:
            blocked.rmdir()
        rotating.take_up()
        write_until_death(rotating, chance.randrange(1, 80), chance.choice(["before", "after"]), advance_all)
        rotating.now += chance.choice([0.1, 1, 6])
    rotating.take_up()
    rotating.wait(10)
    check(rotating, last)


def test_what_was_deleted_and_written_anew_right_before_a_crash_is_not_doubled(rotating: Scene):
    """The new file has, on most file systems, the inode of the deleted one."""
    rotating.rotation = Rotation(10_000_000, None, False)
    rotating.take_up()
    fill(rotating, 1, 20)
    rotating.drain()
    rotating.files.save()
    for file in rotating.files._files.values():
        file.close()
    rotating.path(0).unlink()
    fill(rotating, 21, 30)
    while rotating.files.advance():
        pass  # and no checkpoint that the clock asked for
    rotating.take_up()
    rotating.drain()
    assert rotating.texts(0) == [f"line {number}" for number in range(21, 31, 2)]
    assert rotating.texts(1) == [f"line {number}" for number in range(2, 31, 2)]


def test_what_was_truncated_from_outside_right_before_a_crash_is_not_doubled(rotating: Scene):
    rotating.rotation = Rotation(10_000_000, None, False)
    rotating.take_up()
    fill(rotating, 1, 20)
    rotating.drain()
    rotating.files.save()
    os.truncate(rotating.path(0), 0)
    fill(rotating, 21, 30)
    while rotating.files.advance():
        pass
    rotating.take_up()
    rotating.drain()
    assert rotating.texts(0) == [f"line {number}" for number in range(21, 31, 2)]


# -- real processes -------------------------------------------------------------------------------------

# Forks one writer after the other and kills each at a random instant; the journal grows meanwhile.
KILLER = """
import json, os, random, signal, sys, threading, time
from pathlib import Path
from rankside_agent import logfiles
from rankside_agent.logfile import Rotation
from rankside_agent.logfiles import LogFiles
root, kills, longest = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
logfiles._CHECKPOINT = 0.001
rotation = Rotation(20_000, None, sys.argv[4] == "gzip")

def write(until_done):
    files = LogFiles(root / "journal", root / "logfiles.json", root / "exp", rotation, print)
    files._step_bytes = 3000
    while files.advance() or not until_done:
        pass
    files.close()

chance = random.Random(7)
killed = 0
while killed < kills:
    pid = os.fork()
    if not pid:
        try:
            write(until_done=False)
        finally:
            os._exit(1)
    time.sleep(chance.random() * longest)
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    killed += 1
write(until_done=True)
for thread in threading.enumerate():
    if thread.name == "rankside-rotated":  # what a kill left unpacked stays until the next rotation
        thread.join()
"""


def kill_again_and_again(
    scene: Scene, kills: int, longest: float, records: int, packed: bool = False
) -> None:
    scene.channels = [scene.channel(rank) for rank in range(2)]
    fill(scene, 1, records, module_at=records // 2 + 1)
    command = [sys.executable, "-c", KILLER, str(scene.root), str(kills), str(longest)]
    done = subprocess.run([*command, "gzip" if packed else "plain"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout == ""


def test_killed_for_real_at_random_instants_every_line_is_there_once_and_in_order(scene: Scene):
    kill_again_and_again(scene, kills=40, longest=0.02, records=6000)
    check(scene, 6000)
    assert len(list(scene.exp.rglob("debug.2*.log"))) > 20
    assert json.loads((scene.root / "logfiles.json").read_text())["renames"] == []


@pytest.mark.chaos
def test_killed_for_real_very_often(scene: Scene):
    kills, records = (1500, 200_000) if os.environ.get("RANKSIDE_CHAOS") == "long" else (250, 40_000)
    kill_again_and_again(scene, kills=kills, longest=0.05, records=records)
    check(scene, records)


def test_killed_for_real_while_rotated_files_are_compressed(scene: Scene):
    import gzip

    kill_again_and_again(scene, kills=20, longest=0.03, records=3000, packed=True)
    for packed in scene.exp.rglob("*.gz"):
        plain = packed.with_suffix("")
        assert not plain.exists() or plain.read_bytes() == gzip.decompress(packed.read_bytes())
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    check(scene, 3000)


def test_a_journal_that_grows_while_its_writer_dies(scene: Scene, tmp_path: Path):
    """The writer follows so closely that it is killed at the journal's end, too."""
    scene.channels = [scene.channel(rank) for rank in range(2)]
    fill(scene, 1, 10)
    command = [sys.executable, "-c", KILLER, str(scene.root), "30", "0.02", "plain"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    last = 10
    while process.poll() is None:
        fill(scene, last + 1, last + 10)
        last += 10
        time.sleep(0.001)  # a pace the writer can keep up with
        if last % 500 == 0:
            scene.journal.close()
            scene.journal = Journal(scene.journal.folder)  # a new segment
    assert process.returncode == 0, process.communicate()[0]
    scene.take_up()
    scene.drain()
    check(scene, last)
