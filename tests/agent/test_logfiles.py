"""A run's log files: each record in the right files once and in order, and no file waits for another."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rankside.wire import Kind
from rankside_agent import files as small_files
from rankside_agent.journal import EntryType, Journal, Position
from rankside_agent.logfile import LogFile, Rotation, rotated

Scene = Any  # of conftest.py
LEVELS = ("debug", "info", "warning", "error")


def numbers(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last + 1)]


# -- where a record goes --------------------------------------------------------------------------------


def test_each_level_file_holds_its_level_and_above_by_number(scene: Scene):
    rank = scene.channel(file_level=5)
    for number, name in ((5, "TRACE"), (15, "Level 15"), (25, "NOTICE"), (35, "FATAL"), (40, "E"), (60, "X")):
        scene.log(rank, str(number), level=number, name=name)
    scene.drain()
    assert scene.texts(level="debug") == ["5", "15", "25", "35", "40", "60"]
    assert scene.texts(level="info") == ["25", "35", "40", "60"]
    assert scene.texts(level="warning") == ["35", "40", "60"]
    assert scene.texts(level="error") == ["40", "60"]
    assert scene.node_texts() == ["5", "15", "25", "35", "40", "60"]
    assert "][NOTICE]   [" in scene.text(scene.path())


def test_what_the_configuration_does_not_want_is_in_no_file_and_makes_none(scene: Scene):
    rank = scene.channel(file_level=30)
    scene.log(rank, "info")
    scene.log(rank, "warning", level=30, name="WARNING")
    scene.drain()
    assert scene.texts(level="warning") == scene.node_texts() == ["warning"]
    assert not scene.path(level="debug").exists()
    assert not scene.path(level="info").exists()


def test_the_launchers_own_log_lies_beside_the_modules_and_has_no_node_log(scene: Scene):
    master = scene.channel(0, role="master")
    scene.log(master, "launching")
    scene.drain()
    assert sorted(p.name for p in (scene.exp / "logs").rglob("*.log")) == [
        "master-debug.log",
        "master-info.log",
    ]
    assert (scene.exp / "logs/master/master-info.log").read_text().startswith("(PrimusMaster  pid=4000, ip=")


def test_all_ranks_of_the_node_are_in_one_log_in_the_order_of_arrival(scene: Scene):
    ranks = [scene.channel(rank) for rank in range(3)]
    for turn in range(5):
        for rank in ranks:
            scene.log(rank, f"turn {turn}")
    scene.drain()
    heads = re.findall(r"\[rank-(\d)/8\]", scene.text(scene.node_path()))
    assert heads == ["0", "1", "2"] * 5


def test_a_process_without_a_rank_has_a_folder_of_its_own(scene: Scene):
    scene.log(scene.channel(None, pid=77), "a")
    scene.log(scene.channel(None, pid=78), "b")
    scene.drain()
    assert scene.texts("here-77") == ["a"]
    assert scene.texts("here-78") == ["b"]


def test_a_concurrent_attempt_is_written_in_its_own_folder(scene: Scene):
    scene.log(scene.channel(), "first")
    scene.log(scene.channel(attempt=2, log_root="logs/attempt-2"), "second")
    scene.drain()
    assert scene.texts() == ["first"]
    second = scene.texts(root="logs/attempt-2")
    assert second[0].startswith("======== attempt 2: rank 0 of 8, pid 4000 on here")
    assert second[1:] == ["second"]


def test_another_module_begins_in_its_own_folder_at_the_right_place(scene: Scene):
    rank, other = scene.channel(0), scene.channel(1)
    scene.log(rank, "before")
    scene.journal.module(rank, "sft")
    scene.log(rank, "after")
    scene.log(other, "still pretraining")
    scene.drain()
    assert scene.texts() == ["before"]
    assert scene.texts(module="sft") == ["after"]
    assert scene.texts(1) == ["still pretraining"]
    assert scene.node_texts("sft") == ["after"]
    assert "[sft        ]" in scene.text(scene.path(module="sft"))


def test_events_drops_and_the_agents_notes_are_lines_too(scene: Scene):
    rank = scene.channel()
    scene.put(rank, (Kind.EVENT, (1.7e9, "checkpoint", {"path": "/x", "step": 3})))
    scene.put(rank, (Kind.DROPPED, (1.7e9, {"log": 3, "metrics": 1})))
    scene.journal.note(rank, 1.7e9, 30, "WARNING", "odd")
    scene.drain()
    assert scene.texts() == [
        "event checkpoint path=/x step=3",
        "4 records dropped, the spool was full: 3 log, 1 metrics",
        "odd",
    ]
    assert scene.texts(level="error") == ["4 records dropped, the spool was full: 3 log, 1 metrics"]


# -- what a record may hold -----------------------------------------------------------------------------

ODD = [
    "\x1b[31mred\x1b[0m",
    "  1%|# | 1/100\r  2%|# | 2/100\r100%|##| 100/100",
    "nul \0 and bell \a",
    "{braces} %s <tags> \\n",
    "é 漢 🙂 \u2028 \x85 \x0b \x0c",
    "lone \ud800 surrogate \udcff",
    "",
    " ",
]


@pytest.mark.parametrize("text", ODD)
def test_text_arrives_byte_for_byte_and_surrogates_as_escapes(scene: Scene, text: str):
    rank = scene.channel()
    scene.log(rank, "before", text, "after")
    scene.drain()
    for path in (scene.path(), scene.node_path()):
        lines = path.read_bytes().split(b"\n")
        assert len(lines) == 4
        assert lines[1].endswith(b"] : " + text.encode("utf-8", "backslashreplace"))


def test_a_record_of_many_lines_is_contiguous(scene: Scene):
    ranks = [scene.channel(rank) for rank in range(4)]
    trace = "failed\nTraceback\n  File\n\nValueError: x"
    for rank in ranks:
        scene.log(rank, trace, level=40, name="ERROR")
    scene.drain()
    assert scene.text(scene.path(2)).partition("] : ")[2] == trace + "\n"
    node = scene.text(scene.node_path()).splitlines()
    assert [line[27:35] for line in node] == [f"rank-{rank}/8" for rank in range(4) for _ in range(5)]
    assert [line[47:].partition("] : ")[2] or line[47:] for line in node[:5]] == [
        "failed",
        "| Traceback",
        "|   File",
        "| ",
        "| ValueError: x",
    ]


@pytest.mark.parametrize("at", [math.nan, math.inf, -1.0, 1e300, 0, 2**63])
def test_a_time_that_is_none_does_not_cost_the_record(scene: Scene, at: float):
    rank = scene.channel()
    scene.log(rank, "timeless", at=at)
    scene.log(rank, "after")
    scene.drain()
    assert scene.texts() == scene.node_texts() == ["timeless", "after"]


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


BROKEN: list[tuple[Kind, Any]] = [
    (Kind.LOG, None),
    (Kind.LOG, 5),
    (Kind.LOG, "text"),
    (Kind.LOG, []),
    (Kind.LOG, {}),
    (Kind.LOG, (1.7e9, 20, "INFO", "train", 7)),
    (Kind.LOG, (1.7e9, 20, "INFO", "train", 7, "x", "y")),
    (Kind.LOG, ("now", 20, "INFO", "train", 7, "x")),
    (Kind.LOG, (None, 20, "INFO", "train", 7, "x")),
    (Kind.LOG, (1.7e9, "20", "INFO", "train", 7, "x")),
    (Kind.LOG, (1.7e9, [20], "INFO", "train", 7, "x")),
    (Kind.LOG, (1.7e9, 20, "INFO", ["train"], 7, "x")),
    (Kind.LOG, (1.7e9, 20, ["INFO"], "train", 7, "x")),
    (Kind.LOG, (1.7e9, 20, "INFO", "train", 7, 5)),
    (Kind.LOG, (1.7e9, 20, "INFO", "train", 7, b"bytes")),
    (Kind.LOG, (1.7e9, 20, "INFO", "train", 7, None)),
    (Kind.EVENT, (1.7e9, "e", 5)),
    (Kind.EVENT, (1.7e9, "e")),
    (Kind.EVENT, (1.7e9, "e", {"deep": _deep(300)})),
    (Kind.EVENT, (1.7e9, "e", {"deep": _deep(900)})),
    (Kind.DROPPED, (1.7e9, {"log": "many"})),
    (Kind.DROPPED, (1.7e9, [1])),
    (Kind.METRICS, (1.7e9, 1, {"loss": 1.0})),
    (Kind.MODULE, (1.7e9, "sft")),
]


@pytest.mark.parametrize("at", range(len(BROKEN)), ids=lambda at: f"{BROKEN[at][0].name}-{at}")
def test_a_record_that_cannot_be_read_is_said_to_be_so_and_stops_nothing(scene: Scene, at: int):
    rank, other = scene.channel(0), scene.channel(1)
    scene.log(rank, "before")
    try:
        scene.put(rank, BROKEN[at])
    except (ValueError, RecursionError):
        pytest.skip("cannot even be packed")
    scene.log(rank, "after")
    scene.log(other, "unharmed")
    scene.drain()
    texts = scene.texts()
    assert (texts[0], texts[-1]) == ("before", "after")
    assert len(texts) == 3
    assert scene.texts(1) == ["unharmed"]


def test_bytes_that_are_no_message_are_one_line(scene: Scene):
    from rankside import wire

    rank = scene.channel()
    scene.journal.batch(rank, 1, 1, 1, wire.seal(1, Kind.LOG, b"\xc1\xff garbage"))
    scene.drain()
    assert scene.texts()[0].startswith("record 1 cannot be read: ")


def test_a_very_big_record_lies_whole_between_its_neighbours(scene: Scene):
    rank, other = scene.channel(0), scene.channel(1)
    big = "x" * (1 << 20)
    scene.log(rank, "before", big[: (1 << 20) - 4096], "after")
    scene.log(other, "not delayed")
    scene.drain()
    assert [len(text) for text in scene.texts()] == [6, (1 << 20) - 4096, 5]
    assert scene.texts(1) == ["not delayed"]


# -- lanes: a file that cannot be written keeps nobody waiting -------------------------------------------


def block_with_full_device(scene: Scene, path: Path) -> Callable[[], None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/full")
    return path.unlink


def block_with_folder(scene: Scene, path: Path) -> Callable[[], None]:
    path.mkdir(parents=True)
    return path.rmdir


def block_with_file_for_folder(scene: Scene, path: Path) -> Callable[[], None]:
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.write_text("in the way")
    return path.parent.unlink


def block_with_dangling_link(scene: Scene, path: Path) -> Callable[[], None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/nonexistent/folder/debug.log")
    return path.unlink


BLOCKS = [block_with_full_device, block_with_folder, block_with_file_for_folder, block_with_dangling_link]


@pytest.mark.parametrize("block", BLOCKS)
def test_what_cannot_be_written_waits_alone_and_catches_up_completely(
    scene: Scene, block: Callable[[Scene, Path], Callable[[], None]]
):
    rank, other = scene.channel(0), scene.channel(1)
    free = block(scene, scene.path(0))
    for turn in range(1, 40, 2):
        scene.log(rank, f"line {turn}", f"line {turn + 1}")
        scene.log(other, f"line {turn}", f"line {turn + 1}")
        scene.drain()  # no time passes for those who can write
        assert scene.texts(1)[-1] == scene.node_texts()[-1] == f"line {turn + 1}"
        scene.wait(1)
    assert str(scene.path(0)) in scene.files.behind
    assert not scene.files.idle
    free()
    scene.wait(10)
    assert scene.texts(0) == scene.texts(1) == scene.texts(0, level="info") == numbers(1, 40)
    assert scene.files.behind == []
    assert scene.files.idle
    assert len(scene.files._lanes) == 1
    assert scene.files.lost == 0


@pytest.mark.parametrize("read", [False, True])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(scene: Scene, read: bool):
    channel = scene.channel()
    scene.log(channel, "line 1")
    scene.drain()
    path = scene.path()
    path.unlink()
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if read else -1
    scene.log(channel, "line 2")
    scene.drain()
    assert scene.texts(level="info") == ["line 1", "line 2"]
    assert scene.files.behind == [str(path)]
    assert any(f"{path}: is no regular file" in text for text in scene.reports)
    path.unlink()
    if reader >= 0:
        assert os.read(reader, 10) == b""
        os.close(reader)
    scene.wait()
    assert scene.texts()[-1] == "line 2"
    assert not scene.files.behind


def test_records_of_a_step_that_is_not_over_are_not_counted_as_written(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    scene.log(scene.channel(), "line 1", "line 2")
    seen = []
    append = LogFile.append

    def look(self: LogFile, data: bytes, records: int) -> None:
        seen.append(scene.files.records)
        append(self, data, records)

    monkeypatch.setattr(LogFile, "append", look)
    scene.drain()
    assert set(seen) == {0}
    assert scene.files.records == 2


def test_the_same_trouble_is_told_with_the_same_words_and_with_growing_pauses(scene: Scene):
    rank = scene.channel(0)
    block_with_folder(scene, scene.path(0))
    scene.log(rank, *numbers(1, 3))
    scene.wait(60)
    assert len(set(scene.reports)) == 1  # the agent tells the same words once a minute
    assert len(scene.reports) < 20
    assert str(scene.path(0)) in scene.reports[0]
    assert "nothing is lost" in scene.reports[0]


@pytest.mark.parametrize("restarted", [True, False])
def test_several_files_with_troubles_of_their_own_all_come_back(scene: Scene, restarted: bool):
    ranks = [scene.channel(rank) for rank in range(4)]
    frees = [block(scene, scene.path(rank)) for rank, block in enumerate(BLOCKS)]
    done = 0
    for free in [None, *frees]:
        if free is not None:
            free()
        for _ in range(3):
            for rank in ranks:
                scene.log(rank, *numbers(done + 1, done + 5))
            done += 5
            scene.wait(0.5)
        if restarted:
            scene.take_up()
    scene.wait(20)
    assert scene.files.idle
    for rank in range(4):
        assert scene.texts(rank) == scene.texts(rank, level="info") == numbers(1, done)
    assert len(scene.node_texts()) == 4 * done


def test_a_deleted_file_comes_back_and_the_others_do_not_notice(scene: Scene):
    rank = scene.channel()
    scene.log(rank, *numbers(1, 5))
    scene.drain()
    scene.path().unlink()
    scene.log(rank, *numbers(6, 9))
    scene.drain()
    assert scene.texts() == numbers(6, 9)
    assert scene.texts(level="info") == scene.node_texts() == numbers(1, 9)


def test_a_file_deleted_in_the_instant_of_a_write_loses_nothing_of_that_write(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    rank = scene.channel()
    scene.log(rank, *numbers(1, 5))
    scene.drain()
    append = LogFile.append

    def deleted_first(file: LogFile, data: bytes, records: int) -> None:
        file.path.unlink()
        append(file, data, records)

    scene.log(rank, *numbers(6, 9))
    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "append", deleted_first)
        scene.files.advance()
    scene.wait(1)
    scene.drain()
    assert scene.texts() == scene.texts(level="info") == scene.node_texts() == numbers(6, 9)


def test_a_removed_rank_folder_comes_back(scene: Scene):
    rank, other = scene.channel(0), scene.channel(1)
    scene.log(rank, *numbers(1, 5))
    scene.log(other, *numbers(1, 5))
    scene.drain()
    shutil.rmtree(scene.path().parent)
    scene.log(rank, *numbers(6, 9))
    scene.log(other, *numbers(6, 9))
    scene.drain()
    assert scene.texts() == scene.texts(level="info") == numbers(6, 9)
    assert scene.texts(1) == numbers(1, 9)
    assert not scene.reports


def test_a_run_folder_that_went_away_is_told_of_once(scene: Scene):
    (scene.exp / "snapshot").mkdir(parents=True)
    (scene.exp / "snapshot" / "key").write_text("0123456789ab")
    channel = scene.channel()
    scene.log(channel, "line 1")
    scene.drain()
    assert not scene.reports
    scene.exp.rename(scene.root / "elsewhere")
    for number in (2, 3):
        scene.log(channel, f"line {number}")
        scene.drain()
    (told,) = scene.reports
    assert told.startswith(f"{scene.exp}: is not the folder it was")
    assert scene.texts() == ["line 2", "line 3"]


def test_truncation_from_outside_is_gone_on_from_without_a_hole(scene: Scene):
    rank = scene.channel()
    scene.log(rank, *numbers(1, 5))
    scene.drain()
    shutil.copy(scene.path(), scene.path().with_suffix(".copy"))
    os.truncate(scene.path(), 0)
    scene.log(rank, *numbers(6, 9))
    scene.drain()
    assert scene.texts() == numbers(6, 9)
    assert b"\0" not in scene.path().read_bytes()


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_one_failing_write_costs_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch, number: int):
    rank, real = scene.channel(), os.write
    scene.log(rank, *numbers(1, 5))
    scene.drain()
    calls = []

    def once(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) == 2:
            raise OSError(number, os.strerror(number))
        return real(fd, data)

    monkeypatch.setattr(os, "write", once)
    scene.files.advance()
    monkeypatch.setattr(os, "write", real)
    scene.log(rank, *numbers(6, 9))
    monkeypatch.setattr(os, "write", once)
    scene.drain()
    monkeypatch.setattr(os, "write", real)
    assert len(scene.reports) == 1
    scene.wait(5)
    assert scene.texts() == scene.texts(level="info") == scene.node_texts() == numbers(1, 9)


@pytest.fixture
def small_disk(scene: Scene) -> Iterator[Path]:
    """Rank 0's folder on a file system of 64 KiB; only root can have one."""
    place = scene.path(0).parent
    place.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]).returncode:
        pytest.skip("needs root to mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_on_a_full_disk_nothing_is_torn_and_all_arrives_when_there_is_room(scene: Scene, small_disk: Path):
    rank, other = scene.channel(0), scene.channel(1)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 40_000)
    for turn in range(40):
        for each in (rank, other):
            scene.log(each, f"line {turn} {'x' * 500}")
        scene.wait(0.25)
        assert scene.texts(1)[-1].startswith(f"line {turn} ")
    for level in ("debug", "info"):
        data = scene.path(0, level).read_bytes() if scene.path(0, level).exists() else b""
        assert not data or data.endswith(b"\n")
    assert scene.files.behind
    assert len(set(scene.reports)) <= 2
    ballast.unlink()
    scene.wait(10)
    assert not scene.files.behind
    assert scene.texts(0) == scene.texts(1)
    assert len(scene.texts(0)) == 40


