"""Many runs, one after another and at once: each is whole, and none leaves anything in the agent."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(6000)]

ONE_AFTER_ANOTHER = """
    for number in range({runs}):
        with rankside.init("run-%04d" % number, workspace={workspace!r}, rank=0, world_size=1,
                           flush_seconds=60) as each:
            for line in range(1, 21):
                each.log("line %d" % line)
                each.metrics({{"loss": line}}, step=line)
    """
AT_ONCE = """
    monitors = [
        rankside.init("run-%04d" % number, workspace={workspace!r}, rank=0, world_size=1, flush_seconds=120)
        for number in range({runs})
    ]
    for line in range(1, 201):
        for each in monitors:
            each.log("line %d" % line)
    for each in monitors:
        each.close()
    """


@pytest.mark.parametrize(("body", "few", "many"), [(ONE_AFTER_ANOTHER, 30, 1000), (AT_ONCE, 12, 50)])
def test_every_run_is_whole_and_the_agent_is_as_before(node, numbers, watch, size, body, few, many):
    runs = size(few, many)
    agent = node.agent()
    workspace = str(node.base / "work")
    watched = watch(agent.pid)
    rank = node.rank(body.format(runs=runs, workspace=workspace))
    assert rank.wait(runs * 5 + 120) == 0, node.outputs()
    node.until(node.all_delivered, "the runs put away", 300)
    watched.end()

    lines = 200 if body is AT_ONCE else 20
    for number in range(runs):
        (path,) = (node.base / "work").glob(f"*/*/run-{number:04d}/logs/pretrain/rank-0/debug.log")
        texts = [line.partition("] : ")[2] for line in path.read_text().splitlines()]
        assert numbers(texts) == list(range(1, lines + 1)), path
    end = watched.now()
    assert end.descriptors <= watched.looks[0].descriptors + 10
    assert end.threads <= watched.looks[0].threads + 3
    if body is ONE_AFTER_ANOTHER:
        watched.assert_flat()
    shown = json.loads(node.command("status", "--json").stdout)
    assert len(json.dumps(shown)) < 1 << 20
