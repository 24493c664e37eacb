"""From a real training through a real agent to real trackers: an MLflow server, event files, W&B's files."""

from __future__ import annotations

import json
import os
import random
import signal

import pytest
from mlflow_server import MLflowReader
from wandb_double import WandbReader

pytest_plugins = ["mlflow_server", "wandb_double"]

MLFLOW = "disable_mlflow=False"
ALL = "disable_mlflow=False, disable_tensorboard=False, disable_wandb=False, wandb_project='p'"


def train(first: int, last: int, value: str = "1 / (step + 1)", pause: float = 0.0) -> str:
    metrics = f"""mon.metrics({{"lm loss": {value}, "mfu(%)": 30.0}}, step=step)"""
    return f"for step in range({first}, {last}): {metrics}; time.sleep({pause})\n"


@pytest.fixture
def mlflow(node, mlflow_server):
    """What the server shows of the node's experiment."""
    node.tracking = {"MLFLOW_TRACKING_URI": mlflow_server.uri, "WANDB_MODE": "offline"}

    def read():
        return MLflowReader(mlflow_server.uri, (node.exp / "snapshot" / "key").read_text())

    return read


def delivered(node):
    node.until(node.all_delivered, "the run put away", 120)


def status_of(node, reader):
    answer = json.loads(node.command("status", "--json").stdout)
    (run,) = answer["runs"]
    return next(each for each in run["readers"] if each["reader"] == reader)


def test_the_last_rank_is_shown_by_every_tracker_and_no_secret_of_the_training_is(node, mlflow):
    secret = "hunter2hunter2hunter2"
    node.agent()  # without a tracker's variable in its own environment
    environ = {"MLFLOW_TRACKING_TOKEN": secret, "MY_PASSWORD": secret, "PLAIN": "shown", "COPY": f"x{secret}"}
    params = f"mon.params(api_key='{secret}', url='https://me:{secret}@host/x', lr=1)\n"
    ranks = [
        node.rank(
            params + train(1, 101, f"{rank}.0"), rank=rank, world=2, settings=ALL, **node.tracking, **environ
        )
        for rank in (0, 1)
    ]
    node.finish(*ranks)
    delivered(node)
    expected = [(step, 1.0) for step in range(1, 101)]
    assert mlflow().scalars("lm loss") == expected
    assert len(mlflow().scalars("mfu(%)")) == 100
    assert mlflow().run.info.status == "FINISHED"
    assert _event_file_scalars(node) == expected
    assert WandbReader(node.exp).scalars("lm loss") == expected
    told = mlflow().run.data.params
    assert told["env__PLAIN"] == "shown"
    assert told["lr"] == "1"
    assert secret not in json.dumps([told, mlflow().run.data.tags])
    held = [path for root in (node.state, node.exp) for path in root.rglob("*") if path.is_file()]
    assert [path for path in held if secret.encode() in path.read_bytes()] == []


def _event_file_scalars(node):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(node.exp / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return [(event.step, event.value) for event in shown.Scalars("lm loss")]


def test_a_second_attempt_goes_on_in_the_same_run_and_each_ends_as_the_worst_of_its_ranks_did(node, mlflow):
    node.agent()

    def attempt(body, end, code):
        bad = node.rank(train(1, 5) + end, rank=0, world=2, settings=MLFLOW, **node.tracking)
        last = node.rank(body, rank=1, world=2, settings=MLFLOW, **node.tracking)
        node.finish(bad, code=code)
        node.finish(last)
        delivered(node)
        return mlflow().run

    first = attempt(
        "mon.params(world_size=8, lr=0.1)\n" + train(1, 13), "raise RuntimeError('out of memory')", 1
    )
    assert first.info.status == "FAILED"
    second = attempt(
        "mon.params(world_size=4, lr=0.1)\n" + train(11, 21, "step + 0.5"),
        "os.kill(os.getpid(), signal.SIGKILL)",
        -9,
    )
    assert second.info.status == "KILLED"
    assert second.info.run_id == first.info.run_id
    assert second.data.params["world_size"] == "8"
    assert second.data.params["attempt_2.world_size"] == "4"
    assert "attempt_2.lr" not in second.data.params
    shown = [(step, 1 / (step + 1)) for step in range(1, 11)] + [(step, step + 0.5) for step in range(11, 21)]
    assert mlflow().scalars("lm loss") == shown


def test_a_tracker_that_never_answers_delays_nothing_but_itself(node, mlflow, mlflow_proxy):
    mlflow_proxy.trouble = "hang"
    node.agent()
    hanging = {**node.tracking, "MLFLOW_TRACKING_URI": mlflow_proxy.uri, "MLFLOW_HTTP_REQUEST_TIMEOUT": "1"}
    both = "disable_mlflow=False, disable_tensorboard=False"
    node.finish(node.rank(train(1, 1001) + "log.info('done')", settings=both, **hanging))
    node.until(lambda: "done" in node.texts(), "the log")
    node.until(lambda: status_of(node, "tensorboard")["behind"] == 0, "TensorBoard")
    assert len(_event_file_scalars(node)) == 1000
    node.until(lambda: status_of(node, "mlflow")["state"] == "waiting", "MLflow's sink in despair")
    told = status_of(node, "mlflow")
    assert told["behind"] >= 1000
    assert told["last_error"]
    assert told["next_try"] or told["failures"]
    mlflow_proxy.trouble = ""
    delivered(node)
    assert len(mlflow().scalars("lm loss")) == 1000


@pytest.mark.chaos
def test_an_agent_killed_again_and_again_loses_and_doubles_no_point(node, mlflow):
    kills = 20 if os.environ.get("RANKSIDE_CHAOS") == "long" else 3
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    agent = node.agent()
    rank = node.rank(train(1, 2001, "float(step)", 0.01), settings=ALL, **node.tracking)
    sink = node.state / "runs"
    for _ in range(kills):
        before = sum(path.stat().st_size for path in sink.glob("*/journal/points/*.seg"))
        more = chance.randrange(1, 20_000)
        node.until(
            lambda at=before + more: (
                rank.poll() is not None
                or sum(path.stat().st_size for path in sink.glob("*/journal/points/*.seg")) > at
            ),
            "more points",
        )
        node.end(agent, signal.SIGKILL)
        agent = node.agent()
    node.finish(rank)
    delivered(node)
    expected = [(step, float(step)) for step in range(1, 2001)]
    assert mlflow().scalars("lm loss") == expected
    assert _event_file_scalars(node) == expected
    assert WandbReader(node.exp).scalars("lm loss") == expected
    assert mlflow().run.info.status == "FINISHED"
