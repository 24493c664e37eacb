"""One log file against a disk and its people: whole records or none, and noticed when it is gone."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rankside_agent.logfile import LogFile, Mark, Rename, Rotation, rotated

Until = Callable[..., None]


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    made = LogFile(tmp_path / "rank-0" / "debug.log")
    assert not made.ready()
    made.append(b"one\n", 1)
    return made


def test_a_file_once_ready_stays_ready(file: LogFile):
    assert file.ready()
    file.append(b"two\n", 1)
    assert file.ready()
    assert file.path.read_bytes() == b"one\ntwo\n"
    assert (file.mark.size, file.mark.records) == (8, 2)


def test_a_closed_file_is_taken_up_again_where_it_was(file: LogFile):
    file.close()
    assert file.ready()
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("open_before", [True, False])
def test_a_deleted_file_comes_back_as_a_new_one_even_in_the_same_inode(file: LogFile, open_before: bool):
    if not open_before:
        file.close()  # the file system may now use its inode again
    file.path.unlink()
    assert not file.ready(), "a new inode, or a shorter file, needs a checkpoint first"
    assert file.mark.size == 0
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"two\n"


def test_a_folder_that_was_removed_comes_back(file: LogFile):
    shutil.rmtree(file.path.parent)
    assert not file.ready()
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"two\n"


@pytest.mark.parametrize("closed", [True, False])
def test_what_was_truncated_from_outside_needs_a_checkpoint_and_goes_on_without_a_hole(
    file: LogFile, closed: bool
):
    if closed:
        file.close()
    os.truncate(file.path, 0)
    assert not file.ready()
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"two\n"
    assert file.mark.size == 4


def test_a_truncation_between_ready_and_append_makes_no_hole(file: LogFile):
    assert file.ready()
    os.truncate(file.path, 0)
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"two\n"


def test_what_went_into_a_file_that_was_just_deleted_is_not_taken_for_written(file: LogFile):
    assert file.ready()
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        file.append(b"two\n", 1)
    assert not file.ready()
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"two\n"
    assert file.mark.records == 2


def test_what_went_into_a_file_that_was_just_renamed_is_there(file: LogFile):
    assert file.ready()
    moved = file.path.rename(file.path.with_name("moved"))
    file.append(b"two\n", 1)
    assert moved.read_bytes() == b"one\ntwo\n"


def test_a_file_system_that_counts_no_links_is_written(file: LogFile, monkeypatch: pytest.MonkeyPatch):
    file.close()
    true = os.fstat

    def without_links(fd: int) -> os.stat_result:
        found = list(true(fd))
        found[3] = 0
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", without_links)
    assert file.ready()
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"one\ntwo\n"


def test_a_folder_or_a_file_in_the_way_is_an_os_error_and_no_more(file: LogFile):
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(OSError):
        file.ready()
    file.path.rmdir()
    shutil.rmtree(file.path.parent)
    file.path.parent.write_text("a file")
    with pytest.raises(OSError):
        file.ready()
    file.path.parent.unlink()
    assert not file.ready()


def test_a_full_device_takes_nothing_and_is_left_for_a_file(tmp_path: Path):
    path = tmp_path / "debug.log"
    path.symlink_to("/dev/full")
    file = LogFile(path)
    for _ in range(3):
        file.ready()
        with pytest.raises(OSError):
            file.append(b"one\n", 1)
    path.unlink()
    assert not file.ready()
    file.append(b"one\n", 1)
    assert path.read_bytes() == b"one\n"


class Disk:
    """Makes calls of `os` fail as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._real = {name: getattr(os, name) for name in ("write", "fstat", "ftruncate", "close")}

    def fails(self, name: str, number: int = errno.ESTALE, after: int | None = None) -> None:
        """Once; a write may first take `after` bytes."""

        def once(*args: Any) -> Any:
            self._patch.setattr(os, name, self._real[name])
            if after is not None:
                self._real["write"](args[0], args[1][:after])
            raise OSError(number, os.strerror(number))

        self._patch.setattr(os, name, once)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("call", ["write", "fstat"])
def test_a_stale_handle_is_let_go_and_the_path_opened_again(file: LogFile, disk: Disk, call: str):
    assert file.ready()
    disk.fails(call)
    with pytest.raises(OSError):
        file.append(b"two\n", 1)
    assert file._fd == -1, "the same path may have the same inode behind a new handle"
    file.ready()
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"one\ntwo\n"


def test_half_a_record_is_cut_off_at_once(file: LogFile, disk: Disk):
    disk.fails("write", errno.ENOSPC, after=2)
    with pytest.raises(OSError):
        file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"one\n"
    assert (file.mark.size, file.mark.records) == (4, 1)


def test_half_a_record_that_cannot_be_cut_off_is_cut_when_the_file_is_back(file: LogFile, disk: Disk):
    disk.fails("write", errno.EIO, after=2)
    disk.fails("ftruncate", errno.EIO)
    with pytest.raises(OSError):
        file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"one\ntw"
    disk.fails("ftruncate", errno.EIO)
    with pytest.raises(OSError):
        file.ready()
    file.ready()
    file.append(b"two\n", 1)
    assert file.path.read_bytes() == b"one\ntwo\n"