def test_while_the_checkpoint_cannot_be_written_nothing_new_is_begun_and_then_all_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    rank = scene.channel()
    scene.log(rank, *numbers(1, 5))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(small_files, "replace_json", full)
        for _ in range(3):
            with pytest.raises(OSError):
                scene.files.advance()
        assert not scene.path().exists() or scene.path().read_bytes() == b""
    scene.drain()
    assert scene.texts() == numbers(1, 5)


def test_a_failed_checkpoint_is_tried_again_though_nothing_new_comes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    rank = scene.channel()
    scene.log(rank, *numbers(1, 5))
    scene.drain()
    scene.files.save()
    scene.log(rank, "line 6")
    scene.files.advance()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(small_files, "replace_json", full)
        with pytest.raises(OSError):
            scene.files.save()
    assert scene.files.unsaved
    scene.now += 1
    scene.drain()
    assert scene.files.durable == scene.journal.end


def test_without_a_free_descriptor_nothing_is_lost(scene: Scene):
    ranks = [scene.channel(rank) for rank in range(5)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/dev/null", os.O_RDONLY)
    os.close(probe)
    done = 0
    for few in (0, 1, 2, 3, 5, 8, 13):
        for rank in ranks:
            scene.log(rank, *numbers(done + 1, done + 3), level=40)
        done += 3
        for file in scene.files._files.values():
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe + few, hard))
        try:
            for _ in range(5):
                with suppress(OSError):
                    scene.files.advance()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    scene.wait(20)
    for rank in range(5):
        for level in LEVELS:
            assert scene.texts(rank, level) == numbers(1, done)
    assert len(scene.node_texts()) == 5 * done
    assert scene.files.lost == 0


