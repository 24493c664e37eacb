"""The writer's thread: it may fail and hang, and only its own run notices; it never dies of anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rankside_agent.journal import Position
from rankside_agent.writer import Writer

Until = Callable[..., None]


class Files:
    """Stands in for log files; does what a test says."""

    def __init__(self) -> None:
        self.todo, self.advanced, self.saved, self.closed = 0, 0, 0, 0
        self.idle, self.unsaved = False, False
        self.behind: list[str] = []
        self.durable = Position(1, 0)
        self.trouble: list[BaseException] = []
        self.gate: threading.Event | None = None
        self.given_up: list[int] = []

    def advance(self) -> bool:
        self.advanced += 1
        if self.gate is not None:
            self.gate.wait(60)
        if self.trouble:
            raise self.trouble.pop()
        self.idle = not self.todo
        if self.todo:
            self.todo -= 1
            self.unsaved = True
            return True
        return False

    def save(self) -> None:
        self.saved += 1
        self.unsaved = False
        self.durable = Position(1, self.advanced)

    def waiting(self, end: Position) -> bool:
        return bool(self.todo)

    def give_up_before(self, segment: int) -> None:
        self.given_up.append(segment)

    def close(self) -> None:
        self.closed += 1
        if self.trouble:
            raise self.trouble.pop()


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def writer(files: Files, reports: list[str]) -> Iterator[Writer]:
    made = Writer(lambda: files, reports.append, "test")  # type: ignore[arg-type, return-value]
    yield made
    files.gate and files.gate.set()
    made.stop(0.0)
    made.join(30)
    assert not made.alive()


def test_what_there_is_is_written_and_made_durable_without_more_coming(
    writer: Writer, files: Files, until: Until
):
    files.todo = 5
    writer.wake()
    until(lambda: not files.todo and files.saved, "written and saved")
    assert writer.caught_up(Position(1, 1))
    assert writer.durable() == files.durable


def test_with_nothing_to_do_it_takes_no_time(writer: Writer, files: Files, until: Until):
    until(lambda: files.advanced, "its first look")
    before = files.advanced
    time.sleep(0.6)
    assert files.advanced - before <= 3


def test_an_error_is_told_and_tried_again_and_ends_nothing(
    writer: Writer, files: Files, reports: list[str], until: Until, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rankside_agent.writer._TROUBLE", 0.01)
    files.trouble = [OSError(28, "no room"), ValueError("odd"), MemoryError(), RecursionError()]
    files.todo = 3
    writer.wake()
    until(lambda: not files.todo, "written in the end")
    until(lambda: not writer.failed, "the trouble is over")
    assert len(reports) == 4
    assert all("trying again" in report for report in reports)


def test_what_cannot_even_be_opened_is_tried_again(
    files: Files, reports: list[str], until: Until, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rankside_agent.writer._TROUBLE", 0.01)
    attempts: list[int] = []

    def make() -> Any:
        attempts.append(1)
        if len(attempts) < 4:
            raise OSError(5, "a broken disk")
        return files

    files.todo = 1
    writer = Writer(make, reports.append, "test")
    assert writer.durable() == Position(0, 0)
    assert not writer.caught_up(Position(1, 0))
    until(lambda: not files.todo, "written in the end")
    writer.stop(1.0)
    writer.join(30)
    assert files.closed == 1
    assert len(reports) == 3


def test_a_writer_that_hangs_is_asked_and_stopped_without_hanging_too(
    writer: Writer, files: Files, until: Until
):
    files.gate = threading.Event()
    files.todo = 1
    writer.wake()
    until(lambda: files.advanced > 1, "it hangs")
    before = time.monotonic()
    writer.wake()
    writer.give_up_before(7)
    assert not writer.caught_up(Position(1, 0))
    writer.durable()
    writer.stop(0.1)
    writer.join(0.1)
    assert writer.alive()
    assert time.monotonic() - before < 5
    files.gate.set()
    until(lambda: not writer.alive(), "it ends when it can")


def test_stopping_finishes_what_there_is_and_what_came_since_its_last_look(
    files: Files, reports: list[str], until: Until
):
    writer = Writer(lambda: files, reports.append, "test")  # type: ignore[arg-type, return-value]
    until(lambda: files.idle, "nothing was to do")
    files.todo = 1000
    writer.stop(30.0)
    writer.join(30)
    assert (files.todo, files.closed) == (0, 1)


def test_stopping_waits_no_longer_than_told_for_what_cannot_be_written(files: Files, reports: list[str]):
    files.trouble = [OSError(28, "no room")] * 100
    writer = Writer(lambda: files, reports.append, "test")  # type: ignore[arg-type, return-value]
    before = time.monotonic()
    writer.stop(0.2)
    writer.join(30)
    assert time.monotonic() - before < 10
    assert files.closed == 1
    assert "the last checkpoint failed" in reports[-1]


def test_giving_up_is_passed_on_once(writer: Writer, files: Files, until: Until):
    writer.give_up_before(7)
    until(lambda: files.given_up, "passed on")
    seen = files.advanced
    writer.wake()
    until(lambda: files.advanced > seen, "another look")
    assert files.given_up == [7]


def test_a_step_that_takes_too_long_is_told_until_it_is_over(
    writer: Writer, files: Files, until: Until, monkeypatch: pytest.MonkeyPatch
):
    until(lambda: files.advanced, "it works")
    assert not writer.hangs()
    advanced, files.gate = files.advanced, threading.Event()
    writer.wake()
    until(lambda: files.advanced > advanced, "it is inside a step")
    monkeypatch.setattr("rankside_agent.writer._LONG", 0.01)
    until(lambda: writer.hangs() > 0.01, "it is told")
    monkeypatch.undo()
    files.gate.set()
    until(lambda: not writer.hangs(), "it goes on")
