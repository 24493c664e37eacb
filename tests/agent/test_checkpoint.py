"""The checkpoint of the log files is lost, damaged or out of reach: no line is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankside_agent import checkpoint
from rankside_agent.files import stored_json

House = Any  # of conftest.py
Scene = Any


def lines(last: int) -> list[str]:
    return [f"line {number}" for number in range(1, last + 1)]


@pytest.fixture
def written(scene: Scene) -> Scene:
    """Files with ten lines, of which the newest checkpoint holds nine and the one before eight."""
    channel = scene.channel()
    for number, line in enumerate(lines(10)):
        scene.log(channel, line)
        scene.now += 1.0 if number < 9 else 0.0
        scene.drain()
    return scene


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"lanes": [{"position": "x"}]}', None])
def test_after_the_loss_of_the_newest_one_no_line_is_lost_or_doubled(written: Scene, content: bytes | None):
    path = written.root / "logfiles.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    written.take_up()
    written.drain()
    assert written.texts() == written.node_texts() == lines(10)
    assert any(f"{path} is lost" in text for text in written.reports)
    assert not written.files.remark


def test_one_that_was_killed_in_the_middle_of_saving_goes_on_from_the_newest(written: Scene):
    path = written.root / "logfiles.json"
    path.rename(path.with_name("logfiles.json.next"))
    written.take_up()
    written.drain()
    assert written.texts() == lines(10)
    assert not written.reports


def test_one_that_cannot_be_read_is_waited_for_and_stays_as_it_is(written: Scene):
    path = written.root / "logfiles.json"
    aside = path.rename(written.root / "aside")
    path.mkdir()  # what even root cannot read
    with pytest.raises(IsADirectoryError):
        written.take_up()
    path.rmdir()
    aside.rename(path)
    written.take_up()
    written.drain()
    assert written.texts() == lines(10)


def test_where_no_generation_is_left_it_is_told_how_many_lines_may_stand_twice(written: Scene):
    checkpoint.forget(written.root / "logfiles.json")
    written.take_up()
    assert "10 records of the journal are written again" in written.files.remark
    written.drain()
    assert written.texts() == lines(10) * 2


def test_that_doubt_stands_in_the_runs_own_log(
    house: House, hello: Callable[..., Any], logged: Callable[..., bytes], until: Callable[..., None]
):
    run, channel = house.open(hello(0))
    run.accept(channel, logged(1, "line 1"))
    debug = run.exp_root / "logs" / "pretrain" / "rank-0" / "debug.log"
    until(lambda: house.lines(debug) == ["line 1"], "the line is written")
    house.kill()
    checkpoint.forget(run.folder / "cursors" / "logfiles.json")
    house.start()

    def told() -> bool:
        house.tick()
        return any("1 records of the journal are written again" in text for text in house.lines(debug))

    until(told, "the doubt in the log")


def test_a_new_run_and_the_next_attempt_of_a_delivered_one_raise_no_doubt(
    house: House, hello: Callable[..., Any], logged: Callable[..., bytes], until: Callable[..., None]
):
    for attempt in (1, 2):
        run, channel = house.open(hello(0, job=f"job-{attempt}", channel=f"start-{attempt}"))
        run.accept(channel, logged(1, "line"))
        run.end(channel, "clean")
        house.finish()
    assert not house.reports


def test_nothing_there_is_told_from_what_cannot_be_read_and_what_is_damaged(tmp_path: Path):
    assert stored_json(tmp_path / "nothing") is None
    (tmp_path / "damaged").write_bytes(b"\xff{")
    with pytest.raises(ValueError, match="utf-8"):
        stored_json(tmp_path / "damaged")
    with pytest.raises(OSError, match="directory"):
        stored_json(tmp_path)


def test_files_that_were_made_and_never_written_leave_no_doubt(written: Scene):
    checkpoint.forget(written.root / "logfiles.json")
    for path in written.exp.rglob("*.log"):
        path.write_bytes(b"")
    written.take_up()
    assert not written.files.remark
    written.drain()
    assert written.texts() == lines(10)