def test_more_files_than_are_kept_open_are_written_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rankside_agent.logfiles._OPEN_FILES", 10)
    ranks = [scene.channel(rank) for rank in range(8)]
    for turn in range(3):
        for rank in ranks:
            scene.log(rank, f"line {turn}", level=40)
            scene.drain()
    assert sum(1 for file in scene.files._files.values() if file._fd >= 0) <= 15
    for rank in range(8):
        assert scene.texts(rank, "error") == numbers(0, 2)


# -- the journal's limit --------------------------------------------------------------------------------


@pytest.fixture
def short_segments(scene: Scene) -> Scene:
    """Some ten records in a segment."""
    scene.journal = Journal(scene.journal.folder, 2000)
    return scene


def test_what_the_journal_cannot_keep_is_counted_for_exactly_the_files_that_miss_it(short_segments: Scene):
    scene = short_segments
    rank, other = scene.channel(0), scene.channel(1)
    free = block_with_full_device(scene, scene.path(0, "error"))
    for turn in range(1, 101):
        scene.log(rank, f"line {turn}", level=40 if turn % 4 == 0 else 20)
        scene.log(other, f"line {turn}")
        scene.drain()
    assert scene.texts(1) == numbers(1, 100)
    newest = scene.journal.end.segment
    scene.files.give_up_before(newest)
    assert scene.files.durable.segment == newest
    scene.journal.drop_before(newest)
    free()
    scene.wait(10)
    errors = scene.texts(0, "error")
    assert errors == [f"line {turn}" for turn in range(4, 101, 4)][-len(errors) :]
    assert scene.files.lost == 25 - len(errors) > 0
    assert scene.texts(0) == scene.texts(1) == numbers(1, 100)
    assert json.loads((scene.root / "logfiles.json").read_text())["lost"] == scene.files.lost
    assert scene.take_up().lost == 25 - len(errors)


