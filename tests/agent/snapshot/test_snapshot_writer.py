"""Snapshots are written by a thread that may hang, once for an attempt; nobody waits for it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from rankside_agent.gauges import Seen
from rankside_agent.gpu.card import Card, Reading
from rankside_agent.journal import ChannelState
from rankside_agent.progress import Channel
from rankside_agent.snapshot.writer import Snapshots

SECRET = "hf_" + "a" * 34
LAUNCH = {
    "argv": ["train.py"],
    "cwd": "/",
    "environ": {"A": "1", "NOTE": SECRET},
    "given": {"log_interval": "exp.yaml"},
    "hidden": {"wandb_project": "***"},
    "packages": ["torch==2.5.0"],
    "versions": {"python": "3.11.7"},
}
CONFIG = {"log_interval": 5, "wandb_project": "secret", "wandb_entity": SECRET}
SEEN = Seen(Reading("amdsmi", 0.0, (Card(pci="0000:63:00.0", name="MI300X"),)))


class Shelf:
    """A run's folders, and the snapshots that are written there."""

    def __init__(self, root: Path, hello) -> None:
        self.root, self._hello = root, hello
        self.state = root / "state" / "runs" / "exp-1"
        self.state.mkdir(parents=True)
        self.reports: list[str] = []
        self.looks = 0
        self.snapshots = self.open()

    def open(self, allowed: tuple[str, ...] = ()) -> Snapshots:
        self.snapshots = Snapshots(self.root / "exp", allowed, self.state, self.reports.append, self.look)
        return self.snapshots

    def look(self, host, reading):
        self.looks += 1
        return {"host": host, "gpus": [card.pci for card in reading.cards] if reading else []}

    def claim(self, attempt: int) -> Path:
        folder = self.root / "exp" / "snapshot" / f"attempt-{attempt}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def begin(self, attempt: int = 1, rank: int = 7, **more) -> None:
        channel = Channel(1, self._hello(rank, config=CONFIG, **more), attempt, 0)
        journal = ChannelState(info={"launch": LAUNCH})
        self.snapshots.begin(channel, journal)

    def git(self, attempt: int = 1, folder: Path | None = None, **state) -> None:
        path = (folder or self.state) / "origin" / f"attempt-{attempt}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(state))

    def written(self, attempt: int = 1) -> set[str]:
        folder = self.root / "exp" / "snapshot" / f"attempt-{attempt}"
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


ALL = {
    *("config.yaml", "env.json", "command.json", "versions.json", "packages.txt", "git.json"),
    "hardware-here.json",
}


@pytest.fixture
def shelf(tmp_path, hello):
    made = Shelf(tmp_path, hello)
    yield made
    made.snapshots.close()


def test_the_last_ranks_node_writes_all_of_it_without_secrets(shelf, until):
    folder = shelf.claim(1)
    shelf.git(commit="abc")
    shelf.begin()
    until(lambda: shelf.written() == ALL, "the snapshot")
    config = (folder / "config.yaml").read_text()
    assert "log_interval: 5  # given: exp.yaml\n" in config
    assert 'wandb_project: "***"\n' in config
    assert json.loads((folder / "git.json").read_text()) == {"commit": "abc"}
    assert (folder / "packages.txt").read_text() == "torch==2.5.0\n"
    assert not any(SECRET in path.read_text() for path in folder.iterdir())


def test_another_node_writes_its_hardware_alone_and_once(shelf, until):
    shelf.claim(1)
    for rank in (0, 1, 2):
        shelf.begin(rank=rank, host="there")
    until(lambda: shelf.written() == {"hardware-there.json"}, "the hardware")
    shelf.claim(2)
    shelf.begin(2, rank=0, host="there")
    until(lambda: shelf.written(2), "the next")
    assert shelf.looks == 2
    assert shelf.written() == {"hardware-there.json"}


def test_forked_children_have_none(shelf, until):
    shelf.claim(1)
    shelf.claim(2)
    shelf.begin(parent="rank-7")
    shelf.begin(2, rank=0)
    until(lambda: shelf.written(2), "that of a rank")
    assert shelf.written(1) == set()


def test_an_older_client_tells_less(shelf, until, hello):
    shelf.claim(1)
    shelf.git()
    shelf.snapshots.begin(Channel(1, hello(7), 1, 0), None)
    until(lambda: {"command.json", "versions.json", "hardware-here.json"} <= shelf.written(), "what there is")
    assert shelf.written() == {"command.json", "versions.json", "hardware-here.json"}


