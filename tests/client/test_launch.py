"""How a process was started: people see no secrets, and what trackers need has a way of its own."""

from __future__ import annotations

import os
import stat

import pytest

from rankside import launch, wire
from rankside.identity import Hello

SECRET = "hunter2hunter2"
KEYS = {
    "WANDB_API_KEY": SECRET,
    "WANDB_PROJECT": "p",
    "MLFLOW_TRACKING_URI": f"https://ann:{SECRET}@h",
    "DATABRICKS_TOKEN": SECRET,
    "WANDB_SERVICE": "s",
    "WANDB_RUN_ID": "r",
    "WANDB_RESUME": "must",
    "WANDB_SWEEP_ID": "w",
    "MLFLOW_RUN_ID": "m",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "HF_TOKEN": SECRET,
    "HTTPS_PROXY": f"http://ann:{SECRET}@proxy",
    "NOTE": f"the key is {SECRET}",
    "PATH": "/bin",
}
OFF = {"disable_wandb": True, "metrics.enable_wandb": False, "disable_mlflow": True}


def test_what_people_may_see_holds_no_secret():
    found = launch.launch(["train.py", "--api-key", SECRET, SECRET, "--lr=1"], KEYS)
    assert found["argv"] == ["train.py", "--api-key", "***", "***", "--lr=1"]
    assert found["cwd"] == os.getcwd()
    assert found["environ"]["PATH"] == "/bin"
    assert found["environ"]["HTTPS_PROXY"] == "http://***@proxy"
    assert SECRET not in str(found)


def test_it_is_bounded_and_says_so():
    found = launch.launch(["x" * 9000] * 100, {f"V{number}": "y" * 9000 for number in range(100)})
    assert len(found["argv"][0].encode()) <= launch.LONGEST
    assert found["argv"][-1] == "[rankside: cut here, 100 arguments in all]"
    assert found["environ"]["RANKSIDE_LEFT_OUT"].endswith(f"variables: more than {launch.MOST} bytes")
    assert len(wire.pack(found)) < launch.MOST
    assert launch.checked_launch(found) == found


def test_bytes_that_are_no_text_become_some():
    found = launch.launch(["a\udcffb"], {"A": "\udcff", "B\udcff": "x"})
    assert found["argv"] == ["a\\udcffb"]
    assert found["environ"] == {"A": "\\udcff", "B\\udcff": "x"}


def test_a_folder_that_is_gone_is_empty(here, monkeypatch):
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()
    assert launch.launch([], {})["cwd"] == ""


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, set()),
        ({"disable_wandb": False}, {"WANDB_API_KEY", "WANDB_PROJECT"}),
        ({"metrics.enable_wandb": True}, {"WANDB_API_KEY", "WANDB_PROJECT"}),
        ({"disable_mlflow": False}, {"MLFLOW_TRACKING_URI", "DATABRICKS_TOKEN"}),
    ],
)
def test_a_trackers_variables_are_told_where_it_is_on(config, names):
    found = launch.tracker_environ({**OFF, **config}, KEYS)
    assert found == {name: KEYS[name] for name in names}


def test_what_no_process_could_be_given_is_not_told():
    on = {**OFF, "disable_wandb": False}
    odd = {"WANDB_A": "\udcff", "WANDB_B": "\ud800", "WANDB_C": "x" * 40_000, "WANDB_\udcff": "x"}
    assert launch.tracker_environ(on, odd) == {"WANDB_A": "\udcff"}
    many = launch.tracker_environ(on, {f"WANDB_{number}": "x" * 30_000 for number in range(20)})
    assert launch.checked_environ(many) == many


# -- from init on --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "tells"),
    [
        ({"rank": 1, "world_size": 2}, True),
        ({"rank": None, "world_size": None}, True),
        ({"rank": 0, "world_size": 2}, False),
        ({"rank": 1, "world_size": 2, "role": "master"}, False),
    ],
)
def test_the_last_rank_tells_for_all(start, monkeypatch, who, tells):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    hello = start(**who, disable_wandb=False, wandb_save_dir="/x")._hello
    assert bool(hello.launch) is tells
    assert hello.environ.get("WANDB_API_KEY") == (SECRET if tells else None)
    assert SECRET not in str(hello.launch)


def test_the_remarks_are_said_by_one_rank(start, texts, here, capfd):
    quiet = start(rank=0, world_size=2, wandb_save_dir="/x", profile=True)
    assert texts(quiet) == []
    loud = start(rank=1, world_size=2, wandb_save_dir="/x", profile=True)
    assert texts(loud) == [
        "profile is true: disable_tensorboard is set to false",
        f"wandb_save_dir is deprecated and ignored: the files go to {here}/exp/wandb",
    ]
    assert "rankside: wandb_save_dir is deprecated" in capfd.readouterr().err
    assert quiet.config["disable_tensorboard"] is loud.config["disable_tensorboard"] is False


def test_an_environment_that_cannot_be_told_stops_nobody(start, monkeypatch, capfd):
    monkeypatch.setattr(launch, "launch", lambda: 1 / 0)
    mon = start()
    assert mon._hello.launch == {}
    assert "not told how this was started: ZeroDivisionError" in capfd.readouterr().err


def test_a_forked_child_does_not_tell_again(start, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    mon = start(disable_wandb=False)
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(into, str((mon._hello.launch, mon._hello.environ)).encode())
        os._exit(0)
    os.close(into)
    os.waitpid(pid, 0)
    assert os.read(out, 100) == b"({}, {})"
    os.close(out)
    assert mon._hello.environ


def test_the_spool_is_for_its_user_alone(start, here, monkeypatch):
    """Also where its user named a folder that everybody may use, and files are made for everybody."""
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    (here / "spool").mkdir(mode=0o777)
    before = os.umask(0)
    try:
        folder = start(disable_wandb=False)._spool.folder
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {folder.name: 0o700, "channel": 0o600, "state": 0o600, "00000001.seg": 0o600}
    assert Hello.unpacked(wire.unpack((folder / "channel").read_bytes())).environ["WANDB_API_KEY"] == SECRET


def test_an_agent_is_told_the_keys(start, fake_agent, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    agent = fake_agent()
    start(disable_wandb=False)
    assert agent.hello()[1]["environ"]["WANDB_API_KEY"] == SECRET


def test_where_others_may_listen_the_keys_are_not_told(start, fake_agent, here, monkeypatch, capfd):
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    (here / "open").mkdir()
    (here / "open").chmod(0o777)
    agent = fake_agent(here / "open" / "a.sock")
    start(disable_wandb=False, endpoint=f"ipc://{here}/open/a.sock")
    hello = agent.hello()[1]
    assert hello["environ"] == {}
    assert hello["launch"]["argv"]
    assert "is not told the trackers' keys" in capfd.readouterr().err
