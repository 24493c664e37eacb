"""Many ranks, and ranks that say much: nothing is dropped, and the agent does not grow."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3000)]

PACED = """
    begun = time.monotonic()
    for second in range({seconds}):
        for number in range(second * {rate} + 1, (second + 1) * {rate} + 1):
            log.info("line %d", number)
        time.sleep(max(0, begun + second + 1 - time.monotonic()))
    """


def test_eight_ranks_at_a_steady_rate_drop_nothing(node, numbers, watch, size):
    seconds, rate = size((15, 1000), (600, 5000))
    agent = node.agent()
    ranks = [node.rank(PACED.format(seconds=seconds, rate=rate), rank, 8) for rank in range(8)]
    watched = watch(agent.pid)
    for rank in ranks:
        assert rank.wait(seconds * 3 + 60) == 0, node.outputs()
    watched.end()
    node.until(node.all_delivered, "the run put away", 300)

    watched.assert_flat()
    for rank in range(8):
        assert numbers(node.texts(rank)) == list(range(1, seconds * rate + 1))
    assert len(node.node_lines()) >= 8 * rate


def test_sixty_four_ranks_of_one_node_are_all_written(node, numbers, size):
    count, lines = size(16, 64), size(300, 5000)
    node.agent()
    body = f"""
        for number in range(1, {lines + 1}):
            log.info("line %d", number)
            mon.metrics({{"loss": number}}, step=number)
        """
    ranks = [node.rank(body, rank, count, "flush_seconds=60") for rank in range(count)]
    for rank in ranks:
        assert rank.wait(600) == 0, node.outputs()
    node.until(node.all_delivered, "the run put away", 300)

    for rank in range(count):
        assert numbers(node.texts(rank)) == list(range(1, lines + 1))
