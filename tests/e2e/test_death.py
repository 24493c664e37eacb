"""What a rank or the agent leaves behind when it is killed: nothing is lost and nothing is twice."""

from __future__ import annotations

import random
import signal

import pytest

SPEAK = """
    for number in range({count}):
        log.info("line %d", number)
        if number % 50 == 0:
            mon.metrics({{"loss": 1.0 / (number + 1)}}, step=number)
            time.sleep({pause})
    """


def test_a_rank_killed_right_after_a_log_call_has_its_last_line_in_the_file_20_of_20(node, numbers):
    node.agent()
    for attempt in range(20):
        body = f"""
            for number in range({attempt * 7 + 1}):
                log.info("line %d", number)
            log.error("last words of {attempt}")
            os.kill(os.getpid(), signal.SIGKILL)
            """
        node.finish(node.rank(body, rank=attempt, world=20), code=-signal.SIGKILL)
    for attempt in range(20):
        node.until(lambda a=attempt: f"last words of {a}" in node.texts(a, level="error"), "last words")
        assert numbers(node.texts(attempt)) == list(range(attempt * 7 + 1))
        node.until(
            lambda a=attempt: any("without a goodbye: vanished" in t for t in node.texts(a)), "the end"
        )


def test_an_agent_killed_in_mid_run_and_restarted_writes_every_line_once_in_order(node, numbers):
    agent = node.agent()
    ranks = [node.rank(SPEAK.format(count=6000, pause=0.02), rank=r, world=3) for r in range(3)]
    chance = random.Random(7)
    for _ in range(6):
        seen = len(node.lines(0))
        node.until(
            lambda n=seen: len(node.lines(0)) > n + chance.randrange(300) or ranks[0].poll() is not None,
            "lines",
        )
        node.end(agent, signal.SIGKILL)
        agent = node.agent()
    node.finish(*ranks)
    node.until(node.all_delivered, "the run finished")
    for rank in range(3):
        for level in ("debug", "info"):
            assert numbers(node.texts(rank, level=level)) == list(range(6000))
    together = [line for line in node.node_lines() if "] : line " in line]
    assert len(together) == 3 * 6000


def test_rank_and_agent_killed_together_lose_nothing(node, numbers):
    agent = node.agent()
    rank = node.rank(SPEAK.format(count=4000, pause=0.01) + "\n    os.kill(os.getpid(), signal.SIGKILL)")
    node.until(lambda: len(node.lines(0)) > 100, "lines")
    node.end(agent, signal.SIGKILL)
    node.finish(rank, code=-signal.SIGKILL)
    node.agent()
    node.until(lambda: any("vanished" in text for text in node.texts(0)), "recovery")
    assert numbers(node.texts(0)) == list(range(4000))


@pytest.mark.parametrize("ending", ["return", "sys.exit(0)", "os._exit(0)"])
def test_a_thousand_lines_and_fall_off_the_end(node, numbers, ending):
    node.agent()
    body = f"""
        def last():
            for number in range(1000):
                log.info("line %d", number)
            {ending}
        last()
        """
    node.finish(node.rank(body))
    node.until(lambda: len(numbers(node.texts(0))) == 1000, "all lines")
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(1000))


def test_an_uncaught_exception_is_in_the_file_with_its_traceback(node):
    node.agent()
    node.finish(node.rank("def step():\n    raise RuntimeError('no more {memory}')\nstep()"), code=1)
    node.until(node.all_delivered, "the run finished")
    errors = node.lines(0, level="error")
    assert "uncaught exception" in errors[0]
    assert errors[-1] == "RuntimeError: no more {memory}"
    assert '"status": "failed"' in next(node.state.glob("done/*/run.json")).read_text()


def test_lines_of_forked_children_arrive_with_their_pid_beside_two_logging_threads(node, numbers):
    node.agent()
    body = """
        import threading
        stop = threading.Event()
        said = [0, 0]
        def speak(which):
            while not stop.is_set():
                logging.getLogger("thread%d" % which).info("line %d", said[which])
                said[which] += 1
                time.sleep(0.0005)
        threads = [threading.Thread(target=speak, args=(w,)) for w in (0, 1)]
        for each in threads: each.start()
        for turn in range(10):
            children = []
            for child in range(4):
                pid = os.fork()
                if pid == 0:
                    for number in range(10):
                        log.info("child %d", number)
                    if child % 2:
                        os._exit(0)
                    sys.exit(0)
                children.append(pid)
            for pid in children:
                os.waitpid(pid, 0)
        stop.set()
        for each in threads: each.join()
        mon.event("said", zero=said[0], one=said[1])
        """
    node.finish(node.rank(body))
    node.until(node.all_delivered, "the run finished")
    lines = node.lines(0)
    told = next(line for line in lines if "event said" in line)
    for which, name in ((0, "zero"), (1, "one")):
        count = int(told.split(f"{name}=")[1].split()[0])
        mine = [line.split("] : ")[1] for line in lines if f"thread{which}.py" in line]
        assert numbers(mine) == list(range(count))
    children = [line.split("] : ")[1] for line in lines if "] : [pid " in line]
    assert len(children) == 10 * 4 * 10
    assert len({text.split("]")[0] for text in children}) == 40


def test_ctrl_c_ends_a_rank_with_the_status_it_has_without_us(node, numbers):
    node.agent()
    rank = node.rank("log.info('line 1'); signal.raise_signal(signal.SIGINT)")
    node.finish(rank, code=-signal.SIGINT)
    node.until(node.all_delivered, "the run put away")

    assert numbers(node.texts()) == [1]
