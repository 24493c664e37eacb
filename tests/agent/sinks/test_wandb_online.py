"""A W&B server that is there, away, slow or strange: in the end it has all rows, each once."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import psutil
import pytest
from wandb_double import Tracked, sync

from rankside.wire import Kind
from rankside_agent.sinks import wandb_patience, wandb_run, wandb_server, wandb_track
from rankside_agent.sinks.wandb import Wandb

pytest_plugins = ["wandb_double"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Deadlines of seconds."""
    monkeypatch.setattr(wandb_run, "INIT_SECONDS", 10.0)
    monkeypatch.setattr(wandb_run, "CONFIRM_SECONDS", 3.0)
    monkeypatch.setattr(wandb_run, "FINISH_SECONDS", 3.0)
    monkeypatch.setattr(wandb_run, "END_SECONDS", 2.0)
    monkeypatch.setattr(wandb_patience, "FIRST_WAIT", 0.5)
    monkeypatch.setattr(Wandb, "flush_seconds", 0.5)


def test_rows_are_at_the_server_when_the_position_is_stored(online):
    channel = online.run.open(exp_name="first try", team="our", user="me")
    online.run.add(channel, (Kind.PARAMS, ({"lr": 0.1},)))
    online.log(channel, range(50))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 51)
    assert online.steps() == list(range(50))
    online.log(channel, range(50, 60))
    online.ended()
    online.deliver(forwarder)
    assert online.double.only().values()["lr"] == 0.1
    assert online.steps() == list(range(60))
    assert online.double.only().facts["displayName"] == "first try"
    assert not forwarder.cursor.remark
    assert not list((online.run.exp_root / "wandb").glob("*run-*"))


def test_a_new_attempt_continues_the_run_and_its_end_is_told(online):
    for attempt, steps in ((1, range(1, 213)), (2, range(201, 261))):
        channel = online.run.open(attempt=attempt)
        online.log(channel, steps)
        online.run.add(channel, (Kind.PARAMS, ({"world": attempt},)))
        online.ended("killed" if attempt == 1 else "finished", attempt)
        online.deliver()
        run = online.double.only()
        assert run.exit_code == (255 if attempt == 1 else 0)
    assert online.steps() == [*range(1, 213), *range(201, 261)]
    assert [row["_step"] for row in online.rows] == list(range(272))
    assert (run.values()["world"], run.values()["attempt_2.world"]) == (2, 2)
    assert run.summary()["rankside.status"] == "finished"
    assert run.values()["rankside"]["status"] == "finished"


def test_another_node_goes_on_behind_the_first_ones_rows(online, make_run, double):
    online.log(online.run.open(), range(5))
    online.deliver()
    elsewhere = Tracked(make_run(), double)
    shutil.copy(online.run.path / "run.json", elsewhere.run.path)  # the same experiment
    elsewhere.log(elsewhere.run.open(attempt=2), range(3, 8))
    elsewhere.deliver()
    assert elsewhere.steps() == [*range(5), *range(3, 8)]


@pytest.mark.parametrize("lives_on", [False, True], ids=["a new process", "the same process"])
def test_a_node_to_which_the_last_rank_returns_goes_on_behind_the_other_nodes_rows(
    online, make_run, double, lives_on
):
    online.log(online.run.open(), range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 5)
    if not lives_on:
        forwarder.close("done")
    between = Tracked(make_run(exp_root=online.run.exp_root), double)
    shutil.copy(online.run.path / "run.json", between.run.path)
    between.log(between.run.open(attempt=2), range(3, 8))
    between.run.drain("wandb")
    online.log(online.run.open(attempt=3), range(6, 9))
    forwarder = online.deliver(forwarder if lives_on else None)
    assert online.steps() == [*range(5), *range(3, 8), *range(6, 9)]
    assert [row["attempt"] for row in online.rows] == [1] * 5 + [2] * 5 + [3] * 3
    online.run.path.joinpath("sinks", "wandb.json").unlink()  # all comes again
    online.deliver()
    assert len(online.rows) == 13


def test_a_node_that_no_longer_speaks_leaves_the_end_to_the_one_that_does(online, monkeypatch):
    online.log(online.run.open(), range(5))
    online.ended("failed")
    online.deliver()
    assert online.double.only().exit_code == 1
    online.ended_elsewhere(attempt=2)
    monkeypatch.delenv("WANDB_API_KEY")
    forwarder = online.deliver()
    assert online.double.only().exit_code == 1
    assert not forwarder.cursor.remark
    assert not list((online.run.exp_root / "wandb").glob("*run-*"))


