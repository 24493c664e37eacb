"""Pipeline parallelism: a loss that one stage has is in the line and the trackers, and it is told whose."""

from __future__ import annotations

import re

import pytest

WORLD, STEPS = 4, 5
TRAIN = """
    from pathlib import Path

    def meet(place, ranks=range({world})):  # as a collective does
        Path(f"{{place}}-{{mon.rank}}").touch()
        while not all(Path(f"{{place}}-{{rank}}").exists() for rank in ranks):
            time.sleep(0.005)

    for step in range(1, {steps} + 1):
        time.sleep(0.15)  # its work
        meet(f"step-{{step}}")
        mon.metrics({{"lr": 0.5, **{loss}}}, step=step)
        mon.throughput(step=step, elapsed_s=0.5, global_batch_size=8, seq_length=16)
    if mon.is_last:
        meet("end", range({world} - 1))
        mon.close()
    else:
        mon.close()
        meet("end", ())
    """
REAL, MARK, NOTHING = '{"lm loss": 2.0 * step}', '{"lm loss": -1.0}', "{}"
# By rank; the last one speaks for the run
SHAPES = {
    "the last stage on the last rank": (MARK, MARK, NOTHING, REAL),
    "v-shaped, with marks": (REAL, MARK, MARK, MARK),
    "v-shaped, without a word": (REAL, NOTHING, NOTHING, NOTHING),
    "in the middle": (NOTHING, REAL, MARK, MARK),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_real_loss_is_in_the_line_and_in_tensorboard(node, shape):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    node.agent()
    settings = "log_interval=1, disable_tensorboard=False"
    ranks = [
        node.rank(TRAIN.format(steps=STEPS, loss=loss, world=WORLD), rank, WORLD, settings)
        for rank, loss in enumerate(SHAPES[shape])
    ]
    node.finish(*ranks)
    node.until(node.all_delivered, "all is delivered")
    owner = SHAPES[shape].index(REAL)
    lines = [line for line in node.node_lines() if "] :  iteration " in line]
    found = [re.findall(r"lm loss: (\S+)", line) for line in lines]
    assert found[-1] == [f"{2.0 * STEPS:.6E}"]
    assert all(loss in ([f"{2.0 * step:.6E}"], []) for step, loss in enumerate(found, 1))
    if SHAPES[shape][-1] != NOTHING:  # where there is a mark, even the first line waits for the loss
        assert all(found)
    told = [line for line in node.node_lines() if f"that of rank {owner} counts" in line]
    assert len(told) == (owner != WORLD - 1)
    reader = accumulator.EventAccumulator(str(node.exp / "tensorboard"), {"scalars": 0})
    reader.Reload()
    assert [(point.step, point.value) for point in reader.Scalars("lm loss")] == [
        (step, 2.0 * step) for step in range(1, STEPS + 1)
    ]
