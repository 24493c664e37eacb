"""Files wait as long as the store is away, and are left out for their own fault only; folders are bounded."""

from __future__ import annotations

import json
import logging
from contextlib import suppress

import pytest

from rankside_agent.sinks import mlflow_walk
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.mlflow_errors import Away, Refused
from rankside_agent.sinks.mlflow_uploads import Uploads
from rankside_agent.sinks.mlflow_walk import Walk


class Store:
    """A run whose artifacts go to a dictionary; `answer` may raise at a destination."""

    id = "run"
    artifact_uri = "memory:"

    def __init__(self, exp_root):
        self.tracker = self
        self.exp_root = exp_root
        self.answer = lambda _destination: None
        self.stored = {}
        self.asked = []
        self.now = 0.0
        self.counts = Counts()
        self.private = {}

    def upload(self, _uri, path, destination):
        self.asked.append(destination)
        self.answer(destination)
        self.stored[destination] = path.read_bytes()

    def uploads(self):
        """A new one, from what the last one knew."""
        return Uploads(self, json.loads(json.dumps(self.private)), self.counts, lambda: self.now)

    def drain(self, uploads, **more):
        for _ in uploads.drain(**more):
            self.private = uploads.state()
        self.private = uploads.state()


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


@pytest.fixture
def make(tmp_path):
    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
        return [tmp_path / name for name in names]

    return make


def away(_destination):
    raise Away("503 Server Error")


def settled(uploads):
    """Pumped until no file is on its way."""
    uploads.pump()
    if uploads._job is not None:
        uploads._job.wait(10)
    return uploads


def test_a_store_that_is_away_gets_everything_in_a_later_life(store, make, caplog):
    store.answer = away
    uploads = store.uploads()
    for path in make("a", "b", "c", "d", "e"):
        uploads.artifact(path)
    for _ in range(50):
        with pytest.raises(Away, match=r"5 artifacts wait for their store: .*503"):
            store.drain(uploads, everything=True)
        store.private = uploads.state()
        assert "5 artifacts wait" in uploads.remark
        uploads = store.uploads()
    store.answer = lambda _destination: None
    store.drain(uploads, everything=True)
    assert sorted(store.stored) == ["a", "b", "c", "d", "e"]
    assert len(caplog.records) == 1
    assert (store.counts.refused, uploads.remark) == (0, "")


def test_files_that_fail_hold_no_others_up(store, make):
    def answer(destination):
        if destination.startswith("bad"):
            away(destination)

    store.answer = answer
    for path in make(*(f"bad{n}" for n in range(5)), *(f"good{n}" for n in range(5))):
        uploads = store.uploads()
        uploads.artifact(path)
        store.private = uploads.state()
    for _ in range(4):
        uploads = store.uploads()
        with suppress(Away):
            store.drain(uploads)
        store.private = uploads.state()
    assert len(store.stored) == 5
    with pytest.raises(Away):
        store.drain(store.uploads(), everything=True)


def test_while_the_run_goes_on_a_failure_is_followed_by_longer_and_longer_pauses(store, make):
    store.answer = away
    uploads = store.uploads()
    uploads.artifact(*make("a"))
    for _ in range(3000):
        settled(uploads)
        store.now += 1.0
    assert 40 < len(store.asked) < 80
    store.answer = lambda _destination: None
    for _ in range(70):
        settled(uploads)
        store.now += 1.0
    assert list(store.stored) == ["a"]
    assert uploads.remark == ""


def test_a_verdict_on_a_file_leaves_it_out_once_and_is_told(store, make, tmp_path, caplog):
    def answer(destination):
        if destination == "large":
            raise Refused("413 Client Error")

    store.answer = answer
    paths = make("large", "a")
    for _ in range(2):
        uploads = store.uploads()
        for path in paths:
            uploads.artifact(path)
        store.drain(uploads, everything=True)
    assert store.counts.refused == 1
    uploads.artifact(tmp_path / "missing")
    store.drain(uploads, everything=True)
    assert store.counts.refused == 2
    assert "2 artifacts left out: missing: " in uploads.remark
    assert caplog.text.count("is left out") == 2
    assert list(store.stored) == ["a"]


def test_odd_paths_have_names_that_a_store_takes(store, make, tmp_path):
    (tmp_path / "deep").mkdir()
    uploads = store.uploads()
    for path in [*make("é" * 120, "x" * 250), tmp_path / "a\0b", tmp_path / "deep" / ".."]:
        uploads.artifact(path)
    store.drain(uploads)
    assert len(store.stored) >= 2
    assert all(len(part.encode()) < 255 for name in store.stored for part in name.split("/"))
    assert not any(part in ("", ".", "..") for name in store.stored for part in name.split("/"))


def test_of_a_folder_without_end_the_first_files_are_taken_and_one_line_is_told(
    store, make, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(mlflow_walk, "MOST_FILES", 25)
    monkeypatch.setattr(mlflow_walk, "SLICE", 10)
    make(*(f"big/{n:03}" for n in range(120)))
    uploads = store.uploads()
    uploads.artifact(tmp_path / "big")
    store.drain(uploads)
    assert sorted(store.stored) == [f"big/{n:03}" for n in range(25)]
    assert store.counts.refused == 95
    assert "95 artifacts left out: big: 95 files" in uploads.remark
    assert caplog.text.count("big") == 2  # of one line
    assert len(caplog.records) == 1


def test_a_folder_is_looked_through_in_slices_between_the_points(store, make, tmp_path, monkeypatch):
    monkeypatch.setattr(mlflow_walk, "SLICE", 10)
    make(*(f"big/{n:03}" for n in range(100)))
    uploads = store.uploads()
    uploads.artifact(tmp_path / "big")
    settled(uploads)
    settled(uploads)
    assert 0 < len(uploads.state()["waiting"]) <= 21
    store.private = uploads.state()  # killed in the middle
    store.drain(store.uploads(), everything=True)
    assert len(store.stored) == 100


def test_files_beyond_the_bytes_are_counted_and_counting_has_an_end_too(make, tmp_path, monkeypatch):
    make(*(f"big/{n:03}" for n in range(100)))
    monkeypatch.setattr(mlflow_walk, "MOST_BYTES", 7 * 9)
    walk = Walk(tmp_path / "big")
    taken = [path.name for _ in range(5) for path in walk.slice()]
    assert (taken, walk.over, walk.beyond) == ([f"{n:03}" for n in range(9)], True, 91)
    monkeypatch.setattr(mlflow_walk, "MOST_COUNTED", 40)
    monkeypatch.setattr(mlflow_walk, "_COUNTED_AT_ONCE", 15)
    monkeypatch.setattr(mlflow_walk, "SLICE", 10)
    walk = Walk(tmp_path / "big")
    while not walk.over:
        list(walk.slice())
    assert 40 <= walk.beyond < 60