def test_an_artifact_is_uploaded_before_the_end_is_told(online):
    channel = online.run.open()
    trace = online.run.exp_root / "logs" / "trace [1].json"
    trace.parent.mkdir(parents=True)
    trace.write_text("{}")
    online.run.add(channel, (Kind.ARTIFACT, (str(trace),)))
    online.ended()
    online.deliver()
    assert online.double.only().uploaded["artifacts/logs/trace [1].json"] == b"{}"


def test_a_server_that_is_absent_at_the_start_gets_everything_later(online):
    online.double.stop()
    channel = online.run.open()
    online.log(channel, range(20))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 20)
    assert forwarder.provisional
    assert "wandb sync" in forwarder.cursor.remark
    assert len(online.reader.rows()) == 20
    online.double.start()
    step = online.log_until(forwarder, channel, 20, lambda: not forwarder.provisional)
    online.ended()
    online.deliver(forwarder)
    assert online.steps() == list(range(step))
    assert not online.reader.files()


def test_what_the_user_synced_meanwhile_is_not_sent_again(online):
    online.double.stop()
    channel = online.run.open()
    online.log(channel, range(20))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.provisional)
    forwarder.close("waiting")
    online.double.start()
    sync(online.double, online.reader.files()[0].parent)
    assert online.steps() == list(range(20))
    online.log(channel, range(20, 25))
    online.deliver()
    assert online.steps() == list(range(25))


def test_rows_of_a_time_without_a_key_are_brought_there_when_there_is_one(online, monkeypatch):
    key = os.environ["WANDB_API_KEY"]
    monkeypatch.delenv("WANDB_API_KEY")
    online.log(online.run.open(attempt=1), range(20))
    online.run.add(1, (Kind.PARAMS, ({"lr": 0.1},)))
    online.ended("failed")
    assert not online.deliver().provisional
    monkeypatch.setenv("WANDB_API_KEY", key)
    online.log(online.run.open(attempt=2), range(15, 25))
    online.ended("finished", attempt=2)
    online.deliver()
    assert online.steps() == [*range(20), *range(15, 25)]
    assert online.double.only().values()["lr"] == 0.1
    assert not online.reader.files()


@pytest.mark.chaos
@pytest.mark.parametrize("place", ["stream", "graphql"])
def test_one_trouble_after_another_costs_time_and_no_rows(online, place):
    channel = online.run.open()
    online.log(channel, range(10))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 10)
    troubles = [429, 500, "drop", 503, "hang"]
    online.double.fault = lambda what: troubles.pop(0) if what.startswith(place) and troubles else None
    for step in range(10, 30):
        online.log(channel, [step])
        forwarder.round()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 30)
    forwarder.close("waiting")
    troubles.clear()
    online.deliver()
    assert online.steps() == list(range(30))


@pytest.mark.chaos
def test_a_server_lost_in_mid_run_is_waited_for_on_the_disk(online):
    channel = online.run.open()
    online.log(channel, range(10))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 10)
    online.double.stop()
    online.log(channel, range(10, 30))
    online.round_until(forwarder, lambda: forwarder.provisional)
    assert [record["item"]["_step"] for record in online.reader.records("history")] == list(range(10, 30))
    online.double.start()
    step = online.log_until(forwarder, channel, 30, lambda: not forwarder.provisional)
    online.deliver(forwarder)
    assert online.steps() == list(range(step))


def test_a_run_that_ends_while_the_server_is_away_is_not_done(online, monkeypatch):
    online.double.stop()
    online.log(online.run.open(), range(5))
    online.ended()
    forwarder = online.forwarder()
    forwarder.hurry()
    online.round_until(forwarder, lambda: forwarder.drained)
    assert forwarder.provisional
    assert not forwarder.cursor.finished
    forwarder.close("offline")
    online.double.start()
    monkeypatch.setattr("rankside_agent.sinks.wandb._PATIENCE", wandb_track.Patience())  # another process
    online.deliver()
    assert online.steps() == list(range(5))
    assert online.double.only().exit_code == 0


def test_a_new_process_says_what_waits_while_the_server_is_away(online):
    online.double.stop()
    online.log(online.run.open(), range(5))
    online.ended()
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.provisional)
    forwarder.close("offline")
    for _ in range(2):
        forwarder = online.forwarder()
        forwarder.hurry()
        while not forwarder.drained:
            assert forwarder.round() < 60, forwarder.cursor.last_error
        forwarder.close("offline")
        remark = forwarder.cursor.remark
        assert "does not answer" in remark
        assert "wait in the journal" in remark
        assert remark.endswith(f"\n    wandb sync {online.reader.files()[0].parent}")


