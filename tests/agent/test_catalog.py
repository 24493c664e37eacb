"""Finding runs from their folders alone, whatever else lies there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankside_agent.catalog import UnknownRun, all_runs, find_run


def put(state: Path, name: str, updated: Any = 1.0, done: bool = False, **more: Any) -> Path:
    folder = state / ("done" if done else "runs") / name
    folder.mkdir(parents=True)
    facts = {"exp_name": name, "exp_root": f"/data/{name}", "attempts": [], "updated": updated, **more}
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


def test_runs_are_listed_with_the_latest_first_living_or_done(tmp_path: Path):
    put(tmp_path, "old", 1.0), put(tmp_path, "new", 3.0, done=True), put(tmp_path, "middle", 2.0)
    assert [run.exp_name for run in all_runs(tmp_path)] == ["new", "middle", "old"]


def test_a_run_is_found_by_id_by_name_by_folder_and_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = put(tmp_path, "a-0123456789", 1.0, exp_name="a")
    put(tmp_path, "b-0123456789", 2.0, exp_name="b")
    for selector in ("a-0123456789", "a", "/data/a-0123456789", "/data/x/../a-0123456789/"):
        assert find_run(tmp_path, selector).folder == folder
    monkeypatch.chdir("/")
    assert find_run(tmp_path, "data/a-0123456789").folder == folder
    assert find_run(tmp_path).exp_name == "b"


def test_of_two_runs_with_one_name_the_latest_is_meant(tmp_path: Path):
    put(tmp_path, "a-1", 1.0, exp_name="a")
    latest = put(tmp_path, "a-2", 2.0, exp_name="a")
    assert find_run(tmp_path, "a").folder == latest


def test_an_unknown_run_is_told_with_those_that_are_known(tmp_path: Path):
    with pytest.raises(UnknownRun, match="no run is known in"):
        find_run(tmp_path)
    put(tmp_path, "a"), put(tmp_path, "b")
    with pytest.raises(UnknownRun, match=r"run 'c' is not known in .*; known: (a, b|b, a)"):
        find_run(tmp_path, "c")


@pytest.mark.parametrize("content", ["", "{", "[]", "5", "{}", '{"exp_name": "x"}'])
def test_what_is_no_run_is_passed_over(tmp_path: Path, content: str):
    put(tmp_path, "good")
    broken = put(tmp_path, "broken")
    (broken / "run.json").write_text(content)
    (tmp_path / "runs" / "stray").write_text("a file")
    (tmp_path / "runs" / "empty").mkdir()
    assert [run.exp_name for run in all_runs(tmp_path)] == ["good"]


@pytest.mark.parametrize("updated", [None, "yesterday", []])
def test_a_run_without_a_sensible_time_is_the_oldest(tmp_path: Path, updated: Any):
    put(tmp_path, "odd", updated), put(tmp_path, "good", 1.0)
    assert [run.exp_name for run in all_runs(tmp_path)] == ["good", "odd"]


def test_log_roots_are_the_common_one_and_those_of_concurrent_attempts(tmp_path: Path):
    roots = ["logs", "logs/attempt-2", "logs", "logs/attempt-4"]
    put(tmp_path, "a", attempts=[{"n": n, "log_root": root} for n, root in enumerate(roots, 1)])
    assert [str(path) for path in find_run(tmp_path).log_roots] == [
        "/data/a/logs",
        "/data/a/logs/attempt-2",
        "/data/a/logs/attempt-4",
    ]
