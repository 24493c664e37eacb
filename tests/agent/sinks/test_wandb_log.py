"""The transaction log: W&B's own reader finds what was written, wherever blocks, kills and disks end."""

from __future__ import annotations

import os
import random
import resource

import pytest
from wandb_double import inspect

from rankside_agent.sinks import wandb_records
from rankside_agent.sinks.wandb_folder import LocalRun
from rankside_agent.sinks.wandb_log import HEADER, TransactionLog, frame, records
from rankside_agent.sinks.wandb_records import Identity, Labels
from rankside_agent.sinks.wandb_rows import Row

pytest_plugins = ["wandb_double"]

IDENTITY = Identity("abc", "project", "name")


def row(number, text=""):
    return Row(number, {"train_step": number, "loss": number / 2, "_timestamp": 1.7e9 + number, "text": text})


@pytest.fixture
def local(tmp_path):
    """Opens the run's folder, with the state of the last time or without."""

    def local(state=None):
        return LocalRun(tmp_path / "wandb", IDENTITY, Labels(), {"lr": 0.1}, 1.7e9, state or {})

    return local


def numbers(run):
    return [each["history"]["item"]["_step"] for each in inspect(run.path) if each["type"] == "history"]


def test_records_of_every_length_at_every_place_of_a_block(tmp_path):
    chance = random.Random(1)
    path = tmp_path / "log"
    lengths = [
        0,
        1,
        32_754,
        32_755,
        32_761,
        32_762,
        65_000,
        200_000,
        *(chance.randrange(9000) for _ in range(200)),
    ]
    written = [chance.randbytes(length) for length in lengths]
    log = TransactionLog(path, 0)
    for data in written:
        log.add(data)
    log.flush()
    log.close()
    found = list(records(path))
    assert [data for _, data in found] == written
    middle, _ = found[100]
    assert [data for _, data in records(path, middle)] == written[101:]


def test_wandbs_reader_finds_every_row(local):
    run = local()
    chance = random.Random(2)
    for number in range(300):
        run.write(row(number, "x" * chance.randrange(2000)))
    run.flush()
    assert run.path.stat().st_size > 4 * (32 << 10)
    assert numbers(run) == list(range(300))


def test_a_file_that_is_cut_anywhere_is_gone_on_with(local):
    run = local()
    for number in range(20):
        run.write(row(number))
    run.flush()
    run.close()
    path, whole = run.path, run.path.read_bytes()
    for size in random.Random(3).sample(range(len(whole)), 20):
        path.write_bytes(whole[:size] + b"\0" * random.Random(size).randrange(3))
        again = local()
        assert again.last == len(numbers(again)) - 1
        for number in range(again.last + 1, 22):
            again.write(row(number))
        again.flush()
        again.close()
        assert numbers(again) == list(range(22))


def test_rows_behind_the_checkpoint_are_recognised(local):
    run = local()
    for number in range(10):
        run.write(row(number))
    run.flush()
    state = run.state()
    for number in range(10, 20):
        run.write(row(number))
    run.flush()
    run.close()
    again = local(state)
    assert (again.first, again.last) == (0, 19)
    for number in range(10, 25):
        again.write(row(number))
    again.flush()
    assert numbers(again) == list(range(25))


def test_rows_that_a_server_has_are_dropped(local):
    run = local()
    for number in range(10):
        run.write(row(number))
    run.flush()
    run.forget(6)
    assert numbers(run) == [7, 8, 9]
    run.write(row(10))
    run.flush()
    assert numbers(run) == [7, 8, 9, 10]
    run.forget(10)
    assert run.folder is None
    assert not list(run.state()["folder"])


def test_a_write_that_fails_leaves_whole_records(tmp_path):
    path = tmp_path / "log"
    log = TransactionLog(path, 0)
    log.add(b"first")
    log.flush()
    log.add(b"x" * 100_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.close()
    assert path.read_bytes() == HEADER + frame(b"first", len(HEADER))


def test_a_file_that_was_deleted_is_noticed(local):
    run = local()
    run.write(row(0))
    run.flush()
    run.path.unlink()
    run.write(row(1))
    with pytest.raises(FileNotFoundError):
        run.flush()


def test_what_is_written_is_what_wandb_itself_writes(local, no_login, tmp_path):
    import wandb

    quiet = wandb.Settings(
        console="off", silent=True, disable_git=True, x_disable_meta=True, x_disable_stats=True
    )
    names = {"project": IDENTITY.project, "id": IDENTITY.id, "name": IDENTITY.name}
    theirs = wandb.init(**names, mode="offline", dir=str(tmp_path), reinit="create_new", settings=quiet)
    theirs.define_metric("train_step")
    theirs.define_metric("*", step_metric="train_step")
    theirs.config.update({"lr": 0.1, "nested": {"a": [1, 2]}})
    values = {"train_step": 3, "loss": float("nan"), "inf": float("inf"), "text": "é", "_timestamp": 1.7e9}
    theirs.log(values, step=0, commit=True)
    path = theirs.settings.sync_file
    theirs.finish(exit_code=1)
    ours = local()
    ours.configure({"lr": 0.1, "nested": {"a": [1, 2]}})
    ours.write(Row(0, values))
    ours.end(1, {})
    assert shapes(ours.path) == shapes(path)
    os.unlink(path)


def shapes(path):
    """Of each kind of record, the content that does not depend on clocks and versions."""
    from pathlib import Path

    found = {}
    for record in inspect(Path(path)):
        kind = record["type"]
        if kind == "history":
            record[kind]["item"].pop("_runtime")
        if kind in ("history", "metric", "exit"):
            found.setdefault(kind, []).append(record[kind])
        elif kind == "config":
            found.setdefault(kind, {}).update(record[kind]["update"])
        elif kind == "run":
            found[kind] = {
                name: record[kind][name] for name in ("run_id", "project", "display_name", "config")
            }
    return found


def test_numbers_and_texts_that_json_has_no_word_for_are_plain_in_parameters():
    value = {
        "a": float("nan"),
        2: (1, float("-inf")),
        "big": 2**70,
        "lone": "\ud800",
        "ok": [True, None, 1.5],
    }
    assert wandb_records.plain(value) == {
        "a": "nan",
        "2": [1, "-inf"],
        "big": str(2**70),
        "lone": "\\ud800",
        "ok": [True, None, 1.5],
    }
