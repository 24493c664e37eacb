"""What every sink must keep, with real processes and a real journal: each point once, whatever dies."""

from __future__ import annotations

import math
import os
import random
import resource
import signal
import subprocess

import pytest
from mlflow_server import MLflowReader
from wandb_double import WandbReader

from rankside.wire import Kind
from rankside_agent.sinks import SINKS

pytest_plugins = ["mlflow_server", "wandb_double"]

KILLS = 20 if os.environ.get("RANKSIDE_CHAOS") == "long" else 3
QUICK = {"tensorboard"}  # those whose process starts in no time
ON_DISK = {"tensorboard", "wandb"}  # those that write below exp_root
# How a loss of 1, NaN, infinity, minus infinity and 2 is shown, and how many are refused then; MLflow would
# make 1.797e308 of an infinity
ODD_NUMBERS = {"mlflow": ("[1.0, nan, 2.0]", 2)}

every_sink = pytest.mark.parametrize("name", sorted(SINKS))
every_sink_on_disk = pytest.mark.parametrize("name", sorted(ON_DISK))


def board(request):
    """Of TensorBoard's event files."""
    make_board = request.getfixturevalue("make_board")
    return lambda run: make_board(run.exp_root / "tensorboard")


def server(request):
    """Of MLflow's server, which the processes are told of."""
    uri = request.getfixturevalue("mlflow_server").uri
    request.getfixturevalue("monkeypatch").setenv("MLFLOW_TRACKING_URI", uri)
    return lambda run: MLflowReader(uri, run.key)


def offline(request):
    """Of the files that W&B writes without a key."""
    request.getfixturevalue("monkeypatch").setenv("WANDB_MODE", "offline")
    return lambda run: WandbReader(run.exp_root)


READERS = {"tensorboard": board, "mlflow": server, "wandb": offline}


@pytest.fixture
def read(request, name):
    """Reads a run back from the tracker."""
    return READERS[name](request)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def balanced(status):
    return status["read"] == status["delivered"] + status["skipped"] + status["failed"]


def test_every_sink_can_be_read_back():
    assert sorted(READERS) == sorted(SINKS)


@every_sink
def test_every_record_is_counted_once_and_delivered(run, read, name):
    other, last, forked = run.open(rank=0), run.open(rank=7), run.open(rank=7, parent="node-7")
    for step in range(1, 201):
        run.metrics(other, step, loss=-1.0)
        run.metrics(last, step, **{"lm loss": 1 / step, "grad norm": 2.0})
        run.metrics(forked, step, loss=-2.0)
    run.add(last, (Kind.THROUGHPUT, (200, {"elapsed_s": 0.25})), (Kind.METRICS, ("no", "metrics", "at all")))
    run.end(last)
    run.deliver(name)
    status = run.status(name)
    assert status["read"] == run.journal.state.records == 602
    assert (status["delivered"], status["skipped"], status["failed"]) == (201, 400, 1)
    assert status["points"] == 401
    assert status["state"] == "done"
    reader = read(run)
    assert [step for step, _ in reader.scalars("lm loss")] == list(range(1, 201))
    assert reader.scalars("iteration-time") == [(200, 0.25)]
    assert not reader.scalars("loss")


@every_sink
def test_nothing_is_lost_or_doubled_when_the_process_is_killed_at_any_instant(run, read, until, name):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    # Small queues put events into the file long before the cursor says so: the harder case.
    channel = run.open(config={"tensorboard_queue_size": 3})
    watching = read(run)
    step = 0

    def train(steps):
        nonlocal step
        for _ in range(steps):
            run.metrics(channel, step, loss=float(step))
            step += 1

    for _ in range(20 if name in QUICK else KILLS):
        train(20)
        process = run.start(name)
        if chance.random() < 0.8:  # else it may die in its first breath
            behind = run.status(name).get("read", 0)
            until(lambda behind=behind: run.status(name).get("read", 0) > behind)
        for _ in range(chance.randrange(40)):
            train(1)
            if chance.random() < 0.1:
                watching.refresh()
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    run.deliver(name)
    expected = [(at, float(at)) for at in range(step)]
    assert read(run).scalars("loss") == expected
    assert watching.refresh().scalars("loss") == expected
    assert run.status(name)["points"] == step
    assert balanced(run.status(name))