def test_a_run_none_of_whose_files_can_be_written_loses_whole_records(short_segments: Scene):
    scene = short_segments
    scene.exp.write_text("a file where the run's folder should be")
    rank = scene.channel(0)
    for turn in range(1, 101):
        scene.log(rank, f"line {turn}", level=40)
        scene.wait(0.25)
    newest = scene.journal.end.segment
    scene.files.give_up_before(newest)
    scene.journal.drop_before(newest)
    scene.exp.unlink()
    scene.wait(10)
    kept = scene.texts(0)
    assert kept == numbers(101 - len(kept), 100)
    assert scene.files.lost == 100 - len(kept) > 0
    for level in LEVELS:
        assert scene.texts(0, level) == kept


def test_records_lost_to_damage_of_the_journal_are_counted_and_told(short_segments: Scene):
    scene = short_segments
    rank = scene.channel(0)
    for turn in range(1, 101):
        scene.log(rank, f"line {turn}")
    path = scene.journal.folder / "00000003.seg"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    scene.drain()
    assert scene.files.lost == 100 - len(scene.texts()) > 0
    assert scene.texts()[-1] == "line 100"
    assert any("damaged" in report for report in scene.reports)


# -- the life of channels and files ---------------------------------------------------------------------


def test_a_number_used_again_after_a_restart_is_another_channel(scene: Scene):
    rank = scene.channel(0)
    free = block_with_folder(scene, scene.path(0))
    scene.log(rank, "rank 0")
    scene.drain()
    scene.journal.end_channel(rank, {"time": 1.7e9, "status": "finished", "how": "clean"})
    scene.journal.forget(rank)
    scene.journal.close()
    scene.journal = Journal(scene.journal.folder)
    del scene.last[rank]
    again = scene.channel(5, channel="another")
    assert again == rank
    scene.log(again, "rank 5")
    scene.drain()
    free()
    scene.wait(5)
    assert scene.texts(0) == scene.texts(0, level="info") == ["rank 0"]
    assert scene.texts(5) == scene.texts(5, level="info") == ["rank 5"]


