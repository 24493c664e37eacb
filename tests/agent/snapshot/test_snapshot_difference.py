"""Two snapshots, read from their folders, compared and shown: differences only, at most 100 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankside_agent.snapshot import config_text, place, show, stored
from rankside_agent.snapshot.difference import compare

CONFIG = {"log_interval": 5, "wandb_project": None, "profile_ranks": [0]}
NODE = {
    "host": "here",
    "cpu": "EPYC",
    "cpus": 96,
    "memory_gib": 1511,
    "gpus": [{"name": "MI300X", "pci": "63"}],
}
GIT = {
    "commit": "abc",
    "dirty": True,
    "status": [" M train.py"],
    "diff_stat": " train.py | 2 ++\n",
    "captured": 1,
}


@pytest.fixture
def kept(tmp_path):
    """A snapshot with some parts changed."""
    count = iter(range(1, 100))

    def make(
        config=CONFIG, given=None, env=None, packages="torch==2.5.0\n", git=GIT, nodes=(NODE,), argv=("t.py",)
    ):
        number = next(count)
        folder = tmp_path / "exp" / "snapshot" / f"attempt-{number}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(config_text.write(config, given or {}, "x"))
        (folder / "packages.txt").write_text(packages)
        command = {
            "argv": list(argv),
            "host": "here",
            "attempt": number,
            "started": number,
            "exp_name": "exp",
        }
        for name, value in {"env": env or {"A": "1"}, "command": command, "git": git}.items():
            if value is not None:
                (folder / f"{name}.json").write_text(json.dumps(value))
        for node in nodes:
            (folder / f"hardware-{node['host']}.json").write_text(json.dumps(node))
        return stored.read(folder)

    return make


def lines(one, other, everything=False) -> list[str]:
    found = list(show.difference(compare(one, other, everything), one, other))
    assert all(len(line) <= show.WIDTH for line in found)
    return [line for line in found if line]


def test_two_attempts_alike_are_the_same(kept):
    found = compare(kept(), kept(git={**GIT, "captured": 2}))
    assert found.same
    assert found.left_out == []


def test_only_what_differs_is_shown_by_group(kept):
    one = kept(packages="a==1\nb==1\nc==1\n")
    other = kept(
        config={**CONFIG, "log_interval": 7},
        given={"log_interval": "/long/way/exp.yaml"},
        packages="a==1\nb==2\nd==1\n",
        git={**GIT, "commit": "abd", "status": [], "diff_stat": ""},
        nodes=({**NODE, "cpus": 64, "gpus": []},),
        env={"A": "2"},
        argv=("t.py", "--lr", "a b"),
    )
    assert lines(one, other) == [
        "configuration",
        "  log_interval  5 -> 7  (given: exp.yaml)",
        "command",
        "  argv  t.py -> t.py --lr 'a b'",
        "packages",
        "  b  1 -> 2",
        "  c  1 -> (none)",
        "  d  (none) -> 1",
        "git",
        "  commit           abc -> abd",
        "  status train.py  M -> (none)",
        "  diff train.py    2 ++ -> (none)",
        "hardware",
        "  cpus   96 -> 64",
        "  gpu 0  MI300X  63 -> (none)",
        "environment",
        "  A  1 -> 2",
    ]


def test_what_differs_with_every_start_is_left_out_and_counted(kept):
    one = kept(env={"A": "1", "MASTER_PORT": "1", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"})
    other = kept(env={"A": "1", "MASTER_PORT": "2", "SLURM_JOB_ID": "8", "SLURM_NTASKS": "2"})
    assert compare(one, other).same
    assert lines(one, other) == ["left out, for it differs with every start: 2 names (--all shows them)"]
    assert "  MASTER_PORT   1 -> 2" in lines(one, other, everything=True)


def test_a_part_that_only_one_has_is_a_difference(kept):
    assert lines(kept(), kept(git=None)) == ["git: not known of the second"]
    assert lines(kept(git=None), kept()) == ["git: not known of the first"]


def test_long_values_are_shown_from_where_they_part(kept):
    common = "/usr/lib:" * 40
    found = lines(kept(env={"PATH": f"{common}a"}), kept(env={"PATH": f"{common}b"}))
    assert found[1:] == ["  PATH", f"    - ...{common[-20:]}a", f"    + ...{common[-20:]}b"]


def test_numbers_and_texts_that_look_alike_are_told_apart(kept):
    assert lines(kept(config={"a": 1}), kept(config={"a": True}))[1:] == ["  a  1 -> true"]
    assert lines(kept(config={"a": ""}), kept(config={"a": "\x1b[2J"}))[1:] == ['  a  "" -> \\x1b[2J']


def test_other_nodes_are_a_line_each(kept):
    there = {**NODE, "host": "there"}
    found = kept(nodes=(NODE, there)).groups["hardware"]
    assert found["node there"] == "96 x EPYC, 1511 GiB, 1 x MI300X"
    assert found["gpu 0"] == "MI300X  63"
    other = kept(nodes=(NODE, {**there, "gpus": []}))
    changed = "96 x EPYC, 1511 GiB, 1 x MI300X -> 96 x EPYC, 1511 GiB"
    assert lines(kept(nodes=(NODE, there)), other) == ["hardware", f"  node there  {changed}"]


def test_all_of_one_is_shown_within_the_width(kept):
    found = list(
        show.snapshot(
            kept(packages="x-y==1\n" * 3 + "p" * 300 + "==1\n", env={"A": "x" * 500, "n" * 200: "\n"})
        )
    )
    assert "  log_interval   5" in found
    assert "  A" in "\n".join(found)
    assert all(len(line) <= show.WIDTH for line in found if "p" * 300 not in line)


@pytest.mark.parametrize("data", [b"", b"[1]", b"3", b"\xff\xfe", b'{"argv": 3, "host": []}', b"[" * 100_000])
def test_files_that_hold_something_else_raise_nothing(tmp_path, data):
    for name in ("config.yaml", "packages.txt", "env.json", "command.json", "git.json", "hardware-x.json"):
        (tmp_path / name).write_bytes(data)
    found = stored.read(tmp_path)
    list(show.snapshot(found))
    compare(found, found)


# -- which attempt is meant ----------------------------------------------------------------------------


def test_a_run_is_found_by_its_folder_and_those_inside(kept, tmp_path, monkeypatch):
    kept(), kept()
    root = tmp_path / "exp"
    monkeypatch.chdir(tmp_path)
    for text in (str(root), "exp/", f"{root}/snapshot", f"{root}/snapshot/attempt-2", f"{root}@2"):
        assert place.find(tmp_path, text) == ("exp", 2, root / "snapshot" / "attempt-2")
    assert place.find(tmp_path, f"{root}@1").title == "exp@1"
    assert place.find(tmp_path, f"{root}/snapshot/attempt-1").number == 1
    assert place.find(tmp_path, str(root), 1).number == 1
    assert [each.number for each in place.before(tmp_path, str(root))] == [1, 2]
    with pytest.raises(place.NoSnapshot, match="exp@1 is the first attempt with a snapshot"):
        place.before(tmp_path, f"{root}@1")


def test_a_run_is_found_by_its_name(kept, tmp_path):
    kept()
    state = tmp_path / "state" / "done" / "exp-1"
    state.mkdir(parents=True)
    facts = {"exp_name": "llama", "exp_root": str(tmp_path / "exp"), "attempts": []}
    (state / "run.json").write_text(json.dumps(facts))
    for text in ("llama", "llama@1", "exp-1", None, "", str(state)):
        assert place.find(tmp_path / "state", text).title == "llama@1"
    (state / "run.json").write_text(json.dumps({**facts, "exp_name": "llama@7"}))
    for text in ("llama@7", "llama@7@1"):
        assert place.find(tmp_path / "state", text).title == "llama@7@1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("exp@9", "exp has no snapshot of attempt 9; it has 1"),
        ("./nowhere", "is no folder of a run"),
        ("empty/", "is no folder of a run"),
        ("unknown", "no run is known"),
        ("", "no run is known"),
    ],
)
def test_what_is_not_there_is_said(kept, tmp_path, monkeypatch, text, told):
    kept()
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LookupError, match=told):
        place.find(tmp_path / "state", f"./{text}" if text == "exp@9" else text)


def test_attempts_without_a_snapshot_do_not_count(kept, tmp_path):
    kept()
    (tmp_path / "exp" / "snapshot" / "attempt-2").mkdir()
    assert place.find(tmp_path, str(tmp_path / "exp")).number == 1
    assert not stored.exists(Path(tmp_path / "exp" / "snapshot" / "attempt-2"))
