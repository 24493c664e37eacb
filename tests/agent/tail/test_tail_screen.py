"""Output goes where it is read, colours only where they are seen, and words beside it are few and safe."""

from __future__ import annotations

import io
import os

import pytest

from rankside_agent.tail.screen import Notices, Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "environment", "coloured"),
    [
        ("auto", {}, True),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"NO_COLOR": ""}, True),
        ("auto", {"TERM": "dumb"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {}, False),
    ],
)
def test_a_terminal_is_coloured_unless_told_otherwise(
    choice: str, environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Screen(Terminal()).colour(choice) is coloured
    assert Screen(io.StringIO()).colour("auto") is False


def test_a_reader_that_is_gone_is_noticed_with_nothing_to_print() -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as stream:
        screen = Screen(stream)
        screen.flush()
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            screen.flush()


def test_the_same_word_is_said_once_a_minute() -> None:
    stream, now = io.StringIO(), [0.0]
    say = Notices(stream, clock=lambda: now[0])
    for now[0] in (0.0, 1.0, 59.0, 61.0):
        say("gone")
    assert stream.getvalue() == "rankside tail: gone\n" * 2


def test_a_flood_of_words_is_cut_and_says_so() -> None:
    stream = io.StringIO()
    say = Notices(stream, clock=lambda: 0.0)
    for number in range(1000):
        say(f"file {number}")
    lines = stream.getvalue().splitlines()
    assert len(lines) < 30
    assert lines[-1].endswith("; for a minute no more is said")


def test_names_in_a_word_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    Notices(stream)("a\x1b[2Jb\nc\udcff")
    assert stream.getvalue() == "rankside tail: a\\x1b[2Jb\\nc\\udcff\n"


def test_an_interrupt_that_got_lost_comes_again() -> None:
    screen = Screen(io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        screen.interrupt(2, None)
    with pytest.raises(KeyboardInterrupt):
        screen.flush()


def test_whether_anything_was_printed_is_known() -> None:
    screen = Screen(io.StringIO())
    assert not screen.used
    screen.write("x")
    assert screen.used