def test_thousands_of_short_lived_processes_leave_nothing_in_memory(scene: Scene):
    for number in range(2000):
        child = scene.channel(0, parent="parent", pid=number)
        scene.log(child, "hello")
        scene.journal.end_channel(child, {"time": 1.7e9, "status": "finished", "how": "clean"})
        scene.journal.forget(child)
    scene.drain()
    assert len(scene.texts()) == 2000
    assert not scene.files._channels
    assert not scene.files._locations
    assert len(scene.files._files) == 3


def test_a_module_of_a_strangers_choice_stays_below_its_folder(scene: Scene):
    for number, module in enumerate(["../../x", "/abs", "..", ".", "", "a\0b", "a/b", "x" * 3000, "\ud800"]):
        scene.log(scene.channel(number, module=module), module[:20])
    scene.drain()
    assert not scene.reports
    found = [path.relative_to(scene.exp / "logs") for path in scene.exp.rglob("debug.log")]
    assert len(found) == 9
    assert all(len(path.parts) == 3 for path in found)
    assert sorted(path.name for path in scene.root.iterdir()) == ["exp", "journal", "logfiles.json"]


def test_rotation_keeps_every_line_and_every_file_near_its_limit(scene: Scene):
    scene.rotation = Rotation(20_000, None, False)
    scene.step_bytes = 2_000
    scene.take_up()
    rank = scene.channel()
    for turn in range(0, 2000, 10):
        scene.log(rank, *numbers(turn + 1, turn + 10))
    scene.drain()
    parts = rotated(scene.path())
    assert len(parts) > 10
    assert all(12_000 < part.stat().st_size <= 20_000 for part in parts)
    assert scene.texts() == scene.texts(level="info") == scene.node_texts() == numbers(1, 2000)


