"""What is to be replayed: found, counted, and refused with a reason."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

import pytest

from rankside_agent.catalog import UnknownRun
from rankside_agent.journal import Journal
from rankside_agent.replay.subject import CannotReplay, Length, find, find_again, holder

PATIENCE = 20


@pytest.fixture
def put(tmp_path):
    """Makes a run's state folder."""

    def make(place="done", **facts):
        folder = tmp_path / place / "exp-1"
        folder.mkdir(parents=True)
        known = {"exp_name": "exp", "exp_root": "/data/exp", "world_size": 1, "attempts": [], **facts}
        (folder / "run.json").write_text(json.dumps(known))
        return folder

    return make


def write(folder, batches, segment_bytes=1 << 16):
    journal = Journal(folder / "journal" / "points", segment_bytes)
    journal.open_channel(1, {})
    for _ in range(batches):
        journal.batch(1, 1, 10, 10, bytes(1000))
    return journal


def test_a_run_is_found_by_the_path_of_its_folder_wherever_that_lies(put, tmp_path, monkeypatch):
    folder = put()
    assert find(tmp_path, "exp").folder == folder
    moved = tmp_path / "copy"
    folder.rename(moved)
    monkeypatch.chdir(tmp_path)
    assert find(tmp_path / "nothing", "copy").folder == moved
    with pytest.raises(UnknownRun):
        find(tmp_path, "exp")


def test_a_run_that_the_agent_moved_is_found_again(put, tmp_path):
    subject = find(tmp_path, str(put("runs")))
    (tmp_path / "done").mkdir()
    subject.folder.rename(tmp_path / "done" / "exp-1")
    assert find_again(subject).folder == tmp_path / "done" / "exp-1"


@pytest.mark.parametrize(
    ("place", "ended", "living", "what"),
    [
        ("runs", None, True, (True, False)),
        ("runs", None, False, (False, True)),
        ("runs", 5.0, True, (False, False)),
        ("done", None, True, (False, True)),
        ("done", 5.0, False, (False, False)),
    ],
)
def test_whether_it_goes_on_or_nobody_saw_its_end(put, tmp_path, place, ended, living, what):
    put(place, attempts=[{"n": 1, "ended": ended}])
    with open(tmp_path / "lock", "w+") as lock:
        lock.write("4711\n")
        lock.flush()
        if living:
            fcntl.flock(lock, fcntl.LOCK_EX)
        subject = find(tmp_path, "exp")
    assert (subject.going_on, subject.unseen) == what
    assert subject.agent == ("4711" if living and place == "runs" else "")


def test_records_are_counted_over_all_segments_and_on(put):
    folder = put()
    journal = write(folder, 300)
    length = Length(journal.folder)
    assert length.records() == 3000
    journal.batch(1, 1, 5, 5, b"")
    assert length.records() == 3005


def test_a_torn_newest_segment_is_passed_over(put):
    journal = write(put(), 300)
    journal.close()
    (journal.folder / "99999999.seg").write_bytes(b"\0" * 100)
    assert Length(journal.folder).records() == 3000


def test_a_folder_that_cannot_be_written_to_is_refused(put, tmp_path):
    folder = put()
    write(folder, 1).close()
    (folder / "sinks").write_text("a file")
    with pytest.raises(CannotReplay, match="sinks cannot be written to"):
        find(tmp_path, "exp").check()


@pytest.mark.parametrize(
    ("world_size", "ranks", "refused"),
    [
        (8, range(8), False),
        (8, range(7), False),  # the last one died before it spoke
        (16, range(8), True),
        (16, range(8, 16), False),
        (None, range(8), False),
    ],
)
def test_only_the_node_that_speaks_for_the_run_is_replayed(put, tmp_path, world_size, ranks, refused):
    folder = put(world_size=world_size, attempts=[{"n": 1, "ranks": {str(rank): {} for rank in ranks}}])
    write(folder, 1).close()
    if refused:
        with pytest.raises(CannotReplay, match="holds 8 of 16 ranks, and not rank 15"):
            find(tmp_path, "exp").check()
    else:
        find(tmp_path, "exp").check()


def test_who_holds_a_sinks_lock_is_known_by_pid(tmp_path):
    assert holder(tmp_path, "x") == ""
    (tmp_path / "sinks").mkdir()
    lock = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    command = [sys.executable, "-c", f"{lock}; print(flush=True); input()", f"{tmp_path}/sinks/x.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert holder(tmp_path, "x") == str(process.pid)
        process.communicate(b"\n", timeout=PATIENCE)
    assert holder(tmp_path, "x") == ""
    assert os.path.exists(tmp_path / "sinks" / "x.lock")
