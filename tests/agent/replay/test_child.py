"""A tracker's process as the command sees it."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from rankside_agent.journal import Journal
from rankside_agent.replay.child import Child, end
from rankside_agent.replay.subject import find

PATIENCE = 30


@pytest.fixture
def subject(tmp_path):
    """A run with an empty journal, whose exp_root is no folder: its process waits."""
    facts = {"run_id": "exp", "exp_name": "exp", "exp_root": str(tmp_path / "file" / "exp"), "attempts": []}
    (tmp_path / "file").touch()
    (tmp_path / "run.json").write_text(json.dumps(facts))
    Journal(tmp_path / "journal" / "points").close()
    return find(tmp_path, str(tmp_path))


def wait(until):
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_that_gives_no_sign_of_life_is_ended(subject):
    child = Child(subject, "tensorboard", again=False, patience=60.0, silence=0.2)
    os.kill(child.pid, signal.SIGSTOP)
    wait(lambda: child.ended() is not None)
    assert child.hung
    assert child.ended() == -signal.SIGKILL


def test_what_an_earlier_process_said_is_told_until_its_own_word(subject):
    (subject.folder / "sinks").mkdir()
    before = {"pid": 1, "read": 5, "points": 7}
    (subject.folder / "sinks" / "tensorboard.json").write_text(json.dumps(before))
    child = Child(subject, "tensorboard", again=False, patience=60.0)
    try:
        assert (child.before, child.told, child.spoke) == (before, before, False)
        wait(lambda: child.spoke)
        assert child.told["pid"] == child.pid
    finally:
        end([child])
    assert child.ended() is not None


def test_what_only_a_stand_in_has_is_still_to_be_delivered(subject):
    (subject.folder / "sinks").mkdir()
    told = {"pid": 1, "read": 5, "points": 7, "anchor": {"read": 2, "points": 3}}
    (subject.folder / "sinks" / "tensorboard.json").write_text(json.dumps(told))
    child = Child(subject, "tensorboard", again=False, patience=60.0)
    end([child])
    assert (child.before["read"], child.before["points"]) == (2, 3)


def test_from_the_beginning_what_was_before_does_not_count(subject):
    (subject.folder / "sinks").mkdir()
    (subject.folder / "sinks" / "tensorboard.json").write_text('{"pid": 1, "read": 5}')
    child = Child(subject, "tensorboard", again=True, patience=60.0)
    end([child])
    assert child.before == {}


def test_the_last_words_of_its_log_are_there_for_a_message(subject):
    child = Child(subject, "tensorboard", again=False, patience=60.0)
    end([child])
    (subject.folder / "sinks" / "tensorboard.log").write_text("one\ntwo\n  three\nfour\n")
    assert child.last_words() == "four"