def test_when_the_server_is_looked_for_next_is_told(online, monkeypatch):
    monkeypatch.setattr(wandb_patience, "FIRST_WAIT", 60.0)
    online.double.stop()
    online.log(online.run.open(), range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.provisional)
    forwarder.close("offline")
    assert re.match(r"the server is away, next try at \d\d:\d\d:\d\d; ", forwarder.cursor.remark)


@pytest.mark.parametrize("way", ["away", "refused by the client"])
def test_a_password_in_the_servers_address_is_written_nowhere(online, monkeypatch, caplog, way):
    monkeypatch.setenv("WANDB_BASE_URL", "http://bob:s3cret@127.0.0.1:1")
    if way != "away":
        failed = RuntimeError(f"cannot speak to {os.environ['WANDB_BASE_URL']}/graphql")
        monkeypatch.setattr(wandb_server, "held", lambda *_: wandb_server.Held())
        whole = wandb_run.bounded

        def bounded(what, seconds, call):
            if what == "init":
                raise failed
            return whole(what, seconds, call)

        monkeypatch.setattr(wandb_run, "bounded", bounded)
    online.log(online.run.open(), range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.provisional)
    forwarder.close("offline")
    assert "127.0.0.1:1" in forwarder.cursor.remark
    assert "s3cret" not in caplog.text + forwarder.cursor.path.read_text()


@pytest.mark.parametrize("there", [True, False])
def test_no_folder_of_the_training_is_needed_to_bring_its_rows_to_the_server(make_run, double, online, there):
    copied = Tracked(make_run(exp_root=Path("/proc/no-such/exp")), double)
    channel = copied.run.open()
    copied.run.add(channel, (Kind.PARAMS, ({"lr": 0.1},)))
    copied.log(channel, range(5))
    copied.ended()
    if not there:
        double.stop()
        forwarder = copied.forwarder()
        copied.round_until(forwarder, lambda: forwarder.provisional)
        assert f"wandb sync {copied.run.path}/sinks/wandb-files/offline-run-" in forwarder.cursor.remark
        forwarder.close("offline")
        double.start()
    copied.deliver()
    assert copied.steps() == list(range(5))


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["hang", "refuse", "no such project"])
def test_an_init_that_does_not_come_about_is_bounded_and_then_offline(online, monkeypatch, way):
    monkeypatch.setattr(wandb_run, "INIT_SECONDS", 3.0)
    monkeypatch.setattr(wandb_server, "ANSWER_SECONDS", 3.0)
    if way == "refuse":
        online.double.fault = lambda what: 500 if "UpsertBucket" in what else None
    else:
        online.double.fault = lambda what: ("hang" if way == "hang" else 404) if "graphql" in what else None
    online.log(online.run.open(), range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 5, patience=40.0)
    assert forwarder.provisional
    assert len(online.reader.rows()) == 5
    forwarder.close("offline")


@pytest.mark.chaos
def test_a_run_that_was_deleted_goes_on_under_another_id(online, monkeypatch, caplog):
    channel = online.run.open()
    online.run.add(channel, (Kind.PARAMS, ({"lr": 0.1},)))
    online.log(channel, range(5))
    online.deliver()
    monkeypatch.setattr(wandb_run, "INIT_SECONDS", 3.0)
    (first,) = online.double.runs
    del online.double.runs[first]
    online.double.deleted.add(first)
    online.log(channel, range(5, 10))
    online.deliver()
    assert list(online.double.runs) == [f"{first}-r2"]
    assert f"the run is {first}-r2 now" in caplog.text
    assert online.steps() == list(range(5, 10))
    online.log(channel, range(10, 12))
    online.ended()
    online.deliver()
    assert online.steps() == list(range(5, 12))
    assert online.double.only().values()["lr"] == 0.1


@pytest.mark.chaos
def test_ids_that_are_all_deleted_are_tried_a_few_times(online, monkeypatch):
    monkeypatch.setattr(wandb_track, "MOST_IDS", 2)
    monkeypatch.setattr(wandb_run, "INIT_SECONDS", 3.0)
    online.double.deleted.update(f"{online.forwarder().run.key}{end}" for end in ("", "-r2", "-r3"))
    online.log(online.run.open(), range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 5)
    assert forwarder.provisional
    assert "ids" in forwarder.cursor.remark
    forwarder.close("offline")


