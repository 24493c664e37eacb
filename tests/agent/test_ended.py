"""What is told of runs that no agent serves, from the state folder alone."""

from __future__ import annotations

import json

from rankside_agent import ended


def put(state, name, kind="done", updated=1.0, **sinks):
    folder = state / kind / name
    (folder / "sinks").mkdir(parents=True)
    attempt = {"n": 2, "status": "failed", "ended": updated, "log_root": "logs"}
    facts = {"exp_name": name, "exp_root": f"/exp/{name}", "module": "sft", "attempts": [attempt]}
    (folder / "run.json").write_text(json.dumps({**facts, "updated": updated}))
    for sink, told in sinks.items():
        (folder / "sinks" / f"{sink}.json").write_text(json.dumps(told))


def test_the_newest_finished_runs_are_told_with_their_end(tmp_path):
    for number in range(ended.MOST + 2):
        put(tmp_path, f"run-{number}", updated=float(number))
    told = ended.finished(tmp_path)
    assert [run["exp_name"] for run in told] == [f"run-{number}" for number in (6, 5, 4, 3, 2)]
    assert told[0] | {"run_id": ""} == {
        "run_id": "",
        "exp_name": "run-6",
        "exp_root": "/exp/run-6",
        "module": "sft",
        "attempt": 2,
        "status": "failed",
        "ended": 6.0,
        "remarks": [],
    }


def test_what_is_left_to_do_is_told(tmp_path):
    remark = "offline; once the run has ended:\n    wandb sync x"
    put(
        tmp_path,
        "done-run",
        wandb={"state": "done", "remark": remark, "last_error": "old"},
        environ={"A": "b"},
    )
    (run,) = ended.finished(tmp_path)
    assert run["remarks"] == [{"reader": "wandb", "remark": remark}]


def test_a_run_that_is_not_delivered_is_told_with_what_stands_in_the_way(tmp_path):
    delivered, waiting = {"state": "done", "last_error": "old"}, {"state": "waiting", "last_error": "refused"}
    put(tmp_path, "cut-off", "runs", mlflow=waiting, tensorboard=delivered)
    (run,) = ended.interrupted(tmp_path)
    assert run["remarks"] == [{"reader": "mlflow", "remark": "refused"}]
    assert not ended.finished(tmp_path)


def test_a_state_folder_that_is_not_there_has_no_runs(tmp_path):
    assert ended.finished(tmp_path / "none") == ended.interrupted(tmp_path / "none") == []