def test_a_short_write_is_completed(file: LogFile, monkeypatch: pytest.MonkeyPatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    file.append(b"two and more\n", 1)
    assert file.path.read_bytes() == b"one\ntwo and more\n"


def test_after_a_crash_it_is_cut_back_to_its_mark_and_a_strangers_file_is_not(file: LogFile):
    mark = file.mark
    file.append(b"behind the checkpoint\n", 1)
    LogFile(file.path, mark).cut_to_mark()
    assert file.path.read_bytes() == b"one\n"
    file.path.unlink()
    file.path.with_name("keep-the-inode").touch()
    file.path.write_bytes(b"somebody else's, and longer\n")
    LogFile(file.path, Mark(mark.inode + 1, 4, 1)).cut_to_mark()
    assert file.path.read_bytes() == b"somebody else's, and longer\n"


def test_a_close_that_fails_on_a_stale_handle_is_no_trouble(file: LogFile, monkeypatch: pytest.MonkeyPatch):
    real = os.close

    def failing(fd: int) -> None:
        real(fd)
        raise OSError(errno.ESTALE, "stale")

    monkeypatch.setattr(os, "close", failing)
    file.close()
    assert file._fd == -1


# -- rotation -------------------------------------------------------------------------------------------


class Now:
    """Wall time as told."""

    def __init__(self) -> None:
        self.time = datetime(2026, 12, 2, 7, 18, 53, 159741)

    def __call__(self) -> datetime:
        return self.time


def rotate(rotation: Rotation, file: LogFile) -> Path:
    move = rotation.plan(file)
    file.close()
    move.perform()
    rotation.afterwards(move)
    file.ready()
    return move.target


def test_a_rotated_file_is_named_as_loguru_names_it(file: LogFile):
    target = rotate(Rotation(100, None, False, now=Now()), file)
    assert target.name == "debug.2026-12-02_07-18-53_159741.log"
    assert target.read_bytes() == b"one\n"
    assert file.path.read_bytes() == b""


def test_a_file_is_due_before_it_would_grow_beyond_the_limit_and_never_while_empty(file: LogFile):
    rotation = Rotation(10, None, False)
    assert not rotation.due(file, 6)
    assert rotation.due(file, 7)
    rotate(rotation, file)
    assert not rotation.due(file, 1000)


@pytest.mark.parametrize("again", [True, False])
def test_names_stay_in_order_whatever_the_clock_does(file: LogFile, again: bool):
    now = Now()
    rotation = Rotation(10, None, False, now=now)
    jumps = [0, 0, -3600, 0, 86400 * 3653, -86400 * 3653, 1]
    for number, seconds in enumerate(jumps):
        now.time += timedelta(seconds=seconds)
        if again:  # by an agent that was started again, and asks the folder
            rotation = Rotation(10, None, False, now=now)
        file.append(str(number).encode(), 1)
        rotate(rotation, file)
    assert [path.read_bytes()[-1:] for path in rotated(file.path)] == [b"%d" % n for n in range(len(jumps))]
    assert [path.name for path in rotated(file.path)] == sorted(p.name for p in rotated(file.path))


def test_a_name_with_special_characters_has_its_siblings_found(tmp_path: Path):
    now = Now()
    file = LogFile(tmp_path / "node-[a*]?.log")
    (tmp_path / "node-a.2020-01-01_00-00-00_000000.log").touch()
    for number in range(3):
        file.ready()
        file.append(str(number).encode(), 1)
        rotate(Rotation(10, None, False, now=now), file)
    assert [path.read_bytes() for path in rotated(file.path)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("keep", [0, 1, 3, 5, 50])
def test_as_many_rotated_files_are_kept_as_wanted_and_no_fewer(file: LogFile, until: Until, keep: int):
    now = Now()
    rotation = Rotation(10, keep, False, now=now)
    made = []
    for number in range(8):
        file.append(str(number).encode(), 1)
        made.append(rotate(rotation, file))
        kept = made[max(0, len(made) - keep) :]
        until(lambda kept=kept: rotated(file.path) == kept, f"{kept} are left")
        now.time += timedelta(seconds=1)


def test_rotated_files_are_compressed_whole_and_counted_among_the_kept(file: LogFile, until: Until):
    rotation = Rotation(10, 2, True, now=Now())
    for number in range(5):
        file.append(b"%d" % number, 1)
        rotate(rotation, file)
    until(lambda: [p.suffix for p in rotated(file.path)] == [".gz", ".gz"], "two compressed files")
    assert [gzip.decompress(path.read_bytes()) for path in rotated(file.path)] == [b"3", b"4"]
    assert not list(file.path.parent.glob(".*"))


def test_what_a_crash_left_uncompressed_is_compressed_at_the_next_rotation(file: LogFile, until: Until):
    rotate(Rotation(10, None, False, now=Now()), file)
    half = file.path.with_name(f".{rotated(file.path)[0].name}.gz.new")
    half.write_bytes(b"half of it")
    file.append(b"two\n", 1)
    rotate(Rotation(10, None, True, now=Now()), file)
    until(lambda: [p.suffix for p in rotated(file.path)] == [".gz", ".gz"], "both compressed")
    assert [gzip.decompress(path.read_bytes()) for path in rotated(file.path)] == [b"one\n", b"two\n"]
    assert not half.exists()


def test_a_rename_is_done_once_and_only_with_the_file_that_was_meant(file: LogFile):
    move = Rename(file.path, file.path.with_name("target"), file.mark.inode)
    move.perform()
    move.perform()
    file.ready()
    file.append(b"new\n", 1)
    move.perform()
    assert file.path.read_bytes() == b"new\n"
    assert move.target.read_bytes() == b"one\n"