def test_a_key_that_is_not_accepted_is_read_again(online):
    online.double.keys = {"f" * 40}
    channel = online.run.open()
    online.log(channel, range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 5)
    assert "does not accept the API key" in forwarder.cursor.remark
    (online.run.path / "sinks" / "environ.json").write_text(json.dumps({"WANDB_API_KEY": "f" * 40}))
    step = online.log_until(forwarder, channel, 5, lambda: not forwarder.provisional)
    online.deliver(forwarder)
    assert online.steps() == list(range(step))


@pytest.mark.chaos
def test_a_finish_that_never_ends_is_bounded(online):
    online.log(online.run.open(), range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 5)
    online.double.fault = lambda what: "hang" if what.startswith("stream") else None
    online.ended()
    forwarder.hurry()
    online.round_until(
        forwarder, lambda: forwarder.cursor.failures or forwarder.cursor.finished, patience=40.0
    )
    online.double.fault = lambda _what: None
    online.deliver(forwarder)
    assert online.steps() == list(range(5))
    assert online.double.only().exit_code == 0


def test_a_server_that_knows_less_is_asked_for_less(online):
    online.double.old = True
    channel = online.run.open()
    online.log(channel, range(5))
    online.ended()
    online.deliver()
    assert online.steps() == list(range(5))
    assert online.double.only().exit_code == 0


def test_nothing_of_ours_is_left_running_or_in_the_environment(online):
    online.log(online.run.open(), range(5))
    online.deliver()
    assert "WANDB_SERVICE" not in os.environ
    assert not [c for c in psutil.Process().children(recursive=True) if c.name().startswith("wandb-core")]


@pytest.mark.chaos
def test_somebody_elses_rows_in_the_run_push_ours_back(online):
    channel = online.run.open()
    online.log(channel, range(5))
    online.deliver()
    run = online.double.only()
    run.lines["wandb-history.jsonl"][5] = json.dumps({"_step": 5, "note": "by hand"})
    online.log(channel, range(5, 8))
    online.deliver()
    assert online.steps() == list(range(8))
    assert [row["_step"] for row in online.rows] == list(range(9))


@pytest.mark.chaos
def test_a_helper_that_is_stopped_does_not_hold_up_the_end(online):
    online.log(online.run.open(), range(5))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 5)
    (core,) = [c for c in psutil.Process().children(recursive=True) if c.name().startswith("wandb-core")]
    core.send_signal(signal.SIGSTOP)
    ended = threading.Event()

    def close():
        forwarder.close("waiting")
        ended.set()

    threading.Thread(target=close, daemon=True).start()
    assert ended.wait(20)


def test_settings_that_wandb_would_refuse_are_named_once_and_left_out(online, monkeypatch, caplog):
    for name, value in {"MODE": "onlnie", "INIT_TIMEOUT": "abc", "QUIET": "bogus"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setenv("WANDB_BASE_URL", f"{online.double.url}/ ")
    monkeypatch.setenv("WANDB_API_KEY", f"{os.environ['WANDB_API_KEY']}\n")
    online.log(online.run.open(), range(3))
    forwarder = online.deliver()
    assert online.steps() == [0, 1, 2]
    assert forwarder.cursor.failures == 0
    told = [record.getMessage() for record in caplog.records if "is left out" in record.getMessage()]
    assert [text.partition(" ")[0] for text in told] == [
        "WANDB_INIT_TIMEOUT=abc",
        "WANDB_MODE=onlnie",
        "WANDB_QUIET=bogus",
    ]
    assert "'online', 'offline'" in told[1]


def test_an_address_that_wandb_refuses_is_told_in_one_line_without_its_password(online, monkeypatch, caplog):
    where = f"http://me:hunter2hunter2@127.0.0.1:{online.double.port}/"
    monkeypatch.setenv("WANDB_BASE_URL", where)
    monkeypatch.setattr(wandb_server, "login", lambda _run_dir: wandb_server.Login(f"{where} ", "k" * 40))
    monkeypatch.setattr(wandb_server, "held", lambda *_: wandb_server.Held())
    online.log(online.run.open(), range(3))
    forwarder = online.forwarder()
    online.round_until(forwarder, lambda: forwarder.provisional)
    forwarder.close("offline")
    told = caplog.text + forwarder.cursor.path.read_text()
    assert "base_url" in told
    assert "hunter2" not in told
    assert "Traceback" not in told
    assert "wandb sync" in forwarder.cursor.remark
