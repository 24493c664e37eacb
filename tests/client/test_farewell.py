"""A process leaves with records that a full disk had left in its memory alone."""

from __future__ import annotations

import mmap
import os
import subprocess
from itertools import count

import pytest

from rankside import wire
from rankside.farewell import Held, leave
from rankside.leftover import Leftover
from rankside.segment import TITLE_SIZE, Segment, reserved
from rankside.spool import Spool
from rankside.wire import Kind

SIZE = 1 << 16
LOG = int(Kind.LOG)


@pytest.fixture
def folder(tmp_path):
    """Segments are read by their names there, as an agent does it."""
    return tmp_path


@pytest.fixture
def next_path(folder):
    serials = count(1)
    return lambda: folder / f"{next(serials):08d}.seg"


def filled(path, first, last, kind=LOG, body=b"x"):
    """A segment that holds these numbers; without a path in memory."""
    mapped = mmap.mmap(-1, SIZE) if path is None else reserved(path, SIZE)
    segment, end = Segment(path, mapped, first), TITLE_SIZE
    for seq in range(first, last + 1):
        frame = wire.seal(seq, kind, body)
        mapped[end : end + len(frame)] = frame
        end += len(frame)
    segment.last = last
    return Held(segment, end)


def numbers(folder, after=0):
    return [seq for seq, _, _ in Leftover(folder).frames(after)]


def nowhere(folder):
    """Where there is no room."""
    return lambda: folder / "no such folder" / "1.seg"


def test_what_is_in_memory_goes_to_the_disk_and_is_read_in_its_order(folder, next_path):
    held = [filled(next_path(), 1, 5), filled(None, 6, 9), filled(next_path(), 10, 12), filled(None, 13, 13)]
    lost, _ = leave(held, next_path, acked=0)
    assert not lost
    assert numbers(folder) == list(range(1, 14))


def test_files_keep_what_is_in_them_and_no_more(folder, next_path):
    leave([held := filled(next_path(), 1, 5)], next_path, acked=0)
    assert os.path.getsize(held.segment.path) == held.end


def test_without_room_the_last_records_are_counted_by_kind_and_those_that_an_agent_has_are_not(
    folder, next_path
):
    held = [filled(next_path(), 1, 5), filled(None, 6, 9), filled(None, 10, 12, int(Kind.METRICS))]
    lost, _ = leave(held, nowhere(folder), acked=7)
    assert lost == {LOG: 2, int(Kind.METRICS): 3}


def test_a_gap_that_a_reader_will_see_and_tell_of_is_not_counted_a_second_time(folder, next_path):
    held = [filled(next_path(), 1, 5), filled(None, 6, 9), filled(next_path(), 10, 12), filled(None, 13, 14)]
    serials = iter([folder / "none" / "1.seg", folder / "none" / "2.seg"])
    lost, _ = leave(held, lambda: next(serials), acked=0)
    assert lost == {LOG: 2}
    assert numbers(folder) == [*range(1, 6), *range(10, 13)]


def test_an_announcement_that_is_lost_itself_is_to_be_said_again(folder):
    told = wire.pack((1.0, {"log": 7}))
    lost, unsaid = leave([filled(None, 1, 1, int(Kind.DROPPED), told)], nowhere(folder), acked=0)
    assert (lost, unsaid) == ({}, {LOG: 7})


@pytest.fixture
def disk(tmp_path):
    """A tmpfs of ten segments."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=10m", "none", tmp_path], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.parametrize("room", [True, False])
def test_a_spool_on_a_full_disk_is_whole_afterwards_or_says_what_it_lacks(disk, room):
    spool = Spool(disk / "channel", b"x", 16 << 20)
    stone = disk / "stone"
    filler = subprocess.run(["dd", "if=/dev/zero", f"of={stone}", "bs=4k"], capture_output=True)
    assert b"No space left" in filler.stderr
    written = sum(spool.append(LOG, b"x" * 1000) for _ in range(6000))
    assert any(segment.path is None for segment in spool._segments)
    if room:
        stone.unlink()
    spool.finish(wire.pack((1.0, "finished")))
    spool.close(remove=False)
    left = Leftover(disk / "channel")
    there = sum(kind == LOG for _, kind, _ in left.frames(0))
    page = left.take()
    missing = page.unannounced().get("log", 0)
    page.close()
    assert there + missing == written == 6000
    assert bool(missing) is not room
