"""The git state of a working tree: whole where there is one; nothing of a stranger's repository is run."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from rankside_agent import origin

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(tree: Path, *arguments: str) -> str:
    named = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    done = subprocess.run(["git", *named, *arguments], cwd=tree, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """A repository with one commit on `main`."""
    folder = tmp_path / "tree"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "checkout", "--quiet", "-b", "main")
    (folder / "train.py").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


@pytest.fixture
def look(tmp_path):
    """The captured state of a folder."""

    def at(folder, **more):
        path = tmp_path / "run" / "origin" / "attempt-1.json"
        origin.capture(str(folder), path, **more)
        return json.loads(path.read_text())

    return at


def test_a_process_with_many_open_files_can_still_look(tree, look):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    with ExitStack() as opened:
        while opened.enter_context(open(os.devnull)).fileno() < 1100:
            pass
        assert look(tree)["branch"] == "main"


def test_a_clean_tree(tree, look):
    git(tree, "remote", "add", "origin", "https://example.org/llama.git")
    found = look(tree)
    assert found.pop("captured") == pytest.approx(time.time(), abs=60)
    assert found == {
        "cwd": str(tree),
        "commit": git(tree, "rev-parse", "HEAD"),
        "branch": "main",
        "repo_url": "https://example.org/llama.git",
        "dirty": False,
        "status": [],
        "diff_stat": "",
    }


def test_a_changed_tree_says_what_changed(tree, look):
    (tree / "train.py").write_text("two\nthree\n")
    (tree / "new.py").write_text("")
    (tree / "deep").mkdir()
    found = look(tree / "deep")
    assert found["dirty"] is True
    assert found["status"] == [" M train.py", "?? new.py"]
    assert "train.py | 3 ++-" in found["diff_stat"]
    assert "1 file changed" in found["diff_stat"]


def test_files_that_git_does_not_know_make_no_tree_dirty(tree, look):
    (tree / "output.log").write_text("x")
    found = look(tree)
    assert (found["dirty"], found["status"], found["diff_stat"]) == (False, ["?? output.log"], "")


def test_a_detached_head_has_no_branch_and_a_new_repository_no_commit(tree, look, tmp_path):
    git(tree, "checkout", "--quiet", "--detach")
    assert look(tree)["branch"] == ""
    (tmp_path / "fresh").mkdir()
    git(tmp_path / "fresh", "init", "--quiet")
    found = look(tmp_path / "fresh")
    assert (found["commit"], found["dirty"], found["diff_stat"]) == ("", False, "")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://ann:hunter2@example.org/a.git", "https://example.org/a.git"),
        ("https://ghp_token@example.org/a.git", "https://example.org/a.git"),
        ("https://example.org/a.git?access_token=abc", "https://example.org/a.git?access_token=***"),
        ("ssh://git@example.org:22/a.git", "ssh://git@example.org:22/a.git"),
        ("ssh://git:hunter2@example.org/a.git", "ssh://git@example.org/a.git"),
        ("git@example.org:team/a.git", "git@example.org:team/a.git"),
        ("https://ann:p@ss@example.org/a.git", "https://example.org/a.git"),
    ],
)
def test_no_credentials_are_left_in_the_address(tree, look, given, kept):
    git(tree, "remote", "add", "upstream", given)
    assert look(tree)["repo_url"] == kept


@pytest.mark.parametrize("cwd", ["", "relative", "/nonexistent", "/a\0b", "-c", "\ud800"])
def test_where_there_is_no_repository_there_is_an_empty_answer(look, tmp_path, cwd):
    assert look(cwd) == {}
    assert look(tmp_path) == {}


def test_without_git_there_is_an_empty_answer(tree, look, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(tree) == {}


def test_a_place_that_cannot_be_written_raises_nothing(tree, tmp_path):
    (tmp_path / "file").write_text("")
    origin.capture(str(tree), tmp_path / "file" / "attempt-1.json")


def test_the_variables_of_another_repository_are_not_followed(tree, look, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert look(tree)["branch"] == "main"


def test_nothing_of_the_repository_is_run(tree, look, tmp_path):
    """Its hooks, its file system monitor, its filters and diff programs: all that its configuration names."""
    trap, sprung = tmp_path / "trap.sh", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\necho $0 $@ >> {sprung}\ncat\n")
    trap.chmod(0o755)
    hooks = tree / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman", "post-checkout", "pre-commit"):
        shutil.copy(trap, hooks / name)
    for key in ("filter.evil.clean", "filter.evil.process", "filter.e.v.smudge", "diff.evil.textconv"):
        git(tree, "config", key, str(trap))
    for key in ("core.fsmonitor", "diff.external", "diff.evil.command", "core.pager", "core.sshCommand"):
        git(tree, "config", key, str(trap))
    git(tree, "config", "filter.evil.required", "true")
    (tree / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (tree / "train.py").write_text("six\n")  # as long as before: only its content tells
    found = look(tree)
    assert found["dirty"] is True
    assert "train.py" in found["diff_stat"]
    assert not sprung.exists(), sprung.read_text()
    subprocess.run(["git", "status"], cwd=tree, capture_output=True, check=False)
    assert sprung.exists()  # the traps are good


def test_a_filter_whose_name_cannot_be_switched_off_leaves_the_files_unread(tree, look, tmp_path):
    sprung = tmp_path / "sprung"
    git(tree, "config", "filter.a=b.clean", f"touch {sprung}; cat")
    (tree / ".gitattributes").write_text("* filter=a=b\n")
    (tree / "train.py").write_text("six\n")
    found = look(tree)
    assert (found["branch"], found["dirty"], found["status"]) == ("main", None, [])
    assert not sprung.exists()


def test_the_repository_is_not_written_to(tree, look):
    os.utime(tree / "train.py", (1, 1))  # the index would be refreshed
    before = (tree / ".git" / "index").read_bytes()
    look(tree)
    assert (tree / ".git" / "index").read_bytes() == before


def test_a_very_large_change_is_told_in_part(tree, look):
    for number in range(origin.STATUS_LINES + 50):
        (tree / f"{number:04}.txt").write_text("x")
    found = look(tree)
    assert len(found["status"]) == origin.STATUS_LINES + 1
    assert found["status"][-1] == "... 50 more"


def test_git_that_hangs_is_ended_and_what_is_known_is_kept(tree, look, monkeypatch, tmp_path):
    real, fake = shutil.which("git"), tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\ncase "$*" in *porcelain*) sleep 600;; esac\nexec {real} "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    found = look(tree, timeout=2.0)
    assert (found["branch"], found["dirty"], found["status"], found["diff_stat"]) == ("main", None, [], "")


def test_it_is_done_once_and_in_a_thread_with_a_name(tree, tmp_path):
    path = tmp_path / "run" / "origin" / "attempt-1.json"
    thread = origin.begin(str(tree), path)
    assert isinstance(thread, threading.Thread)
    assert (thread.name, thread.daemon) == ("rankside-origin", True)
    thread.join(30)
    assert json.loads(path.read_text())["branch"] == "main"
    assert origin.begin(str(tree), path) is None
    assert not origin._underway


def test_a_tree_of_another_user_is_read_too(tree, look, monkeypatch):
    if os.geteuid():
        pytest.skip("only root can make another's files")
    for folder, _, names in os.walk(tree):
        for name in (".", *names):
            os.chown(Path(folder, name), 12345, 12345)
    assert look(tree)["branch"] == "main"
