"""The agent's half of a sink: start, watch, start again, stop; never wait."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest

from rankside_agent.sinks.supervisor import FIRST_DELAY, LOG_BYTES, LONGEST_DELAY, RAN_WELL, Supervisor

IDLE = "import sys; sys.stdin.read()"
FAILS = "import sys; sys.exit(3)"


@pytest.fixture
def supervise(run):
    """Makes a supervisor of a Python script; all are killed in the end."""
    made = []

    def make(script, **settings):
        supervisor = Supervisor(
            run.path, "plain", command=[sys.executable, "-c", script], jitter=lambda: 0.5, **settings
        )
        made.append(supervisor)
        return supervisor

    yield make
    for supervisor in made:
        supervisor.kill()
        deadline = time.monotonic() + 10
        while not supervisor.over() and time.monotonic() < deadline:
            supervisor.tick(time.monotonic())
            time.sleep(0.01)


@pytest.fixture
def ticking(until):
    """Ticks at a given time until something is so."""

    def tick(supervisor, condition, now=None):
        def ticked():
            supervisor.tick(time.monotonic() if now is None else now)
            return condition()

        until(ticked)

    return tick


def test_a_real_sink_is_started_fed_and_drained(run, board, until):
    supervisor = Supervisor(run.path, "tensorboard")
    channel = run.open()
    supervisor.start()
    run.metrics(channel, 1, loss=1.0)
    until(lambda: run.status().get("delivered") == 1)
    run.metrics(channel, 2, loss=2.0)
    supervisor.stop(drain=True)
    until(lambda: supervisor.tick(time.monotonic()) or supervisor.done())
    assert supervisor.over()
    assert board().scalars("loss") == [(1, 1.0), (2, 2.0)]


def test_the_training_folder_is_not_imported_from(run, board, until, tmp_path, monkeypatch):
    training = tmp_path / "training"
    for package in ("tensorboard", "rankside_agent", "google", "logging"):
        (training / package).mkdir(parents=True)
        (training / package / "__init__.py").write_text(
            "raise SystemExit('the training folder was imported')"
        )
    monkeypatch.chdir(training)
    environ = {**os.environ, "PYTHONPATH": f":.:{os.environ.get('PYTHONPATH', '')}"}
    supervisor = Supervisor(run.path, "tensorboard", environ=environ)
    run.metrics(run.open(), 1, loss=1.0)
    supervisor.start()
    supervisor.stop()
    until(lambda: supervisor.tick(time.monotonic()) or supervisor.done())
    assert supervisor.starts == 1
    assert board().scalars("loss") == [(1, 1.0)]


def test_a_process_that_dies_is_started_again_later_and_later(supervise, ticking):
    supervisor = supervise(FAILS)
    supervisor.start()
    now, waits = 1e6, []
    for starts in range(1, 10):
        ticking(supervisor, lambda: supervisor.pid is None, now)
        supervisor.tick(now + 0.5 * FIRST_DELAY)
        assert supervisor.pid is None
        began = now
        while supervisor.starts == starts:
            now += 0.25
            supervisor.tick(now)
        waits.append(now - began)
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_DELAY, LONGEST_DELAY, LONGEST_DELAY][: len(waits)]
    assert supervisor.last_exit == 3


def test_one_that_ran_well_is_started_again_at_once(supervise, ticking):
    supervisor = supervise(IDLE)
    supervisor.start()
    now = time.monotonic()
    for _ in range(3):
        os.kill(supervisor.pid, signal.SIGKILL)
        now += RAN_WELL + 1
        ticking(supervisor, lambda: supervisor.pid is None, now)
        now += FIRST_DELAY
        supervisor.tick(now)
        assert supervisor.pid is not None


def test_stop_closes_stdin_and_waits_for_nobody(supervise, ticking):
    supervisor = supervise("import sys, time; sys.stdin.read(); time.sleep(0.3)")
    supervisor.start()
    began = time.monotonic()
    supervisor.stop()
    supervisor.stop()
    assert time.monotonic() - began < 0.2
    assert not supervisor.done()
    ticking(supervisor, supervisor.done)
    assert supervisor.over()
    assert supervisor.starts == 1


def test_one_that_fails_while_draining_is_started_again_until_it_is_through(run, supervise, ticking):
    flag = run.path / "flag"
    supervisor = supervise(f"import os, sys; sys.stdin.read(); sys.exit(not os.path.exists({str(flag)!r}))")
    supervisor.start()
    supervisor.stop(drain=True)
    ticking(supervisor, lambda: supervisor.last_exit == 1)
    assert not supervisor.done()
    assert not supervisor.over()
    flag.touch()
    ticking(supervisor, supervisor.done, now=time.monotonic() + 100)
    assert supervisor.over()


def test_without_draining_its_exit_is_the_end(supervise, ticking):
    supervisor = supervise("import sys; sys.stdin.read(); sys.exit(1)")
    supervisor.start()
    supervisor.stop(drain=False)
    ticking(supervisor, supervisor.over)
    supervisor.tick(time.monotonic() + 1000)
    assert not supervisor.done()
    assert supervisor.pid is None


def test_kill_ends_it_with_its_children_for_good(supervise, ticking, until):
    script = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '99']);"
        "open('sinks/child', 'w').write(str(child.pid)); open('sinks/ready', 'w').close(); time.sleep(99)"
    )
    supervisor = supervise(script)
    supervisor.start()
    until((supervisor.run_dir / "sinks" / "ready").exists)
    child = int((supervisor.run_dir / "sinks" / "child").read_text())
    supervisor.kill()
    ticking(supervisor, supervisor.over)
    supervisor.tick(time.monotonic() + 1000)
    assert supervisor.pid is None
    until(lambda: not alive(child))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_one_that_hangs_is_killed_and_started_again(supervise, ticking):
    supervisor = supervise(IDLE, silence=0.3)
    supervisor.start()
    first = supervisor.pid
    ticking(supervisor, lambda: supervisor.pid != first)
    assert supervisor.last_exit == -signal.SIGKILL
    assert "silent" in supervisor.last_error
    ticking(supervisor, lambda: supervisor.starts == 2)


def test_one_that_shows_life_is_left_alone(supervise):
    supervisor = supervise(
        "import time, pathlib\n"
        "while True: pathlib.Path('sinks/plain.json').write_text(str(time.time())); time.sleep(0.02)",
        silence=0.5,
    )
    supervisor.start()
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        supervisor.tick(time.monotonic())
        time.sleep(0.02)
    assert supervisor.starts == 1
    assert supervisor.pid is not None


def test_the_process_knows_of_no_rank_and_has_its_own_session(run, supervise, ticking):
    ranks = {"RANK": "3", "SLURM_PROCID": "3", "OMPI_COMM_WORLD_RANK": "3", "TORCHELASTIC_RUN_ID": "x"}
    environ = {**os.environ, **ranks, "WANDB_SERVICE": "2-1-tcp", "WANDB_API_KEY": "kept"}
    supervisor = supervise(
        "import os, json; json.dump([dict(os.environ), os.getsid(0), os.getcwd()], open('sinks/env', 'w'))",
        environ=environ,
    )
    supervisor.start()
    pid = supervisor.pid
    ticking(supervisor, lambda: supervisor.last_exit == 0)
    seen, session, folder = json.loads((run.path / "sinks" / "env").read_text())
    assert not {*ranks, "WANDB_SERVICE"} & set(seen)
    assert seen["WANDB_API_KEY"] == "kept"
    assert session == pid
    assert folder == str(run.path)


def test_its_words_are_in_a_log_that_stays_small(run, supervise, ticking):
    log = run.path / "sinks" / "plain.log"
    log.write_bytes(b"old\n" * LOG_BYTES)
    supervisor = supervise("import sys; print('out'); print('err', file=sys.stderr)")
    supervisor.start()
    ticking(supervisor, lambda: supervisor.last_exit == 0)
    assert sorted(log.read_text().split()) == ["err", "out"]
    assert 0 < (run.path / "sinks" / "plain.log.1").stat().st_size <= LOG_BYTES


def test_what_cannot_be_started_is_tried_again(run, ticking):
    supervisor = Supervisor(run.path, "plain", command=["/no/such/program"], jitter=lambda: 0.5)
    supervisor.start()
    assert supervisor.pid is None
    assert "FileNotFoundError" in supervisor.last_error
    supervisor.tick(time.monotonic() + 10)
    assert not supervisor.over()
    supervisor.stop(drain=False)
    assert supervisor.over()
