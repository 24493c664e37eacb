"""The whole demo with real processes, in a short form; its files are read here without its own check."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

pytest.importorskip("torch", reason="the demo's extra is not installed")
pytest.importorskip("tensorboard", reason="the demo's extra is not installed")

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from rankside_agent.commands.demo import _short
from rankside_agent.demo.trackers import TRACKERS

STEPS = 12
RANKS = 2
DEADLINE = 240  # seconds; a run takes 20 on two idle cores, and ten times that beside other tests
pytestmark = pytest.mark.timeout(300)
STEP = re.compile(r"\[rank-(\d)/[12]\]\[DEBUG\] +\[-*train\.py:\d+\] : step (\d+): \d+ ms$")


class Run(NamedTuple):
    """One run of the command."""

    code: int
    output: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first run of this module's demo is, for all of pytest's workers."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "demo"
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="module")
def first(folder: Path) -> Run:
    """The demo, run once: by the first worker that wants it."""
    told = folder.with_name("demo.json")
    with folder.with_name("demo.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            run = demo(f"--ranks={RANKS}", f"--steps={STEPS}", f"--dir={folder}")
            told.write_text(json.dumps(run))
    return Run(*json.loads(told.read_text()))


START = "from rankside_agent.cli import main; main()"


def demo(*options: str, before: str = "", **environment: str) -> Run:
    command = [sys.executable, "-c", f"{before}\n{START}", "demo", *options]
    env = {**os.environ, **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE)
    return Run(done.returncode, done.stdout + done.stderr)


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def steps_in(path: Path, rank: int) -> list[int]:
    found = (STEP.search(line) for line in lines(path))
    return [int(match[2]) for match in found if match and int(match[1]) == rank]


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    """Straight from the events, in the order of writing."""
    return [
        (event.step, value.tensor.float_val[0])
        for path in sorted(folder.glob("events.*"))
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
        if value.tag == tag
    ]


def test_the_demo_finds_its_own_result_good(first: Run) -> None:
    assert first.code == 0, first.output
    assert "FAILED" not in first.output
    for what in (
        "rank 0: debug",
        "rank 1: debug",
        "all ranks: node",
        "TensorBoard: lm loss  ",
        "TensorBoard: lm loss falls",
    ):
        (line,) = (line for line in first.output.split("\n") if line.startswith(what))
        assert line.rstrip().endswith("ok")


def test_it_shows_the_log_while_it_trains(first: Run) -> None:
    shown = first.output.partition("what ")[0]
    assert re.search(r"\d parameters, \d+ documents", shown)
    assert "cannot be decoded" in shown
    assert "slow batch at step 5" in shown


@pytest.mark.parametrize("rank", range(RANKS))
def test_each_step_of_each_rank_is_in_its_own_file_and_in_the_node_log_once(
    first: Run, folder: Path, rank: int
) -> None:
    wanted = list(range(1, STEPS + 1))
    assert steps_in(only(folder, f"default/*/demo/logs/*/rank-{rank}/debug.log"), rank) == wanted
    assert steps_in(only(folder, "default/*/demo/logs/*/node-*.log"), rank) == wanted


def test_the_handled_exception_of_rank_1_is_in_its_error_file_with_its_traceback(
    first: Run, folder: Path
) -> None:
    text = only(folder, "default/*/demo/logs/*/rank-1/error.log").read_text(encoding="utf-8")
    assert text.count("cannot be decoded") == 1
    assert text.count("UnicodeDecodeError: 'utf-8' codec") == 1
    assert "return chosen.decode()" in text


def test_every_point_of_the_last_rank_is_in_the_event_files_once(first: Run, folder: Path) -> None:
    events = only(folder, "default/*/demo/tensorboard")
    losses = scalars(events, "lm loss")
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    assert losses[0][1] > losses[-1][1] > 0
    for tag in ("grad norm", "learning rate", "token_throughput(tokens/sec/gpu)"):
        assert len(scalars(events, tag)) == STEPS
    assert [step for step, _ in scalars(events, "held-out loss")] == [STEPS]


def test_it_names_commands_that_work_as_they_are_printed(first: Run) -> None:
    (tail,) = (line for line in first.output.split("\n") if line.startswith("rankside tail --level"))
    command = [sys.executable, "-m", "rankside_agent", *shlex.split(tail)[1:]]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "slow batch" in shown.stdout, shown.stderr
    (node,) = (line for line in first.output.split("\n") if line.startswith("tail -F"))
    assert Path(shlex.split(node)[2]).stat().st_size > 0


def test_a_second_run_in_the_same_folder_is_a_second_attempt_and_all_trackers_are_checked(
    first: Run, folder: Path, tmp_path: Path
) -> None:
    """Of one rank: whose run it was before proves nothing."""
    users_own = {
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
        "WANDB_MODE": "online",
        "WANDB_API_KEY": "x" * 40,
    }
    folder = Path(shutil.copytree(folder, tmp_path / "demo"))  # other tests read the first one
    options = ("--ranks=1", f"--steps={STEPS}", f"--dir={folder}")
    second = demo(*options, f"--trackers={','.join(TRACKERS)}", **users_own)
    assert second.code == 0, second.output
    for tracker in TRACKERS.values():
        checked = [line for line in second.output.split("\n") if line.startswith(f"{tracker.title}: ")]
        assert len(checked) == 5
        assert all(line.rstrip().endswith("ok") for line in checked)
        assert re.search(rf"^{tracker.title} +{re.escape(_short(folder))}", second.output, re.M)
        assert re.search(rf"^{tracker.command.split('{')[0]}", second.output, re.M)
    debug = only(folder, "default/*/demo/logs/*/rank-0/debug.log")
    assert steps_in(debug, 0) == 2 * list(range(1, STEPS + 1))
    assert sum("attempt 2" in line for line in lines(debug)) == 1
    assert only(folder, "default/*/demo/snapshot/attempt-2").is_dir()


def test_without_keeping_nothing_is_left(tmp_path: Path) -> None:
    gone = demo("--ranks=1", "--steps=10", "--no-keep", TMPDIR=str(tmp_path))
    assert gone.code == 0, gone.output
    assert os.listdir(tmp_path) == []


def test_a_training_that_fails_is_a_failed_demo_and_shows_why(tmp_path: Path) -> None:
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pydoc_data" / "__init__.py").touch()
    (tmp_path / "pydoc_data" / "topics.py").write_text("raise FileExistsError('no text to train on')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    failed = demo("--ranks=1", "--steps=10", f"--dir={tmp_path}/demo", PYTHONPATH=path)
    assert failed.code == 1
    assert "training ended with status 1" in failed.output
    assert "FileExistsError" in failed.output


def trains(folder: Path, _family: list[psutil.Process]) -> bool:
    path = folder / "training.log"
    return path.exists() and "step 3:" in path.read_text(errors="replace")


def imports_torch(_folder: Path, family: list[psutil.Process]) -> bool:
    """The launcher is about to."""
    return any("torch.distributed.run" in each.cmdline() and maps_torch(each) for each in family)


def maps_torch(process: psutil.Process) -> bool:
    return any("libtorch" in each.path for each in process.memory_maps())


@pytest.mark.parametrize(
    ("number", "met", "processes"),
    [
        pytest.param(signal.SIGINT, trains, RANKS + 3, id="SIGINT while it trains"),  # agent, tail, torchrun
        pytest.param(signal.SIGTERM, imports_torch, 3, id="SIGTERM while it starts"),
    ],
)
def test_a_signal_ends_every_process(
    tmp_path: Path,
    number: signal.Signals,
    met: Callable[[Path, list[psutil.Process]], bool],
    processes: int,
) -> None:
    command = [sys.executable, "-m", "rankside_agent", "demo", "--ranks=2", "--steps=100000"]
    process = subprocess.Popen(
        [*command, f"--dir={tmp_path}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        family = family_once(process, lambda found: met(tmp_path, found))
        assert len(family) >= processes
        process.send_signal(number)
        time.sleep(0.1)
        process.send_signal(number)  # the impatient second one must not leave half of them running
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert b"nothing is left running" in output
    _, left = psutil.wait_procs(family, timeout=5)
    assert [member for member in left if member.status() != psutil.STATUS_ZOMBIE] == []


def family_once(
    process: subprocess.Popen[bytes], met: Callable[[list[psutil.Process]], bool]
) -> list[psutil.Process]:
    """All below the process, as soon as they are met in a certain state."""
    deadline = time.monotonic() + DEADLINE
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
            if met(family):
                return family
        time.sleep(0.1)


def test_without_torch_it_names_what_to_install() -> None:
    refused = demo(before="import sys; sys.modules['torch'] = None")
    assert refused.code == 2
    assert "torch not installed: pip install 'rankside[demo]'" in refused.output
    assert "torch==2.13.0" in refused.output


def test_an_unknown_tracker_and_one_whose_package_is_missing_are_refused() -> None:
    unknown = demo("--trackers=tensorboard,wandbb")
    assert unknown.code == 2
    assert f"--trackers: unknown 'wandbb'; known: {', '.join(TRACKERS)}" in unknown.output
    missing = demo("--trackers=tensorboard", before="import sys; sys.modules['tensorboard'] = None")
    assert missing.code == 2
    assert "tensorboard not installed: pip install 'rankside[demo]'" in missing.output


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = demo(f"--dir={tmp_path}/file/demo")
    assert refused.code == 2
    assert "cannot be used" in refused.output
    assert "Traceback" not in refused.output


def test_two_demos_in_one_folder_do_not_mix(tmp_path: Path) -> None:
    with open(tmp_path / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = demo(f"--dir={tmp_path}")
    assert refused.code == 2
    assert "another demo runs in" in refused.output
    assert os.listdir(tmp_path) == [".lock"]