def test_a_rotated_file_that_a_crash_left_beside_its_compressed_copy_is_there_once(scene: Scene):
    channel = scene.channel()
    scene.log(channel, "new")
    scene.drain()
    scene.files.save()
    for name in ("debug.2026-01-02_03-04-05_000001.log", "debug.2026-01-02_03-04-06_000001.log"):
        scene.path().with_name(name).write_text("old\n")
    first, second = rotated(scene.path())
    packed = first.with_name(f"{first.name}.gz")
    packed.write_bytes(gzip.compress(first.read_bytes()))
    scene.take_up()
    assert rotated(scene.path()) == [packed, second]


def test_an_existing_file_of_an_earlier_run_is_gone_on_with(scene: Scene):
    scene.path().parent.mkdir(parents=True)
    scene.path().write_text("history\n")
    scene.log(scene.channel(), "line 1")
    scene.drain()
    assert scene.text(scene.path()).startswith("history\n[")


def test_a_rotation_that_fails_leaves_the_file_growing_and_a_crash_after_it_no_trouble(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    scene.rotation = Rotation(5_000, None, False)
    scene.step_bytes = 1_000
    scene.take_up()
    rank = scene.channel()

    def refused(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refused)
        for turn in range(0, 200, 10):
            scene.log(rank, *numbers(turn + 1, turn + 10))
            scene.drain()
        scene.take_up()
        scene.drain()
    assert not rotated(scene.path())
    scene.log(rank, *numbers(201, 400))
    scene.wait(10)
    assert scene.texts() == scene.texts(level="info") == numbers(1, 400)


def test_what_it_says_of_itself_is_right(scene: Scene):
    rank = scene.channel()
    scene.log(rank, *numbers(1, 5))
    assert scene.files.waiting(scene.journal.end)
    scene.drain()
    assert not scene.files.waiting(scene.journal.end)
    assert scene.files.records == scene.journal.state.records == 5
    scene.files.close()
    assert scene.files.durable == scene.journal.end
    again = scene.take_up()
    assert again.records == 5
    assert not again.advance()


def test_entries_of_a_channel_nobody_knows_are_passed_over(scene: Scene):
    scene.journal._append(EntryType.NOTE, 99, b"\x94\x01\x14\xa4INFO\xa1x")
    scene.log(scene.channel(), "line 1")
    scene.drain()
    assert scene.texts() == ["line 1"]
    assert scene.files._lanes[0].position > Position(1, 0)
