"""What a user of W&B finds of an offline run: in W&B's own reader, and on a server after `wandb sync`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from wandb_double import Tracked, WandbReader, sync

from rankside.wire import Kind
from rankside_agent.sinks import wandb_rows
from rankside_agent.sinks.wandb import Wandb

pytest_plugins = ["wandb_double"]


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, False),
        ({"disable_wandb": True}, False),
        ({"disable_wandb": False}, True),
        ({"metrics.enable_wandb": True}, True),
        ({"disable_wandb": True, "metrics.enable_wandb": True}, True),
    ],
)
def test_a_run_has_wandb_where_its_parameters_say_so(config, wanted):
    assert Wandb.wanted(config) is wanted


def test_without_a_key_the_rows_lie_in_one_folder_that_can_be_synced(offline):
    channel = offline.run.open(team="our", user="me", exp_name="first try")
    offline.log(channel, range(50))
    offline.run.add(channel, (Kind.PARAMS, ({"lr": 0.1},)))
    forwarder = offline.deliver()
    assert "no API key" in forwarder.cursor.remark
    (folder,) = (offline.run.exp_root / "wandb").glob("offline-run-*")
    assert f"wandb sync {folder}" in forwarder.cursor.remark
    sync(offline.double, folder)
    assert offline.double.only().scalars("loss") == [(step, float(step)) for step in range(50)]
    assert offline.double.only().values()["lr"] == 0.1
    assert offline.double.only().facts["project"] == "our_me"
    assert offline.double.only().facts["displayName"] == "first try"


def test_calls_of_one_step_make_one_row(offline):
    channel = offline.run.open()
    for step in range(10):
        offline.run.metrics(channel, step, loss=1.0)
        offline.run.metrics(channel, step, **{"grad norm": 2.0})
        offline.run.metrics(channel, None, other=3.0)
    offline.deliver()
    rows = offline.reader.rows()
    assert len(rows) == 10
    assert all({"loss", "grad norm", "other"} <= row.keys() for row in rows)
    assert [row["train_step"] for row in rows] == list(range(10))


def test_a_name_that_comes_twice_in_a_step_is_not_overwritten(offline):
    channel = offline.run.open()
    offline.run.metrics(channel, 1, loss=1.0)
    offline.run.metrics(channel, 1, loss=2.0)
    offline.deliver()
    assert offline.reader.scalars("loss") == [(1, 1.0), (1, 2.0)]


def test_steps_that_go_back_and_one_far_ahead_lose_nothing(offline):
    first = offline.run.open(attempt=1)
    offline.log(first, [*range(1, 213), 10_000])
    offline.run.end(first, "killed")
    offline.deliver()
    offline.log(offline.run.open(attempt=2), range(201, 261))
    offline.deliver()
    steps = [*range(1, 213), 10_000, *range(201, 261)]
    assert offline.reader.scalars("loss") == [(step, float(step)) for step in steps]
    assert [row["attempt"] for row in offline.reader.rows()] == [1] * 213 + [2] * 60
    for path in offline.reader.files():
        sync(offline.double, path.parent)
    assert offline.steps() == steps


@pytest.mark.parametrize("lives_on", [False, True], ids=["a new process", "the same process"])
def test_a_node_to_which_the_last_rank_returns_goes_on_behind_the_other_nodes_rows(
    offline, make_run, double, lives_on
):
    offline.log(offline.run.open(), range(5))
    forwarder = offline.forwarder()
    offline.round_until(forwarder, lambda: forwarder.cursor.mark.counts.delivered == 5)
    if not lives_on:
        forwarder.close("done")
    between = Tracked(make_run(exp_root=offline.run.exp_root), double)
    (between.run.path / "run.json").write_bytes((offline.run.path / "run.json").read_bytes())
    between.log(between.run.open(attempt=2), range(3, 8))
    between.run.drain("wandb")
    offline.log(offline.run.open(attempt=3), range(6, 9))
    offline.deliver(forwarder if lives_on else None)
    steps = [(row["attempt"], row["train_step"]) for row in offline.reader.rows()]
    expected = {1: range(5), 2: range(3, 8), 3: range(6, 9)}
    assert steps == [(attempt, step) for attempt, steps in expected.items() for step in steps]


def test_late_records_of_an_older_attempt_are_shown_and_counted(offline):
    first = offline.run.open(attempt=1)
    offline.log(first, [1])
    second = offline.run.open(attempt=2)
    offline.log(second, [10])
    offline.log(first, [9, 10, 11])
    offline.deliver()
    found = [(row["attempt"], row["train_step"]) for row in offline.reader.rows()]
    assert found == [(1, 1), (2, 10), (1, 9), (1, 10), (1, 11)]
    assert offline.run.status("wandb")["superseded"] == 2


def test_numbers_that_are_none_and_names_that_wandb_would_eat(offline):
    channel = offline.run.open()
    names = ["", "_step", "_private", "train_step", "attempt", "a.b", "mfu(%)", "é", "lone \ud800", "a" * 500]
    offline.run.metrics(channel, 1, **{name: float(at) for at, name in enumerate(names)})
    offline.run.metrics(
        channel, 2, loss=math.nan, inf=math.inf, minus=-math.inf, large=2.0**70, huge=2**60, exact=2**53
    )
    offline.deliver()
    first, second = offline.reader.rows()
    shown = ["metrics/", "metrics/_step", "metrics/_private", "metrics/train_step", "metrics/attempt"]
    for at, name in enumerate([*shown, "a.b", "mfu(%)", "é", "lone \\ud800", "a" * 500]):
        assert first[name] == at
    assert first["train_step"] == 1
    assert [float(second[name]) for name in ("inf", "minus")] == [math.inf, -math.inf]
    assert math.isnan(float(second["loss"]))
    assert (float(second["large"]), float(second["huge"])) == (2.0**70, pytest.approx(2.0**60))
    assert second["exact"] == 2**53
    sync(offline.double, offline.reader.files()[0].parent)
    assert math.isnan(offline.rows[1]["loss"])


def test_rows_have_the_time_at_which_they_were_logged(offline):
    channel = offline.run.open()
    times = []
    for step, jump in enumerate((0, 1, -3600, 315_000_000)):
        offline.run.time += jump
        offline.log(channel, [step])
        times.append(offline.run.time)
    offline.deliver()
    assert [row["_timestamp"] for row in offline.reader.rows()] == times


def test_only_so_many_names(offline, monkeypatch, caplog):
    monkeypatch.setattr(wandb_rows, "MOST_NAMES", 10)
    channel = offline.run.open()
    for step in range(3):
        offline.run.metrics(channel, step, **{f"name {number}": 1.0 for number in range(20)})
        offline.deliver()
    assert [len([n for n in row if n.startswith("name")]) for row in offline.reader.rows()] == [10] * 3
    status = offline.run.status("wandb")
    assert (status["points"], status["refused"]) == (30, 30)
    assert "more than 10 names: 'name 10'" in caplog.text


def test_events_beyond_the_names_share_one_column(offline, monkeypatch):
    monkeypatch.setattr(wandb_rows, "MOST_NAMES", 2)
    channel = offline.run.open()
    offline.run.metrics(channel, 1, loss=1.0, norm=1.0)
    for name in ("checkpoint", "resumed", "checkpoint"):
        offline.run.add(channel, (Kind.EVENT, (name, {"path": f"/{name}"})))
        offline.deliver()
    told = [json.loads(row["events/other"]) for row in offline.reader.rows() if "events/other" in row]
    assert [each["event"] for each in told] == ["checkpoint", "resumed", "checkpoint"]
    assert told[0]["fields"]["path"] == "/checkpoint"
    assert offline.run.status("wandb")["refused"] == 0


def test_a_folder_that_cannot_be_made_is_named_with_the_reason(make_run, double, no_login):
    offline = Tracked(make_run(exp_root=Path("/proc/no-such/exp")), double)
    offline.log(offline.run.open(), range(3))
    forwarder = offline.forwarder()
    forwarder.round()
    offline.round_until(forwarder, lambda: forwarder.cursor.failures)
    assert "/proc/no-such/exp/wandb" in forwarder.cursor.last_error
    assert "No such file or directory" in forwarder.cursor.last_error
    assert "offline" in forwarder.cursor.last_error
    forwarder.close("waiting")


def test_the_command_is_made_for_a_shell(make_run, double, no_login, tmp_path):
    offline = Tracked(make_run(exp_root=tmp_path / "sp ace;touch x"), double)
    offline.log(offline.run.open(), range(3))
    remark = offline.deliver().cursor.remark
    (folder,) = (offline.run.exp_root / "wandb").glob("offline-run-*")
    assert remark.splitlines()[1:] == [f"    wandb sync '{folder}'"]


def test_what_is_to_be_done_is_told_by_the_next_process_too(offline):
    offline.log(offline.run.open(), range(3))
    remark = offline.deliver().cursor.remark
    assert "wandb sync" in remark
    assert offline.deliver().cursor.remark == remark


def test_params_of_any_shape_are_taken(offline):
    deep = {"bottom": 1}
    for _ in range(60):
        deep = {"down": deep}
    values = {
        "nan": math.nan,
        "big": 2**63 - 1,
        "nested": {"betas": [0.9, math.inf]},
        "deep": deep,
        "text": "x" * 100_000,
        "lone": "\ud800",
        "": 1,
        "none": None,
    }
    offline.run.add(offline.run.open(), (Kind.PARAMS, (values,)))
    offline.deliver()
    sync(offline.double, *[path.parent for path in offline.reader.files()])
    config = offline.double.only().values()
    assert config["nan"] == "nan"
    assert config["nested"] == {"betas": [0.9, "inf"]}
    assert config["text"].endswith("(100000 characters)")
    assert config["lone"] == "\\ud800"
    assert config["deep"] == deep


def test_a_param_that_a_new_attempt_changes_is_kept_with_the_old_one(offline):
    offline.run.add(offline.run.open(attempt=1), (Kind.PARAMS, ({"lr": 0.1, "world": 8},)))
    offline.deliver()
    offline.run.add(offline.run.open(attempt=2), (Kind.PARAMS, ({"lr": 0.1, "world": 4},)))
    offline.deliver()
    config = offline.reader.config()
    assert (config["lr"], config["world"], config["attempt_2.world"]) == (0.1, 4, 4)
    assert "attempt_2.lr" not in config


def test_where_it_ran_and_what_of_is_in_the_config(offline):
    launch = {"argv": ["train.py", "--x"], "cwd": "/home/me"}
    channel = offline.run.open(host="node-1", launch=launch, module="pretrain")
    origin = offline.run.path / "origin"
    origin.mkdir()
    facts = {"commit": "abc", "branch": "main", "dirty": True, "status": [" M x"] * 1000}
    (origin / "attempt-1.json").write_text(json.dumps(facts))
    offline.log(channel, [1])
    offline.deliver()
    ours = offline.reader.config()["rankside"]
    assert (ours["argv"], ours["cwd"], ours["host"], ours["world_size"]) == (*launch.values(), "node-1", 8)
    assert ours["git"] == {"commit": "abc", "branch": "main", "dirty": True}


def test_events_and_artifacts(offline, caplog):
    channel = offline.run.open()
    trace = offline.run.exp_root / "logs" / "trace [1].json"
    trace.parent.mkdir(parents=True)
    trace.write_text("{}")
    offline.log(channel, [100])
    offline.run.add(
        channel,
        (Kind.EVENT, ("checkpoint", {"path": "/ckpt/100"})),
        (Kind.ARTIFACT, (str(trace),)),
        (Kind.ARTIFACT, ("/nowhere.json",)),
    )
    offline.deliver()
    assert json.loads(offline.reader.rows()[0]["events/checkpoint"]) == {"path": "/ckpt/100"}
    assert "/nowhere.json is left out" in caplog.text
    sync(offline.double, offline.reader.files()[0].parent)
    assert offline.double.only().uploaded["artifacts/logs/trace [1].json"] == b"{}"


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("killed", 255)])
def test_the_end_of_a_run_is_told(offline, status, code):
    offline.log(offline.run.open(), range(3))
    offline.ended(status)
    offline.deliver()
    offline.deliver()
    sync(offline.double, offline.reader.files()[0].parent)
    run = offline.double.only()
    assert run.exit_code == code
    assert run.summary()["rankside.status"] == status
    assert run.values()["rankside"]["status"] == status


def test_a_new_attempt_goes_on_in_the_same_folder_unless_it_was_synced(offline):
    offline.log(offline.run.open(attempt=1), range(5))
    offline.ended("killed")
    offline.deliver()
    offline.log(offline.run.open(attempt=2), range(3, 8))
    offline.ended("failed", attempt=2)
    offline.deliver()
    (first,) = offline.reader.files()
    sync(offline.double, first.parent)
    assert offline.double.only().exit_code == 1
    offline.log(offline.run.open(attempt=3), range(6, 9))
    offline.ended("finished", attempt=3)
    offline.deliver()
    _, second = offline.reader.files()
    sync(offline.double, second.parent)
    assert offline.steps() == [*range(5), *range(3, 8), *range(6, 9)]
    assert [row["_step"] for row in offline.rows] == list(range(13))
    assert offline.double.only().exit_code == 0


def test_an_attempt_beside_a_living_one_is_a_run_of_its_own(offline):
    first = offline.run.open(attempt=1)
    second = offline.run.open(attempt=2, log_root="logs/attempt-2")
    for step in range(5):
        offline.run.metrics(first, step, loss=1.0)
        offline.run.metrics(second, step, loss=2.0)
    offline.deliver()
    assert offline.reader.scalars("loss") == [(step, 1.0) for step in range(5)]
    assert WandbReader(offline.run.exp_root, "attempt-2").scalars("loss") == [
        (step, 2.0) for step in range(5)
    ]


@pytest.mark.parametrize("log_root", ["../../elsewhere", "/etc", "logs/attempt-2/../../..", "logs/attempt-x"])
def test_no_log_root_leads_elsewhere(offline, log_root):
    offline.log(offline.run.open(log_root=log_root), [1])
    offline.deliver()
    assert offline.reader.scalars("loss") == [(1, 1.0)]


def test_other_ranks_have_names_of_their_own_and_do_not_move_the_step(offline):
    everyone = {"metrics.save_for_all_ranks": True}
    first, last = offline.run.open(rank=0, config=everyone), offline.run.open(rank=7, config=everyone)
    offline.log(first, [5])
    offline.log(last, [4])
    offline.run.metrics(last, None, eval=1.0)
    offline.deliver()
    assert offline.reader.scalars("rank-0/loss") == [(5, 5.0)]
    assert offline.reader.scalars("eval") == [(4, 1.0)]


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        ({}, {}, ("t_u", "exp", "")),
        ({}, {"WANDB_PROJECT": "ignored", "WANDB_ENTITY": "us"}, ("t_u", "exp", "us")),
        ({"wandb_project": "a/b:c", "wandb_exp_name": "n", "wandb_entity": "e"}, {}, ("a-b-c", "n", "e")),
        (
            {"disable_wandb": True, "metrics.enable_wandb": True},
            {},
            ("Primus-Titan-Pretrain-t_u", "exp", ""),
        ),
        (
            {"disable_wandb": True, "metrics.enable_wandb": True},
            {"WANDB_PROJECT": "p", "WANDB_RUN_NAME": "r", "WANDB_TEAM": "e"},
            ("p", "r", "e"),
        ),
    ],
)
def test_names_are_those_of_megatrons_parameters_or_torchtitans_variables(
    offline, monkeypatch, config, environ, expected
):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    offline.log(offline.run.open(config=config, team="t", user="u", exp_name="exp"), [1])
    offline.deliver()
    (run,) = offline.reader.records("run")
    assert (run["project"], run["display_name"], run.get("entity", "")) == expected


def test_the_users_variables_do_not_lead_the_run_elsewhere(offline, monkeypatch, tmp_path):
    for name, value in {
        "WANDB_DIR": str(tmp_path / "elsewhere"),
        "WANDB_RUN_ID": "other",
        "WANDB_RESUME": "must",
        "WANDB_TAGS": "a, b",
        "WANDB_NOTES": "note",
        "WANDB_RUN_GROUP": "group",
    }.items():
        monkeypatch.setenv(name, value)
    offline.log(offline.run.open(), [1])
    offline.deliver()
    assert not (tmp_path / "elsewhere").exists()
    sync(offline.double, offline.reader.files()[0].parent)
    ((run_id, kept),) = offline.double.runs.items()
    assert run_id in offline.reader.files()[0].name
    assert run_id != "other"
    assert (kept.facts["tags"], kept.facts["notes"], kept.facts["groupName"]) == (["a", "b"], "note", "group")


@pytest.mark.parametrize("variable", [("WANDB_MODE", "disabled"), ("WANDB_DISABLED", "true")])
def test_switched_off_by_the_environment_nothing_is_written(offline, monkeypatch, variable):
    monkeypatch.setenv(*variable)
    offline.log(offline.run.open(), [1])
    offline.ended()
    assert "switched off" in offline.deliver().cursor.remark
    assert not (offline.run.exp_root / "wandb").exists()


def test_wandb_mode_offline_asks_no_server(online, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    online.log(online.run.open(), range(3))
    forwarder = online.deliver()
    assert not forwarder.provisional
    assert not online.double.asked
    assert len(online.reader.rows()) == 3


def test_a_row_of_20_000_values(offline, monkeypatch):
    monkeypatch.setattr(wandb_rows, "MOST_NAMES", 30_000)
    offline.run.metrics(
        offline.run.open(), 1, **{f"name {number}": float(number) for number in range(20_000)}
    )
    offline.deliver()
    (row,) = offline.reader.rows()
    assert row["name 19999"] == 19999.0
    assert offline.run.status("wandb")["points"] == 20_000
    sync(offline.double, offline.reader.files()[0].parent)
    assert offline.rows[0]["name 19999"] == 19999.0


def test_5_000_calls_become_few_rows(offline):
    channel = offline.run.open()
    for step in range(500):
        for name in range(10):
            offline.run.metrics(channel, step, **{f"name {name}": 1.0})
    offline.deliver()
    rows = offline.reader.rows()
    assert sum(len([name for name in row if name.startswith("name")]) for row in rows) == 5000
    assert len(rows) <= 510  # a flush may end a row before its step is over


def test_what_is_on_its_way_to_a_server_is_nothing_for_wandb_sync(offline):
    offline.log(offline.run.open(), range(5))
    offline.deliver()
    folder = offline.reader.files()[0].parent
    folder.rename(folder.with_name(folder.name.replace("offline-", "replaced-")))
    sync(offline.double, "--yes", offline.run.exp_root / "wandb")
    assert not offline.double.runs


def test_a_parameter_of_the_agents_name_is_kept_under_another(offline, caplog):
    offline.run.add(offline.run.open(), (Kind.PARAMS, ({"rankside": 5, "lr": 0.1},)))
    offline.deliver()
    config = offline.reader.config()
    assert (config["param.rankside"], config["lr"]) == (5, 0.1)
    assert config["rankside"]["attempt"] == 1
    assert "'param.rankside'" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"), [("WANDB_DISABLED", "true"), ("WANDB_MODE", "disabled")], ids=["disabled", "mode"]
)
def test_the_variable_that_switches_wandb_off_is_named(offline, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    offline.log(offline.run.open(), range(3))
    assert offline.deliver().cursor.remark == f"switched off by {name}={value}"


def test_artifacts_of_one_name_are_both_kept_and_one_that_is_left_out_is_told(offline, tmp_path):
    channel = offline.run.open()
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.pt").write_text(folder)
        offline.run.add(channel, (Kind.ARTIFACT, (str(tmp_path / folder / "model.pt"),)))
        offline.deliver()  # each time by another sink
    offline.run.add(channel, (Kind.ARTIFACT, (str(tmp_path / "missing.bin"),)))
    remark = offline.deliver().cursor.remark
    (files,) = (offline.run.exp_root / "wandb").glob("offline-run-*/files/artifacts")
    assert sorted(path.read_text() for path in files.iterdir()) == ["first", "second"]
    assert remark.startswith(f"1 artifacts left out: {tmp_path}/missing.bin")
    assert "wandb sync" in remark
    assert offline.run.status("wandb")["refused"] == 1
