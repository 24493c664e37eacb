"""What reads captured output: its order, marks in pieces, a reader nobody reads, positions that are exact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankside import output_tail
from rankside.output_folder import OutputFolder, unwritten
from rankside.output_marks import MODULE, ORDER, TAKEN, Marks
from rankside.output_page import OutputPage
from rankside.output_passer import Passer
from rankside.output_reader import Piece, Reader
from rankside.wire import Kind

MARKS = Marks("0123456789abcdef" * 2)


@pytest.fixture
def folder(here: Path) -> OutputFolder:
    made = OutputFolder(here / "a.outputs")
    made.make({})
    return made


@pytest.fixture
def files(folder: OutputFolder) -> Iterator[dict[int, tuple[int, int]]]:
    """By stream: what writes and what reads."""
    found = {stream: (folder.open_to_write(stream), folder.open_to_read(stream)) for stream in (0, 1)}
    yield found
    for pair in found.values():
        for fd in pair:
            os.close(fd)


def reader_of(files: dict[int, tuple[int, int]], at: tuple[int, int] = (0, 0)) -> Reader:
    return Reader({stream: pair[1] for stream, pair in files.items()}, at, MARKS)


def text_of(pieces: list[Piece], kind: bytes = b"") -> bytes:
    return b"".join(piece.data for piece in pieces if piece.kind == kind)


def test_a_mark_is_found_wherever_a_look_at_the_file_cuts_it(files):
    whole = b"a\x1b" + MARKS.made(TAKEN, b"taken\n", 0) + b"b" + MARKS.made(MODULE, b"body", 0) + b"c\n"
    reader, found = reader_of(files), []
    for at in range(len(whole)):
        os.write(files[0][0], whole[at : at + 1])
        found += reader.pieces()
    assert text_of(found) == b"a\x1bbc\n"
    assert text_of(found, TAKEN) == b"taken\n"
    assert [piece.data for piece in found if piece.kind == MODULE] == [b"body"]
    assert found[-1].end == len(whole)


def test_a_mark_that_is_cut_for_ever_is_text(files):
    cut = b"a" + MARKS.made(MODULE, b"body", 0)[:-9]
    os.write(files[0][0], cut)
    reader = reader_of(files)
    assert text_of(list(reader.pieces())) == b"a"
    assert b"a" + text_of(list(reader.pieces(final=True))) == cut


def test_another_captures_mark_is_text(files):
    other = Marks("f" * 32).made(TAKEN, b"x", 0)
    os.write(files[0][0], other)
    assert text_of(list(reader_of(files).pieces())) == other


def test_what_was_written_before_comes_before(files):
    os.write(files[1][0], b"first\n")
    os.write(files[0][0], MARKS.made(ORDER, b"", 6) + b"second\n")
    end = os.fstat(files[0][0]).st_size
    os.write(files[1][0], MARKS.made(ORDER, b"", end) + b"third\n")
    assert text_of(list(reader_of(files).pieces())) == b"first\nsecond\nthird\n"


def test_a_file_that_somebody_truncated_begins_anew(files):
    reader = reader_of(files)
    os.write(files[0][0], b"long before\n")
    assert text_of(list(reader.pieces())) == b"long before\n"
    os.ftruncate(files[0][0], 0)
    os.write(files[0][0], b"anew\n")
    assert text_of(list(reader.pieces())) == b"anew\n"


def test_a_position_counts_once_its_record_is_in_the_spool(folder):
    page = folder.page()
    page.intend(1, (10, 0))
    page.confirm()
    page.intend(2, (20, 0))
    asked: list[tuple[str, int]] = []

    def has(answer: bool) -> Callable[[str, int], bool]:
        return lambda spool, seq: bool(asked.append((spool, seq))) or answer

    page.spool = "/spool"
    assert page.recorded(has(True)) == (20, 0)
    assert page.recorded(has(False)) == (10, 0)
    assert asked == [("/spool", 2)] * 2
    page.confirm()
    assert OutputPage(folder.path / "page").recorded(has(False)) == (20, 0)


def test_a_torn_position_is_passed_over(folder):
    page = folder.page()
    for number in (1, 2):
        page.intend(number, (number * 10, 0))
        page.confirm()
    with open(folder.path / "page", "r+b") as file:
        file.write(b"\xff" * 20)  # the even number's slot
    assert folder.page().recorded(lambda _spool, _seq: True) == (10, 0)


def test_an_agent_that_took_the_records_says_which(folder, here):
    has = output_tail._has(folder)
    assert not has(str(here / "gone"), 3)
    folder.note_taken("gone", 3)
    assert has(str(here / "gone"), 3)
    assert not has(str(here / "gone"), 4)
    assert not has(str(here / "other"), 1)


def test_what_nobody_takes_is_given_up_and_the_rest_is_passed_on(folder, files):
    reading, writing = os.pipe()
    page = folder.page()
    os.write(files[0][0], b"y" * 1_000_000)
    passer = Passer(page, {0: files[0][1]}, {0: writing}, MARKS, pytest.fail)
    passer.skip(0, 900_000)
    os.write(files[0][0], b"after\n")
    passer.finish()
    got = b""
    while not got.endswith(b"after\n"):
        got += os.read(reading, 65536)
    assert passer.join(10)
    assert b"bytes of output are not shown here: nobody read them\n" in got
    assert len(got) < 600_000
    os.close(writing), os.close(reading)


def tail_of(folder: OutputFolder, start: Any, here: Path) -> output_tail.Tail:
    hello = {**start()._hello.packed(), "spool": ""}
    word = "0123456789abcdef" * 2
    folder.tell(
        {"hello": hello, "word": word, "endpoint": f"ipc://{here}/none", "spool_bytes": 1, "flush": 0}
    )
    return output_tail.Tail(folder, {})


def test_a_stream_that_the_other_must_wait_for_is_tended_all_the_same(folder, files, start, here):
    for _ in range(40):
        os.write(files[0][0], (b"x" * 99 + b"\n") * 1000)
    os.write(files[1][0], MARKS.made(ORDER, b"", 4_000_000) + b"last\n")
    tail, held = tail_of(folder, start, here), []
    tend = tail._tend
    tail._tend = lambda: (tend(), held.append(os.fstat(files[0][1]).st_blocks * 512))  # type: ignore[method-assign]
    tail._read(False)
    assert len(held) >= 2
    assert held[-1] < held[0] + 4_000_000
    tail._monitor.close()


def test_a_line_that_does_not_end_takes_no_room(folder, files, start, here):
    tail = tail_of(folder, start, here)
    for _ in range(40):
        os.write(files[0][0], b"x" * 500_000)
        tail._read(False)
        tail._tend()
        assert os.fstat(files[0][1]).st_blocks * 512 < 12 << 20
    tail._monitor.close()


def test_who_writes_is_told_by_what_it_holds(folder):
    writing = folder.open_to_write(0)
    reading = folder.open_to_read(0)
    inherited = os.dup(writing)
    assert not unwritten(reading)
    os.close(writing)
    assert not unwritten(reading)
    os.close(inherited)
    assert unwritten(reading)
    os.close(reading)


def test_only_one_reads(folder):
    first = folder.read_alone()
    assert first is not None
    assert folder.read_alone() is None
    assert folder.is_read()
    os.close(first)
    assert not folder.is_read()


def test_a_module_of_output_is_recorded_once(folder, files, start, here, every_spool):
    tail = tail_of(folder, start, here)
    body = tail._monitor._pack((1.0, "sft", 20))
    os.write(files[0][0], b"one\n" + MARKS.made(MODULE, body, 0) * 2 + b"two\n")
    tail._read(False)
    tail._monitor.close()
    kinds = [
        kind
        for name, found in every_spool().items()
        for _, kind, _ in found
        if name == Path(tail._page.spool)
    ]
    assert kinds == [Kind.LOG, Kind.MODULE, Kind.LOG, Kind.CLOSE]
    assert folder.told()["hello"]["module"] == "sft"