@every_sink
def test_a_process_waits_for_a_journal_outlives_a_scancel_and_delivers_what_is_there_at_its_end(
    run, read, until, name
):
    points = run.path / "journal" / "points"
    points.rename(run.path / "elsewhere")
    process = run.start(name)
    until(lambda: run.status(name).get("state") == "running")
    (run.path / "elsewhere").rename(points)
    channel = run.open()
    run.metrics(channel, 0, loss=1.0)
    until(lambda: run.status(name).get("delivered") == 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
    run.metrics(channel, 1, loss=1.0)
    until(lambda: run.status(name).get("delivered") == 2)
    for step in range(2, 5000):
        run.metrics(channel, step, loss=1.0)
    run.finish(process)
    assert len(read(run).scalars("loss")) == 5000


@every_sink
def test_a_torn_end_of_the_journal_is_waited_for_not_read(run, read, name):
    channel = run.open()
    run.metrics(channel, 1, loss=1.0)
    segment = sorted((run.path / "journal" / "points").glob("*.seg"))[-1]
    whole = segment.read_bytes()
    run.metrics(channel, 2, loss=2.0)
    longer = segment.read_bytes()
    for torn in (longer[:-1], whole + b"\xff" * 40):
        segment.write_bytes(torn)
        run.deliver(name)
    segment.write_bytes(longer)
    run.deliver(name)
    assert read(run).scalars("loss") == [(1, 1.0), (2, 2.0)]
    assert balanced(run.status(name))


@every_sink_on_disk
def test_it_goes_on_by_itself_when_a_full_disk_has_room_again(make_run, small_disk, read, until, name):
    run = make_run(exp_root=small_disk / "exp")
    channel = run.open()
    process = run.start(name)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (150 << 10))
    for step in range(8000):
        run.metrics(channel, step, loss=float(step))
    until(lambda: run.status(name).get("state") == "waiting")
    assert "No space left" in run.status(name)["last_error"]
    shown = read(run).scalars("loss")
    assert shown == [(step, float(step)) for step in range(len(shown))]
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    until(lambda: run.status(name)["delivered"] == 8000)
    run.finish(process)
    assert read(run).scalars("loss") == [(step, float(step)) for step in range(8000)]


@every_sink
def test_it_goes_on_when_for_a_while_no_file_at_all_may_grow(run, read, until, name):
    channel = run.open(config={"tensorboard_queue_size": 3})
    process = run.start(name)
    run.metrics(channel, 0, loss=0.0)
    until(lambda: run.status(name).get("delivered") == 1)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    for step in range(1, 500):
        run.metrics(channel, step, loss=float(step))
    path, before = run.path / "sinks" / f"{name}.json", run.status(name)["updated"]
    until(
        lambda: path.stat().st_mtime > before + 0.5
    )  # cannot be written either, and shows life all the same
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: run.status(name).get("delivered") == 500)
    run.finish(process)
    assert read(run).scalars("loss") == [(step, float(step)) for step in range(500)]


@every_sink
def test_numbers_that_are_none_arrive_as_they_are(run, read, name):
    channel = run.open()
    for step, value in enumerate((1.0, math.nan, math.inf, -math.inf, 2.0)):
        run.metrics(channel, step, loss=value, other=1.0)
    run.metrics(channel, 5, loss="text", tensor={"?": "Tensor of shape [4]"}, other=1.0)
    run.deliver(name)
    values = [float(value) for _, value in read(run).scalars("loss")]
    shown, refused = ODD_NUMBERS.get(name, ("[1.0, nan, inf, -inf, 2.0]", 0))
    assert str(values) == shown
    assert len(read(run).scalars("other")) == 6
    assert run.status(name)["refused"] == refused + 2


@every_sink
def test_two_processes_of_one_run_do_not_meet(run, read, until, name):
    channel = run.open()
    first = run.start(name)
    until(lambda: run.status(name).get("state") == "running")
    second = run.start(name)
    for step in range(100):
        run.metrics(channel, step, loss=1.0)
    until(lambda: run.status(name).get("delivered") == 100)
    assert run.status(name)["pid"] == first.pid
    os.kill(first.pid, signal.SIGKILL)
    run.metrics(channel, 100, loss=1.0)
    until(lambda: run.status(name).get("delivered") == 101)
    run.finish(second)
    assert len(read(run).scalars("loss")) == 101
