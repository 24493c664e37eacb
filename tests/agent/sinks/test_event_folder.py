"""Event files of one folder: each event once, in readable order, whatever was cut or killed."""

from __future__ import annotations

import random
import time

import pytest

from rankside_agent.sinks import event_protos
from rankside_agent.sinks.event_file import records
from rankside_agent.sinks.event_folder import EventFolder


def events_of(folder):
    """All events, as readers meet them: by file name, without headers."""
    files = sorted(folder.glob("*tfevents*"))
    return [data for file in files for _, data in list(records(file))[event_protos.HEADER_RECORDS :]]


@pytest.mark.parametrize("seed", range(40))
def test_crashes_at_any_point_leave_each_event_once(tmp_path, seed):
    chance = random.Random(seed)
    wanted = [b"event %d" % (number // 2) for number in range(60)]  # equal neighbours among them
    state, done = {}, 0
    while done < len(wanted):
        folder = EventFolder(tmp_path, "run", state)
        folder.queue = chance.choice([1, 2, 1000])
        for number in range(done, len(wanted)):
            if chance.random() < 0.1:
                folder.begin_file()
            folder.put(wanted[number])
            if chance.random() < 0.2:
                folder.flush()
                state, done = folder.state(), number + 1
            if chance.random() < 0.1:
                break
        else:
            folder.flush()
            state, done = folder.state(), len(wanted)
        folder.close()
        tear(tmp_path, state, chance)
    assert events_of(tmp_path) == wanted


def tear(folder, state, chance):
    """What a crash may do to the newest file: lose its end, behind what was brought to the disk."""
    newest = max(folder.glob("*tfevents*"), default=None)
    if newest is None or chance.random() < 0.5:
        return
    safe = state["size"] if newest.name == state.get("file") else 0
    size = newest.stat().st_size
    with newest.open("r+b") as file:
        file.truncate(chance.randint(safe, size))
        if chance.random() < 0.3:
            file.seek(0, 2)
            file.write(b"\0" * chance.randrange(30))


def test_a_lost_state_doubles_nothing(tmp_path):
    folder = EventFolder(tmp_path, "run", {})
    for number in range(10):
        folder.put(b"event %d" % number)
    folder.flush()
    folder.close()
    again = EventFolder(tmp_path, "run", {})
    for number in range(12):
        again.put(b"event %d" % number)
    again.flush()
    assert events_of(tmp_path) == [b"event %d" % number for number in range(12)]


def test_what_the_journal_does_not_know_is_kept(tmp_path):
    first = EventFolder(tmp_path, "run", {})
    for event in (b"one", b"two"):
        first.put(event)
    first.flush()
    second = EventFolder(tmp_path, "run", {})
    for event in (b"one", b"other"):
        second.put(event)
    second.flush()
    assert events_of(tmp_path) == [b"one", b"two", b"other"]


def test_two_writers_within_one_second_keep_their_own_files(tmp_path):
    for run in ("one", "two", "three"):
        folder = EventFolder(tmp_path, run, {})
        folder.name_parts = ".rank-7.attempt-1"
        folder.put(run.encode())
        folder.flush()
    assert sorted(events_of(tmp_path)) == [b"one", b"three", b"two"]
    assert len(list(tmp_path.glob("*.rank-7.attempt-1.*"))) == 3


def test_a_new_file_is_read_last_also_after_the_clock_was_set_back(tmp_path):
    tomorrow = int(time.time()) + 86400
    (tmp_path / f"events.out.tfevents.{tomorrow}.other.1.0").write_bytes(b"")
    folder = EventFolder(tmp_path, "run", {})
    folder.put(b"one")
    folder.begin_file()
    folder.put(b"two")
    folder.flush()
    assert "other" in min(path.name for path in tmp_path.iterdir())
    assert events_of(tmp_path) == [b"one", b"two"]


def test_half_a_record_is_cut_for_strict_readers(tmp_path):
    folder = EventFolder(tmp_path, "run", {})
    folder.put(b"one")
    folder.flush()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + b"half")
    again = EventFolder(tmp_path, "run", folder.state())
    assert path.read_bytes() == whole
    again.put(b"two")
    again.flush()
    assert events_of(tmp_path) == [b"one", b"two"]
    assert path.read_bytes() == whole


def test_a_folder_that_was_removed_is_made_again(tmp_path):
    folder = EventFolder(tmp_path / "tb", "run", {"file": "events.out.tfevents.1.gone", "size": 100})
    folder.put(b"one")
    folder.flush()
    assert events_of(tmp_path / "tb") == [b"one"]
