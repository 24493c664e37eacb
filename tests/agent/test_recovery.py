"""What dead ranks left is brought in once; the living, other agents and strangers' folders are left alone."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rankside import wire
from rankside.identity import Hello
from rankside.state_page import StatePage
from rankside.wire import Kind
from rankside_agent import recovery as recoveries
from rankside_agent.recovery import Recovery

House = Any  # of conftest.py
MakeHello = Callable[..., Hello]
Until = Callable[..., None]

# Forks a rank for each line it reads: one that puts records into its spool, and waits to be killed.
RANKS = """
import json, os, signal, sys, traceback
from pathlib import Path
from rankside import wire
from rankside.spool import Spool

def live(told):
    folder = Path(told["folder"])
    spool = Spool(folder, wire.pack({**told["hello"], "spool": str(folder)}), 2 << 20)
    if told["owner"]:
        spool.own(told["owner"])
    for seq in range(1, told["records"] + 1):
        spool.append(1, wire.pack((1.7e9, 20, "INFO", "train", 7, f"line {seq} " + "x" * told["size"])))
    print(os.getpid(), flush=True)
    signal.pause()

for line in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            live(json.loads(line))
        except BaseException:
            print(json.dumps(traceback.format_exc()), flush=True)
        os._exit(1)
    elif sys.stdin.readline():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        print("dead", flush=True)
"""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Where ranks come from: starting an interpreter for each would take most of this file's time."""
    made = Nursery()
    yield made
    made.close()


class Nursery:
    """The process that forks ranks; each of its own kind, so that one dies when told."""

    def __init__(self) -> None:
        self._free: list[subprocess.Popen[str]] = []

    def take(self) -> subprocess.Popen[str]:
        if self._free:
            return self._free.pop()
        command = [sys.executable, "-c", RANKS]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def give_back(self, process: subprocess.Popen[str]) -> None:
        self._free.append(process)

    def close(self) -> None:
        for process in self._free:
            process.communicate(timeout=30)


