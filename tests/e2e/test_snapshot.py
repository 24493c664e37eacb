"""Two attempts of a real rank under a real agent: what they were is written, shown and compared."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.metadata import version

import pytest

SECRET = "hunter2hunter2"
EXPERIMENT = """
exp_name: exp
modules:
  pre_trainer:
    framework: megatron
    overrides:
      log_interval: ${INTERVAL:5}
      wandb_project: of-${MY_TOKEN:nobody}
      train_iters: 50
"""
SETTINGS = "config=os.environ['CONFIG'], log_progress=True"


@pytest.fixture
def started(node):
    """An agent, and a way to run an attempt to its end."""
    node.agent()
    (node.base / "exp.yaml").write_text(EXPERIMENT)

    def attempt(number: int, settings: str = SETTINGS, **env: str):
        env = {"CONFIG": str(node.base / "exp.yaml"), "MY_TOKEN": SECRET, **env}
        node.finish(node.rank("log.info('at work')", settings=settings, **env))
        folder = node.exp / "snapshot" / f"attempt-{number}"
        wanted = ("config.yaml", "env.json", "command.json", "versions.json", "packages.txt")
        node.until(lambda: all((folder / name).exists() for name in wanted), f"snapshot {number}")
        node.until(lambda: list(folder.glob("hardware-*.json")), f"hardware {number}")
        return folder

    return attempt


def test_what_an_attempt_was_is_written_without_its_secrets(node, started):
    folder = started(1)
    config = (folder / "config.yaml").read_text()
    assert f"log_interval: 5  # given: {node.base}/exp.yaml\n" in config
    assert "log_progress: true  # given: init()\n" in config
    assert "\ndisable_wandb: true\n" in config
    assert f"pyzmq=={version('pyzmq')}\n" in (folder / "packages.txt").read_text()
    command = json.loads((folder / "command.json").read_text())
    assert command["argv"][0].endswith(".py")
    assert (command["attempt"], command["world_size"], command["module"]) == (1, 1, "pretrain")
    assert json.loads((folder / "versions.json").read_text())["python"].startswith("3.")
    environ = json.loads((folder / "env.json").read_text())
    assert environ["PYTHONUNBUFFERED"] == "1"
    assert "MY_TOKEN" not in environ
    (hardware,) = folder.glob("hardware-*.json")
    assert {"host", "kernel", "gpus"} <= json.loads(hardware.read_text()).keys()
    assert not any(SECRET in path.read_text() for path in folder.rglob("*") if path.is_file())


def test_two_attempts_are_compared(node, started):
    started(1)
    started(2, INTERVAL="7", NCCL_DEBUG="INFO", SLURM_JOB_ID="7")
    done = node.command("snapshot", "diff", str(node.exp))
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("exp@1 -> exp@2\n")
    assert "log_interval  5 -> 7  (given: exp.yaml)" in done.stdout
    assert "NCCL_DEBUG  (none) -> INFO" in done.stdout
    assert "SLURM_JOB_ID" not in done.stdout
    assert "left out, for it differs with every start" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    everything = node.command("snapshot", "diff", f"{node.exp}@2", f"{node.exp}@1", "--all", "--json")
    found = json.loads(everything.stdout)["differences"]
    assert found["configuration"]["log_interval"] == [7, 5]
    assert found["environment"]["SLURM_JOB_ID"] == ["7", None]
    same = node.command("snapshot", "diff", f"{node.exp}@1", f"{node.exp}@1")
    assert (same.returncode, same.stdout) == (0, "exp@1 -> exp@1: the same\n")


def test_one_is_shown_by_name_and_by_number(node, started):
    started(1)
    started(2, INTERVAL="7")
    node.until(node.all_delivered, "the run finished")
    last, first = (node.command("snapshot", "show", *words) for words in ((), ("exp", "--attempt", "1")))
    assert last.stdout.startswith("exp@2  ")
    assert first.stdout.startswith("exp@1  ")
    for word in ("configuration", "command", "versions", "packages", "hardware", "environment"):
        assert f"\n{word}\n" in last.stdout
    assert max(map(len, last.stdout.splitlines()[1:])) <= 100
    shown = json.loads(node.command("snapshot", "show", "exp@1", "--json").stdout)
    assert shown["configuration"]["log_interval"] == 5
    assert shown["given"]["log_progress"] == "init()"


def test_what_is_not_there_is_said_with_what_is(node, started):
    started(1)
    for words, code, told in (
        (("show", "exp@7"), 1, "exp has no snapshot of attempt 7; it has 1"),
        (("show", "other"), 1, "run 'other' is not known in"),
        (("diff", "exp"), 2, "exp@1 is the first attempt with a snapshot"),
        (("diff", "exp", "other"), 2, "run 'other' is not known in"),
        (("diff", "./nowhere"), 2, "is no folder of a run"),
        (("diff",), 2, "Missing argument"),
    ):
        done = node.command("snapshot", *words)
        assert done.returncode == code, done
        assert told in done.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_state_of_the_working_tree_is_in_it(node, started):
    for words in (("init", "-q"), ("add", "exp.yaml"), ("commit", "-qm", "first")):
        named = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
        subprocess.run(["git", *named, *words], cwd=node.base, check=True)
    folder = started(1)
    node.until((folder / "git.json").exists, "the state of git")
    assert len(json.loads((folder / "git.json").read_text())["commit"]) == 40


def test_an_agent_that_comes_later_writes_what_the_one_before_did_not(node):
    body = "log.info('at work')\nwhile not os.path.exists('go'): time.sleep(0.02)"
    agent = node.agent()
    rank = node.rank(body)
    folder = node.exp / "snapshot" / "attempt-1"
    node.until((folder / "packages.txt").exists, "the snapshot")
    node.end(agent, 9)
    for path in folder.glob("*.*"):
        if path.name != "attempt.json":
            path.unlink()
    node.agent()
    again = ("config.yaml", "packages.txt", "hardware-*.json")
    node.until(lambda: all(list(folder.glob(name)) for name in again), "it is there again")
    (node.base / "go").touch()
    node.finish(rank)
