"""The agent is late, frozen, or never there: training does not notice, and what the spool held arrives."""

from __future__ import annotations

import signal
import time

import pytest

TIMED = """
    costs = []
    for number in range({count}):
        began = time.perf_counter()
        log.info("line %d", number)
        costs.append(time.perf_counter() - began)
        if number % {burst} == 0:
            time.sleep({pause})
    costs.sort()
    left = time.perf_counter()
    mon.close()
    print("LEFT", time.perf_counter() - left)
    """


def test_an_agent_that_appears_later_gets_everything(node, numbers):
    rank = node.rank(TIMED.format(count=3000, burst=100, pause=0.05))
    node.until(lambda: node.log("rank-0").count("LEFT") == 0 and rank.poll() is None, "the rank at work")
    node.agent()
    node.finish(rank)
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(3000))


def test_without_any_agent_50000_records_and_exit_end_within_the_flush_limit(node, numbers):
    began = time.monotonic()
    node.finish(node.rank("for number in range(50_000): log.info('line %d', number)"))
    assert time.monotonic() - began < 30  # start, logging's own cost and at most 2 s of flush
    node.agent()  # and the records were kept for whoever comes
    node.until(lambda: any("vanished" in text for text in node.texts(0)) or node.all_delivered(), "recovery")
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(50_000))


def test_an_agent_frozen_under_load_loses_nothing_and_the_stream_resumes(node, numbers):
    agent = node.agent()
    ranks = [node.rank(TIMED.format(count=20_000, burst=20, pause=0.01), rank=r, world=3) for r in range(3)]
    node.until(lambda: all(len(node.lines(r)) > 200 for r in range(3)), "lines")
    agent.send_signal(signal.SIGSTOP)
    time.sleep(10)  # the event itself: ten seconds of silence
    agent.send_signal(signal.SIGCONT)
    node.finish(*ranks)
    node.until(node.all_delivered, "the run finished")
    for rank in range(3):
        assert numbers(node.texts(rank)) == list(range(20_000))


def test_what_a_small_spool_cannot_hold_is_counted_and_announced(node, numbers):
    body = """
        import rankside
        small = rankside.init(exp_root=sys.argv[0] + "-exp", rank=0, world_size=1, spool_bytes=1 << 20)
        for number in range(60_000):
            small.log("line %d with some text to fill the spool" % number)
        for number in range(20):
            small.log("important", level="ERROR")
        small.close()
        """
    rank = node.rank(body)
    node.finish(rank)
    node.agent()
    node.until(node.all_delivered, "recovery")
    exp = next(node.base.glob("*-exp"))
    text = (exp / "logs/pretrain/rank-0/debug.log").read_text()
    kept = text.count("with some text")
    dropped = sum(
        int(line.split(" : ")[1].split()[0]) for line in text.split("\n") if "records dropped" in line
    )
    assert kept + dropped == 60_000
    assert dropped > 0
    assert text.count("] : important") == 20


@pytest.mark.parametrize("size", [5 << 20, 64 << 20])
def test_one_very_big_record_is_cut_and_says_so_and_its_neighbours_are_whole(node, size):
    node.agent()
    node.finish(node.rank(f"log.info('before'); log.info('x' * {size}); log.info('after')"))
    node.until(node.all_delivered, "the run finished")
    before, big, after = node.texts(0)
    assert (before, after) == ("before", "after")
    assert big.endswith(f"... [rankside: cut here, {size} characters in all]")
    assert len(big) <= 1 << 20


def test_an_agent_told_to_stop_the_moment_it_is_seen_first_writes_what_was_left(node, numbers):
    node.finish(node.rank("for number in range(100): log.info('line %d', number)"))
    agent = node.agent(wait=False)
    node.until((node.base / "a.sock").exists, "the agent's socket")  # it listens, and is still starting
    assert node.end(agent) == 0, node.log("agent")
    assert numbers(node.texts(0)) == list(range(100))


def test_an_agent_told_to_stop_first_writes_what_a_rank_left_that_never_spoke_to_it(node, numbers):
    node.finish(node.rank("for number in range(100): log.info('line %d', number)"))
    (spool,) = {path.parent for path in node.base.glob("spool/*/*/channel")}
    aside = spool.rename(node.base / "aside")
    agent = node.agent()
    assert node.command("status").returncode == 0  # it serves, and has looked for such spools
    aside.rename(spool)
    assert node.end(agent) == 0, node.log("agent")
    assert numbers(node.texts(0)) == list(range(100))
