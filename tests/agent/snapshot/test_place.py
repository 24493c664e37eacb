"""Which attempt a word on the command line means: names that look like paths, and numbers that are none."""

from __future__ import annotations

import json

import pytest

from rankside_agent.catalog import UnknownRun
from rankside_agent.snapshot.place import NoSnapshot, before, find


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A node's state, with a run of two attempts each by the names that are asked for."""
    monkeypatch.chdir(tmp_path)

    def known(*names):
        for number, name in enumerate(names):
            root = tmp_path / "out" / str(number)
            for attempt in (1, 3):
                folder = root / "snapshot" / f"attempt-{attempt}"
                folder.mkdir(parents=True)
                (folder / "config.yaml").write_text("a: 1\n")
            facts = {"exp_name": name, "exp_root": str(root), "attempts": [], "updated": number}
            run = tmp_path / "state" / "runs" / str(number)
            run.mkdir(parents=True)
            (run / "run.json").write_text(json.dumps(facts))
        return tmp_path / "state"

    return known


@pytest.mark.parametrize("name", ["a/b", "./a", "/tmp/of/nobody", "a@b", "a@2", "team/llama@x"])
def test_a_run_whose_name_looks_like_a_path_or_a_number_is_found(state, name):
    state = state("other", name)
    assert find(state, name)[:2] == (name, 3)
    assert find(state, f"{name}@1")[:2] == (name, 1)
    assert [attempt.number for attempt in before(state, name)] == [1, 3]


def test_a_folder_of_that_name_that_is_no_run_does_not_hide_one(state, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find(state("a/b"), "a/b")[:2] == ("a/b", 3)


@pytest.mark.parametrize("word", ["x", "", "-1", "1.5", "1e3", "²", "0000000001", "1@x"])
def test_a_number_that_is_none_is_refused_with_those_there_are(state, word):
    with pytest.raises(NoSnapshot) as error:
        find(state("snap"), f"snap@{word}")
    if word != "1@x":
        assert str(error.value) == f"snap@{word}: {word!r} is no number of an attempt; snap has 1, 3"


def test_a_number_without_a_snapshot_is_refused_with_those_there_are(state):
    with pytest.raises(NoSnapshot, match="snap has no snapshot of attempt 2; it has 1, 3"):
        find(state("snap"), "snap@2")


@pytest.mark.parametrize("text", ["x/y", "/x/y@2", "x/y@z"])
def test_what_is_neither_a_folder_nor_a_run_is_said_to_be_neither(state, text):
    with pytest.raises(NoSnapshot) as error:
        find(state("snap"), text)
    told = f"{text} is no folder of a run, nor the name of one: run {text!r} is not known in "
    assert str(error.value).startswith(told)
    assert str(error.value).endswith("known: snap")


@pytest.mark.parametrize("text", ["nobody", "nobody@2", "nobody@x", "@2", "@"])
def test_a_run_that_is_not_known_is_refused_with_those_that_are(state, text):
    with pytest.raises(UnknownRun, match="known: snap"):
        find(state("snap"), text)


def test_a_folder_is_taken_with_and_without_a_number(state, tmp_path):
    state = state("snap")
    assert find(state, "out/0")[:2] == ("0", 3)
    assert find(state, "out/0@1")[:2] == ("0", 1)
    assert find(state, "out/0/snapshot/attempt-1")[:2] == ("0", 1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoSnapshot, match="is no folder of a run"):
        find(state, "empty")
