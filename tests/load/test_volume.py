"""Volumes of months: gigabytes of lines, and a tracker that gets millions of points."""

from __future__ import annotations

import shutil

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(9000)]

SCALARS = 100
STEPS = """
    values = {{"scalar %02d" % number: number * 0.5 for number in range({scalars})}}
    for step in range(1, {steps} + 1):
        mon.metrics(values, step=step)
        while mon._spool.used() > 32 << 20:
            time.sleep(0.005)
    """
LINES = """
    text = "line %d " + "x" * {width}
    for number in range(1, {lines} + 1):
        log.info(text, number)
        while mon._spool.used() > 32 << 20:
            time.sleep(0.005)
    """


def test_a_month_of_metrics_is_drawn_whole_and_the_agent_does_not_grow(node, watch, size):
    steps = size(3_000, 30 * 24 * 3600)
    agent = node.agent()
    rank = node.rank(STEPS.format(steps=steps, scalars=SCALARS), settings="disable_tensorboard=False")
    watched = watch(agent.pid)
    assert rank.wait(60 + steps // 200) == 0, node.outputs()
    node.until(node.all_delivered, "the run put away", 60 + steps // 200)
    watched.end()

    assert last_step(node.exp / "tensorboard", f"scalar {SCALARS - 1:02d}") == (steps, steps)
    if len(watched.looks) > 40:
        watched.assert_flat()


def test_gigabytes_of_lines_are_all_there_and_their_end_is_found_at_once(node, watch, size):
    total = size(60 << 20, 10 << 30)
    if shutil.disk_usage(node.base).free < 4 * total:
        pytest.fail(f"{node.base}: {4 * total >> 30} GB of room are needed")
    width = 200
    lines = total // (width + 100) // 4
    agent = node.agent()
    body = LINES.format(lines=lines, width=width)
    ranks = [node.rank(body, rank, 4, "flush_seconds=120") for rank in range(4)]
    watched = watch(agent.pid)
    for rank in ranks:
        assert rank.wait(60 + lines // 500) == 0, node.outputs()
    node.until(node.all_delivered, "the run put away", 300 + lines // 2000)
    watched.end()

    if len(watched.looks) > 40:
        watched.assert_flat()
    for rank in range(4):
        assert count(node.exp / "logs" / "pretrain" / f"rank-{rank}", b"] : line ") == lines
        shown = node.command("tail", "-n", "1", "--rank", str(rank), str(node.exp)).stdout
        assert f"line {lines} " in shown


def count(folder, word: bytes) -> int:
    """Of a word in the debug logs, rotated ones too."""
    return sum(path.read_bytes().count(word) for path in folder.glob("debug*.log"))


def last_step(folder, tag: str) -> tuple[int, int]:
    """The number of a scalar's points and their highest step, read event by event."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    found = highest = 0
    for path in sorted(folder.glob("events*")):
        for raw in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(raw)
            if any(value.tag == tag for value in event.summary.value):
                found, highest = found + 1, max(highest, event.step)
    return found, highest
