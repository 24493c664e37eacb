"""A run ends while points wait for a word that never comes: what is stored stays of one piece.

The last rank of an attempt may be on another node. What other ranks said is then held to the end, and the
stored place in the journal is before it.
"""

from __future__ import annotations

import json

from rankside_agent.sinks.forwarder import Forwarder
from rankside_agent.sinks.tensorboard import TensorBoard


def test_a_sink_that_is_started_again_shows_nothing_twice(run, board):
    elsewhere = run.open(rank=0, attempt=1)
    run.metrics(elsewhere, 1, loss=9.0)
    last = run.open(rank=7, attempt=2)
    for step in range(1, 6):
        run.metrics(last, step, loss=float(step))
    run.end(last)
    told = json.loads((run.path / "run.json").read_text())
    ended = {"n": 2, "status": "finished", "ended": run.time, "log_root": "logs"}
    (run.path / "run.json").write_text(json.dumps({**told, "attempts": [ended]}))
    for _ in range(2):  # an agent that is killed has the next one start it again
        forwarder = Forwarder(run.path, "tensorboard", make=lambda _name: TensorBoard)
        forwarder.hurry()
        while not forwarder.drained:
            forwarder.round()
        forwarder.close("done")
    assert board().scalars("loss") == [(step, float(step)) for step in range(1, 6)]
