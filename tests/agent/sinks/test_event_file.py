"""Record files: the same bytes as TensorBoard's own writer, and whole records after any fault."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager

import pytest

from rankside_agent.sinks.event_file import EventFile, frame, records


@contextmanager
def no_growth_beyond(size):
    """No file of this process may grow beyond `size` bytes; for a moment only: pytest writes files too."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 255, 4097])
def test_a_frame_is_that_of_tensorboard(tmp_path, size):
    from tensorboard.summary.writer.record_writer import RecordWriter

    data = os.urandom(size)
    with (tmp_path / "theirs").open("wb") as theirs:
        RecordWriter(theirs).write(data)
    assert (tmp_path / "theirs").read_bytes() == frame(data)


def test_what_was_added_is_read_back_from_any_record_on(tmp_path):
    file = EventFile(tmp_path / "f", [b"head"])
    for text in (b"one", b"", b"three"):
        file.add(text, 1000)
    file.flush()
    found = list(records(tmp_path / "f"))
    assert [data for _, data in found] == [b"head", b"one", b"", b"three"]
    assert found[-1][0] == file.size == (tmp_path / "f").stat().st_size
    assert [data for _, data in records(tmp_path / "f", found[1][0])] == [b"", b"three"]


def test_events_wait_until_the_queue_is_full(tmp_path):
    file = EventFile(tmp_path / "f", [])
    file.add(b"one", 3)
    file.add(b"two", 3)
    assert (tmp_path / "f").stat().st_size == 0
    file.add(b"three", 3)
    assert len(list(records(tmp_path / "f"))) == 3


@pytest.mark.parametrize("cut", [1, 4, 11, 12, 20])
def test_half_a_record_ends_the_file(tmp_path, cut):
    whole = frame(b"whole")
    (tmp_path / "f").write_bytes(whole + frame(b"half of it")[:cut])
    assert list(records(tmp_path / "f")) == [(len(whole), b"whole")]


@pytest.mark.parametrize("damage", [b"\0" * 64, b"\xff" * 64])
def test_damage_ends_the_file(tmp_path, damage):
    (tmp_path / "f").write_bytes(frame(b"whole") + damage)
    assert [data for _, data in records(tmp_path / "f")] == [b"whole"]


def test_a_full_disk_leaves_whole_records_and_the_true_size(tmp_path):
    file = EventFile(tmp_path / "f", [b"head"])
    file.add(b"kept", 1)
    with no_growth_beyond(file.size + 30), pytest.raises(OSError, match="too large"):
        file.add(b"x" * 100, 1)
    assert (tmp_path / "f").stat().st_size == file.size
    assert [data for _, data in records(tmp_path / "f")] == [b"head", b"kept"]


def test_a_file_that_cannot_hold_its_header_is_not_left_behind(tmp_path):
    with no_growth_beyond(5), pytest.raises(OSError, match="too large"):
        EventFile(tmp_path / "f", [b"head"])
    assert not list(tmp_path.iterdir())


def test_a_file_is_never_begun_over_another(tmp_path):
    (tmp_path / "f").write_bytes(b"someone's")
    with pytest.raises(FileExistsError):
        EventFile(tmp_path / "f", [])


@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_was_removed_is_noticed(tmp_path, replaced):
    file = EventFile(tmp_path / "f", [])
    (tmp_path / "f").unlink()
    if replaced:
        (tmp_path / "f").write_bytes(b"")
    file.add(b"lost?", 1000)
    with pytest.raises(OSError, match=r"f|replaced"):
        file.flush()