def test_what_git_tells_is_taken_when_it_comes_wherever_the_run_lies_then(shelf, until):
    shelf.claim(1)
    shelf.begin()
    until(lambda: shelf.written() == ALL - {"git.json"}, "all but git")
    shelf.git(commit="abc", folder=shelf.root / "state" / "done" / "exp-1")
    until(lambda: shelf.written() == ALL, "git")


def test_gpus_that_are_seen_later_are_added_once(shelf, until):
    folder = shelf.claim(1)
    shelf.git()
    shelf.begin()
    until(lambda: "hardware-here.json" in shelf.written(), "the hardware")
    asked: list = []
    heard: list = []
    shelf.snapshots.overhear(asked.append)(heard.append)
    for answer in (None, Seen(Reading()), SEEN, SEEN):
        asked[0](answer)
    assert heard == [None, Seen(Reading()), SEEN, SEEN]
    path = folder / "hardware-here.json"
    until(lambda: json.loads(path.read_text())["source"] == "amdsmi", "the GPUs")
    assert json.loads(path.read_text())["gpus"] == ["0000:63:00.0"]
    assert shelf.looks == 2


def test_the_next_agent_writes_what_is_missing_and_nothing_else(shelf, until):
    folder = shelf.claim(1)
    (folder / "config.yaml").write_text("kept")
    shelf.git(commit="abc")
    shelf.open()
    shelf.begin()
    until(lambda: shelf.written() == ALL, "the rest")
    assert (folder / "config.yaml").read_text() == "kept"


def test_a_folder_that_nobody_claimed_is_not_made(shelf, until):
    shelf.begin()
    shelf.claim(2)
    shelf.begin(2)
    until(lambda: shelf.written(2), "the claimed one")
    assert not (shelf.root / "exp" / "snapshot" / "attempt-1").exists()


def test_nothing_is_written_outside_the_allowed_roots(shelf, until, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "exp" / "snapshot").mkdir(parents=True)
    (tmp_path / "exp" / "snapshot" / "attempt-1").symlink_to(tmp_path / "elsewhere")
    shelf.open(allowed=(str(tmp_path / "exp"),))
    shelf.begin()
    shelf.claim(2)
    shelf.begin(2)
    until(lambda: shelf.written(2), "the one inside")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0 and not Path("/dev/full").exists(), reason="no full device")
def test_what_cannot_be_written_is_one_warning_and_is_tried_again(shelf, until, monkeypatch):
    from rankside_agent.snapshot import writer

    monkeypatch.setattr(writer, "_AGAIN", 0.01)
    folder = shelf.claim(1)
    (folder / f".config.yaml.{os.getpid()}.new").symlink_to("/dev/full")
    (folder / f".env.json.{os.getpid()}.new").symlink_to("/dev/full")
    block = folder / f".hardware-here.json.{os.getpid()}.new"
    block.mkdir()
    shelf.git()
    shelf.begin()
    until(lambda: shelf.reports, "the warning")
    block.rmdir()
    until(lambda: ALL - {"git.json"} <= shelf.written(), "the snapshot")
    assert len(shelf.reports) == 1
    assert shelf.reports[0].startswith("the snapshot of attempt 1 waits: ")


def test_what_makes_no_sense_ends_no_thread(shelf, until):
    shelf.claim(1)
    shelf.claim(2)
    shelf._hello, kept = (
        (lambda *a, **more: kept(*a, **{**more, "host": "here", "exp_name": 3})),
        shelf._hello,
    )
    shelf.snapshots.begin(Channel(1, kept(7), 1, 0), ChannelState(info={"launch": {"environ": 3, "argv": 1}}))
    until(lambda: shelf.reports, "the warning")
    assert "is left out" in shelf.reports[0]
    shelf._hello = kept
    shelf.begin(2)
    until(lambda: "config.yaml" in shelf.written(2), "the next one")


def test_closing_waits_for_no_folder_that_hangs(shelf, until):
    entered, release = threading.Event(), threading.Event()

    def hang(host, reading):
        entered.set()
        release.wait(30)
        return {"host": host}

    shelf.snapshots = Snapshots(shelf.root / "exp", (), shelf.state, shelf.reports.append, hang)
    shelf.claim(1)
    shelf.begin()
    assert entered.wait(30)
    shelf.snapshots.close()
    shelf.snapshots.saw(SEEN)
    shelf.begin(2)
    assert shelf.written() == set()
    release.set()
    until(lambda: "packages.txt" in shelf.written(), "the rest of what had begun")