def say(process: subprocess.Popen[str], line: str) -> str:
    """Tell it something, and hear its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline()


class Rank:
    """A process with a spool of its own and no agent."""

    def __init__(
        self, nursery: Nursery, folder: Path, hello: Hello, records: int, owner: str, size: int
    ) -> None:
        self.folder, self.hello, self._nursery = folder, hello, nursery
        told = {
            "folder": str(folder),
            "hello": hello.packed(),
            "owner": owner,
            "records": records,
            "size": size,
        }
        self._parent = nursery.take()
        self.pid = int(say(self._parent, json.dumps(told)))
        self._lives = True

    def die(self) -> None:
        if self._lives:
            self._lives = False
            assert say(self._parent, "die") == "dead\n"
            self._nursery.give_back(self._parent)


class Ward:
    """Spools, a house, and who looks after them."""

    def __init__(self, house: House, hello: MakeHello, nursery: Nursery) -> None:
        self.house, self._hello, self._nursery = house, hello, nursery
        self.root = house.root / "spools" / "node"
        self.root.mkdir(parents=True)
        self.ranks: list[Rank] = []
        self.lost_after = 60.0
        self.recovery = self.start()

    def start(self) -> Recovery:
        """As with an agent that was just started."""
        self.recovery = Recovery(
            self.house.registry,
            [self.root],
            self.house.root / "remembered.json",
            "this agent",
            self.lost_after,
            self.house.reports.append,
        )
        self.house.registry.before_opening = self.recovery.sweep
        return self.recovery

    def hello(self, name: str, rank: int = 0, **more: Any) -> Hello:
        spool = str(more.pop("folder", self.root / name))
        return self._hello(rank, channel=name, spool=spool, **more)

    def rank(self, name: str = "a", records: int = 5, owner: str = "", size: int = 10, **more: Any) -> Rank:
        folder = more.get("folder", self.root / name)
        made = Rank(self._nursery, folder, self.hello(name, **more), records, owner, size)
        self.ranks.append(made)
        return made

    def greet(self, rank: Rank) -> tuple[Any, Any]:
        """The rank has spoken to us."""
        run, channel = self.house.open(rank.hello)
        self.recovery.watch(run, channel)
        return run, channel

    def look(self) -> None:
        """One look, of all kinds."""
        self.recovery._scanned = float("-inf")
        self.recovery.tick(time.monotonic())
        self.house.registry.settle()

    def until_gone(self, *folders: Path) -> None:
        deadline = time.monotonic() + 30
        while any(folder.exists() for folder in folders):
            self.look()
            assert time.monotonic() < deadline, f"{folders} are left; {self.house.reports}"
            time.sleep(0.01)

    def texts(self, channel: str = "a") -> list[str]:
        run, found = self.house.registry.find(channel)
        return [
            str(wire.unpack(body)[5]).split(" x")[0].strip()
            for entry in self.house.entries(run)
            if entry.channel == found.index and entry.records()
            for _, _, body in entry.frames()
        ]


@pytest.fixture
def ward(house: House, hello: MakeHello, nursery: Nursery) -> Iterator[Ward]:
    made = Ward(house, hello, nursery)
    yield made
    for rank in made.ranks:
        rank.die()


def lines(count: int) -> list[str]:
    return [f"line {number}" for number in range(1, count + 1)]


# -- the dead -------------------------------------------------------------------------------------------


def test_a_dead_rank_that_never_spoke_to_us_is_brought_in_whole_and_its_folder_goes(ward: Ward):
    rank = ward.rank(records=7)
    rank.die()
    ward.until_gone(rank.folder)
    assert ward.texts() == lines(7)
    _, channel = ward.house.registry.find("a")
    assert (channel.ended, channel.how, channel.attempt) == (True, "vanished", 1)


def test_a_dead_rank_that_spoke_to_us_is_brought_in_from_where_it_was(ward: Ward, logged: Any):
    rank = ward.rank(records=7)
    run, channel = ward.greet(rank)
    run.accept(channel, logged(1, "line 1", "line 2"))
    ward.look()
    assert not channel.ended
    rank.die()
    ward.look()
    assert ward.texts() == lines(7)
    assert not rank.folder.exists()


def test_a_large_spool_comes_in_portions_and_in_order(ward: Ward):
    rank = ward.rank(records=1500, size=1000)
    rank.die()
    ward.until_gone(rank.folder)
    assert ward.texts() == lines(1500)


def test_ranks_that_died_together_are_one_attempt(ward: Ward):
    ranks = [ward.rank(f"r{number}", rank=number) for number in range(4)]
    for rank in ranks:
        rank.die()
    ward.until_gone(*(rank.folder for rank in ranks))
    found = [ward.house.registry.find(f"r{number}")[1] for number in range(4)]
    assert [(channel.attempt, channel.last) for channel in found] == [(1, 5)] * 4


def test_a_start_that_died_unheard_is_an_attempt_before_the_one_that_follows(ward: Ward):
    first = ward.rank("first", records=7)
    ward.recovery._scanned = time.monotonic() - 1.0  # the next search is not due yet
    first.die()
    _, second = ward.house.open(ward.hello("second", job="job-2"))
    ward.until_gone(first.folder)
    _, channel = ward.house.registry.find("first")
    assert (channel.attempt, second.attempt) == (1, 2)
    assert channel.index < second.index  # so in the journals, too
    assert ward.texts("first") == lines(7)


@pytest.mark.parametrize("parent", ["a", ""])
def test_a_dead_ranks_hello_that_comes_late_opens_no_second_channel(ward: Ward, parent: str):
    """Its spool is found in the very search that precedes the opening."""
    ward.greet(ward.rank("a"))
    rank = ward.rank("b", rank=1, records=7, parent=parent)
    rank.die()
    ward.recovery._scanned = time.monotonic() - 1.0
    run, channel = ward.house.open(rank.hello)
    ward.until_gone(rank.folder)
    assert ward.texts("b") == lines(7)
    assert run.channels["b"] is channel
    assert [each.hello.channel for each in run.living()] == ["a"]


def test_starts_that_are_found_together_become_attempts_in_the_order_in_which_they_began(ward: Ward):
    """Whatever their ranks: a job without an agent may come back smaller or larger than it was."""
    worlds = {"job-1": 2, "job-2": 1, "job-3": 3}
    ranks = {
        job: [ward.rank(f"{job}-{number}", rank=number, job=job, world_size=world) for number in range(world)]
        for job, world in worlds.items()
    }
    for started in ranks.values():
        for rank in started:
            rank.die()
    ward.until_gone(*(rank.folder for started in ranks.values() for rank in started))
    found = {
        job: {ward.house.registry.find(rank.hello.channel)[1].attempt for rank in started}
        for job, started in ranks.items()
    }
    assert found == {"job-1": {1}, "job-2": {2}, "job-3": {3}}


def test_before_a_new_attempt_the_last_ones_dead_are_brought_in(ward: Ward):
    rank = ward.rank(records=3)
    ward.greet(rank)
    rank.die()
    run, second = ward.house.open(ward.hello("b", job="job-2"))
    assert second.attempt == 2
    assert run.facts["attempts"][1]["log_root"] == "logs"
    assert ward.texts() == lines(3)


@pytest.mark.parametrize("lives", [True, False])
def test_a_rank_that_died_after_its_agent_was_started_again_is_no_rank_beside_the_next_attempt(
    ward: Ward, lives: bool
):
    rank = ward.rank(records=3)
    ward.greet(rank)
    ward.house.kill()
    ward.house.start()
    ward.start()
    if not lives:
        rank.die()  # before it could speak to this agent
    run, second = ward.house.open(ward.hello("b", job="job-2"))
    assert second.attempt == 2
    assert run.facts["attempts"][1]["log_root"] == ("logs/attempt-2" if lives else "logs")


def test_of_ranks_that_are_gone_the_last_ones_words_come_in_first(ward: Ward):
    ranks = [ward.rank(f"r{number}", rank=number) for number in range(4)]
    for rank in ranks:
        rank.die()
    ward.until_gone(*(rank.folder for rank in ranks))
    run, _ = ward.house.registry.find("r0")
    entries = [entry for entry in ward.house.entries(run) if entry.records()]
    assert [entry.info["rank"] for entry in entries] == [3, 2, 1, 0]


def test_drops_that_the_rank_could_not_announce_are_announced_once(ward: Ward, monkeypatch: Any):
    rank = ward.rank(records=3000, size=1000)  # more than its spool holds
    ward.greet(rank)
    rank.die()
    held = []
    real = recoveries.discard
    monkeypatch.setattr(recoveries, "discard", held.append)  # killed before the folder was gone
    ward.look()
    monkeypatch.setattr(recoveries, "discard", real)
    ward.until_gone(rank.folder)
    run, _ = ward.house.registry.find("a")
    said = [entry.value()[3] for entry in ward.house.entries(run) if entry.type == 4]
    assert len([text for text in said if "records dropped, the spool was full" in text]) == 1


def test_what_was_in_a_dead_ranks_memory_alone_is_announced_once(ward: Ward, monkeypatch: Any):
    rank = ward.rank(records=5)
    ward.greet(rank)
    rank.die()
    page = StatePage(rank.folder / "state")
    page.in_memory(12)
    page.close()
    monkeypatch.setattr(recoveries, "discard", lambda _: None)  # killed before the folder was gone
    ward.look()
    monkeypatch.undo()
    ward.until_gone(rank.folder)
    run, channel = ward.house.registry.find("a")
    assert ward.texts() == lines(5)
    (said,) = [
        text
        for entry in ward.house.entries(run)
        if entry.type == 4 and "7 records" in (text := entry.value()[3])
    ]
    assert "in the memory of the dead rank alone" in said
    assert channel.progress.announced_drops == 7


def test_of_records_that_were_in_memory_alone_what_an_agent_has_is_not_lost(ward: Ward):
    rank = ward.rank(records=5)
    rank.die()
    page = StatePage(rank.folder / "state")
    page.in_memory(5)
    page.close()
    ward.until_gone(rank.folder)
    _, channel = ward.house.registry.find("a")
    assert channel.progress.announced_drops == 0


def test_a_damaged_spool_is_brought_in_but_for_the_damage_which_is_told(ward: Ward):
    rank = ward.rank(records=2500, size=400)
    rank.die()
    segments = sorted(rank.folder.glob("*.seg"))
    assert len(segments) >= 2
    with open(segments[0], "r+b") as file:
        file.seek(200_000)
        file.write(b"\xff\xff")
    ward.until_gone(rank.folder)
    texts = ward.texts()
    assert texts[0] == "line 1"
    assert texts[-1] == "line 2500"
    run, _ = ward.house.registry.find("a")
    (said, *_) = [entry.value()[3] for entry in ward.house.entries(run) if entry.type == 4]
    assert said == f"{2500 - len(texts)} records of the spool cannot be read"


class Killed(BaseException):
    """The agent is gone."""


@pytest.mark.parametrize("victim", ["accept", "note", "end", "discard"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_agent_killed_while_it_brings_a_spool_in_loses_and_doubles_nothing(
    ward: Ward, victim: str, nth: int, when: str, monkeypatch: pytest.MonkeyPatch
):
    rank = ward.rank(records=400, size=1000)
    run, _ = ward.greet(rank)
    rank.die()
    calls: list[Any] = []
    owner = recoveries if victim == "discard" else run
    real = getattr(owner, victim)

    def dying(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == nth and when == "before":
            raise Killed
        found = real(*args)
        if len(calls) == nth:
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, victim, dying)
        with suppress(Killed):
            ward.look()
    ward.house.kill()
    ward.house.start()
    ward.start()
    ward.until_gone(rank.folder)
    assert ward.texts() == lines(400)
    assert ward.house.registry.find("a")[1].ended


def test_a_full_disk_leaves_the_spool_for_later(ward: Ward, monkeypatch: pytest.MonkeyPatch):
    rank = ward.rank(records=5)
    run, _ = ward.greet(rank)
    rank.die()

    def full(*_: Any) -> None:
        raise OSError(28, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(run.logs, "batch", full)
        ward.look()
    assert rank.folder.exists()
    assert any("trying again" in report for report in ward.house.reports)
    ward.until_gone(rank.folder)
    assert ward.texts() == lines(5)


def test_a_disk_too_full_to_begin_the_run_leaves_the_spool_for_later(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
):
    rank = ward.rank(records=5)
    rank.die()

    def full(*_: Any) -> None:
        raise OSError(28, "no room")

    with monkeypatch.context() as patch:
        patch.setattr("rankside_agent.runs.begin", full)
        for _ in range(3):
            ward.look()
    assert rank.folder.exists()
    ward.until_gone(rank.folder)
    assert ward.texts() == lines(5)


# -- the living -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("greeted", [True, False])
def test_a_living_rank_is_not_touched_frozen_or_not(ward: Ward, greeted: bool):
    rank = ward.rank(records=5)
    before = {path: path.read_bytes() for path in rank.folder.iterdir()}
    channel = ward.greet(rank)[1] if greeted else None
    os.kill(rank.pid, signal.SIGSTOP)
    for _ in range(3):
        ward.look()
    assert {path: path.read_bytes() for path in rank.folder.iterdir()} == before
    assert channel is None or not channel.ended
    os.kill(rank.pid, signal.SIGCONT)


def test_a_rank_out_of_sight_that_is_silent_is_lost_and_one_in_sight_is_not(ward: Ward):
    ward.lost_after = 5.0
    ward.start()
    rank = ward.rank("seen")
    _, seen = ward.greet(rank)
    _, unseen = ward.house.open(ward.hello("unseen", rank=1, folder="/elsewhere/unseen"))
    now = time.monotonic()
    ward.recovery.tick(now)
    ward.recovery.tick(now + 4)
    assert not unseen.ended
    for later in range(8, 20, 4):
        ward.recovery.tick(now + later)
    assert (unseen.ended, unseen.how) == (True, "lost")
    assert not seen.ended


def test_an_agent_that_was_itself_frozen_takes_nobody_for_lost(ward: Ward):
    _, unseen = ward.house.open(ward.hello("unseen", folder="/elsewhere/unseen"))
    now = time.monotonic()
    ward.recovery.tick(now)
    ward.recovery.tick(now + 3600)
    ward.recovery.tick(now + 3601)
    assert not unseen.ended


@pytest.mark.parametrize("owner", ["another agent", "x" * 64])
def test_what_belongs_to_another_agent_stays(ward: Ward, owner: str):
    rank = ward.rank(records=5, owner=owner)
    rank.die()
    for _ in range(3):
        ward.look()
    assert rank.folder.exists()
    assert not ward.house.registry.runs


def test_what_belongs_to_us_is_taken(ward: Ward):
    rank = ward.rank(records=5, owner="this agent")
    rank.die()
    ward.until_gone(rank.folder)
    assert ward.texts() == lines(5)


def test_a_rank_in_the_middle_of_making_its_spool_is_not_disturbed(ward: Ward):
    """Its lock comes a moment after its file: taking it first would cost the rank its spool."""
    folder = ward.root / "new"
    folder.mkdir(mode=0o700)
    (folder / "state").touch(0o600)
    ward.look()
    with open(folder / "state", "r+b") as state:
        import fcntl

        fcntl.lockf(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert (folder / "state").exists()


# -- half-made, unreadable, hostile ---------------------------------------------------------------------


def look_on(ward: Ward, seconds: float) -> None:
    """As twice a second for so long."""
    now = time.monotonic()
    for tick in range(int(seconds * 2)):
        ward.recovery.tick(now + tick / 2)


@pytest.mark.parametrize("content", [[], ["state"], ["state", "channel.new", "00000001.seg"]])
def test_a_half_made_folder_goes_after_a_while_and_not_before(ward: Ward, content: list[str]):
    folder = ward.root / "half"
    folder.mkdir(mode=0o700)
    for name in content:
        (folder / name).touch()
    look_on(ward, 50)
    assert folder.exists()
    look_on(ward, 80)
    assert not folder.exists()


def test_a_folder_that_a_living_rank_is_making_stays_however_long_that_takes(ward: Ward):
    rank = ward.rank()
    (rank.folder / "channel").rename(rank.folder / "channel.new")
    look_on(ward, 200)
    assert {"state", "channel.new", "00000001.seg"} <= {path.name for path in rank.folder.iterdir()}


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_was_set_makes_no_half_made_folder_old(
    ward: Ward, years: int, monkeypatch: pytest.MonkeyPatch
):
    folder = ward.root / "half"
    folder.mkdir(mode=0o700)
    os.utime(folder, (time.time() - years * 3.15e7,) * 2)
    ward.look()
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + years * 3.15e7)
    look_on(ward, 10)
    assert folder.exists()


def test_time_in_which_the_agent_stood_still_makes_no_half_made_folder_old(ward: Ward):
    folder = ward.root / "half"
    folder.mkdir(mode=0o700)
    ward.look()
    now = time.monotonic() + 3600
    ward.recovery.tick(now)
    ward.recovery.tick(now + 4)
    assert folder.exists()


def test_a_strangers_folder_of_the_same_form_is_never_deleted(ward: Ward):
    folder = ward.root / "photos"
    (folder / "deep").mkdir(parents=True)
    folder.chmod(0o700)
    for name in ("a.jpg", "deep/b.jpg"):
        (folder / name).write_text("precious")
    look_on(ward, 80)
    assert (folder / "a.jpg").read_text() == (folder / "deep" / "b.jpg").read_text() == "precious"


def spoil_hello(folder: Path) -> None:
    (folder / "channel").write_bytes(b"\xc1 no message")


def spoil_hello_form(folder: Path) -> None:
    (folder / "channel").write_bytes(wire.pack({"channel": 5}))


def spoil_state(folder: Path) -> None:
    os.truncate(folder / "state", 10)


def no_state(folder: Path) -> None:
    (folder / "state").unlink()


def state_is_a_folder(folder: Path) -> None:
    (folder / "state").unlink()
    (folder / "state").mkdir()


def hello_is_a_pipe(folder: Path) -> None:
    (folder / "channel").unlink()
    os.mkfifo(folder / "channel")


def hello_of_another(folder: Path) -> None:
    hello = wire.unpack((folder / "channel").read_bytes())
    (folder / "channel").write_bytes(wire.pack({**hello, "channel": "victim"}))


def relative_root(folder: Path) -> None:
    hello = wire.unpack((folder / "channel").read_bytes())
    (folder / "channel").write_bytes(wire.pack({**hello, "exp_root": "relative"}))


def open_to_others(folder: Path) -> None:
    folder.chmod(0o777)


SPOILS = [
    spoil_hello,
    spoil_hello_form,
    spoil_state,
    no_state,
    state_is_a_folder,
    hello_is_a_pipe,
    hello_of_another,
    relative_root,
    open_to_others,
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_cannot_be_taken_is_left_and_keeps_nobody_else_from_their_turn(
    ward: Ward, spoil: Callable[[Path], None], logged: Any
):
    bad = ward.rank("a-bad", rank=1, exp_root=str(ward.house.root / "bad"))
    victim = ward.rank("victim", rank=2)
    channel = ward.greet(victim)[1]
    bad.die()
    spoil(bad.folder)
    good = ward.rank("z-good", records=5)
    good.die()
    ward.until_gone(good.folder)
    for _ in range(3):
        ward.look()
    assert bad.folder.exists()
    assert ward.texts("z-good") == lines(5)
    assert not channel.ended
    assert channel.last == 0
    assert len(ward.house.reports) < 20


@pytest.mark.parametrize("spoil", [spoil_state, state_is_a_folder, spoil_hello])
def test_a_watched_spool_that_was_spoilt_keeps_nobody_else_from_their_turn(
    ward: Ward, spoil: Callable[[Path], None]
):
    bad = ward.rank("a-bad", rank=1)
    good = ward.rank("z-good", records=5)
    ward.greet(bad), ward.greet(good)
    bad.die(), good.die()
    spoil(bad.folder)
    ward.until_gone(good.folder)
    assert ward.texts("z-good") == lines(5)


POISON = [
    (Kind.MODULE, b"\xc1"),
    (Kind.CLOSE, b"\xc1"),
    (Kind.DROPPED, wire.pack({})),
    (Kind.METRICS, wire.pack({1: 2})),
    (Kind.EVENT, b"\x91" * 600 + b"\xc0"),
    (Kind.LOG, b"\xc0"),
]


@pytest.mark.parametrize(("kind", "body"), POISON)
def test_a_record_that_makes_no_sense_does_not_keep_its_spool_out(ward: Ward, kind: Kind, body: bytes):
    rank = ward.rank(records=3)
    rank.die()
    (segment, *_) = sorted(rank.folder.glob("*.seg"))
    data = bytearray(segment.read_bytes())
    end = [frame.end for frame in wire.frames(bytes(data), 64)][-1]
    more = wire.seal(4, kind, body) + wire.seal(5, Kind.LOG, wire.pack((1.7e9, 20, "INFO", "t", 1, "line 5")))
    data[end : end + len(more)] = more
    segment.write_bytes(data)
    ward.until_gone(rank.folder)
    assert ward.house.registry.find("a")[1].last == 5


def test_another_users_folder_is_not_even_opened(ward: Ward):
    if os.geteuid():
        pytest.skip("needs root to give a folder away")
    rank = ward.rank(records=5, exp_root=str(ward.house.root / "anywhere"))
    rank.die()
    for path in (rank.folder, *rank.folder.iterdir()):
        os.chown(path, 12345, 12345)
    for _ in range(3):
        ward.look()
    assert rank.folder.exists()
    assert not ward.house.registry.runs
    assert not (ward.house.root / "anywhere").exists()


def test_a_link_is_not_followed(ward: Ward):
    elsewhere = ward.house.root / "elsewhere"
    elsewhere.mkdir()
    rank = ward.rank("linked", folder=elsewhere / "linked")
    rank.die()
    (ward.root / "linked").symlink_to(elsewhere / "linked")
    for _ in range(3):
        ward.look()
    assert stat.S_ISLNK((ward.root / "linked").lstat().st_mode)
    assert (elsewhere / "linked" / "state").exists()


@pytest.mark.parametrize(
    "spool",
    ["/", "/etc", "", ".", "..", "/dev/null", "/nonexistent", "/" + "x" * 4000, "/\ud800", "relative"],
)
def test_a_spool_path_of_a_strangers_choice_is_neither_watched_nor_deleted(ward: Ward, spool: str):
    run, channel = ward.house.open(ward.hello("a", folder=spool))
    ward.recovery.watch(run, channel)
    assert not channel.watched
    ward.look()
    run.end(channel, "clean")
    ward.look()
    ward.recovery.tick(time.monotonic() + 3600)
    ward.house.registry.tick(time.monotonic())
    assert Path("/etc/passwd").exists()
    assert not ward.house.reports


def test_a_spool_path_that_names_another_ranks_spool_gets_nothing_of_it(ward: Ward):
    victim = ward.rank("victim", rank=1)
    ward.greet(victim)
    run, channel = ward.house.open(ward.hello("thief", rank=2, folder=victim.folder))
    ward.recovery.watch(run, channel)
    assert not channel.watched
    victim.die()
    ward.until_gone(victim.folder)
    assert ward.texts("thief") == []
    assert ward.texts("victim") == lines(5)


def test_a_copy_of_a_living_ranks_spool_elsewhere_does_not_end_it(ward: Ward):
    import shutil

    rank = ward.rank("a", folder=ward.house.root / "its own" / "a")
    _, channel = ward.greet(rank)
    assert channel.watched
    shutil.copytree(rank.folder, ward.root / "a")
    for _ in range(3):
        ward.look()
    assert not channel.ended
    assert channel.last == 0


def test_only_files_of_a_spool_are_deleted_with_it(ward: Ward):
    rank = ward.rank(records=5)
    rank.die()
    (rank.folder / "thesis.tex").write_text("precious")
    ward.until_gone(rank.folder / "channel")
    assert ward.texts() == lines(5)
    assert [path.name for path in rank.folder.iterdir()] == ["thesis.tex"]


def test_roots_that_ranks_told_of_are_searched_by_the_next_agent_too(ward: Ward):
    rank = ward.rank("a", folder=ward.house.root / "its own" / "a", records=5)
    ward.greet(rank)
    rank.die()
    ward.house.kill()
    ward.house.start()
    ward.start()
    ward.until_gone(rank.folder)
    assert ward.texts() == lines(5)


@pytest.mark.parametrize("content", ["", "{", "5", '{"a": 1}', "[1, null, []]"])
def test_remembered_roots_that_make_no_sense_are_passed_over(ward: Ward, content: str):
    (ward.house.root / "remembered.json").write_text(content)
    ward.start()
    rank = ward.rank()
    rank.die()
    ward.until_gone(rank.folder)


def test_channels_that_are_gone_for_good_are_forgotten_after_a_while(ward: Ward):
    rank = ward.rank()
    run, _ = ward.greet(rank)
    rank.die()
    ward.until_gone(rank.folder)
    ward.recovery.tick(time.monotonic())
    assert "a" in run.channels, "its last messages may still come"
    ward.recovery.tick(time.monotonic() + 3600)
    assert "a" not in run.channels
