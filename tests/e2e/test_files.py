"""What a disk and a person can do to log files while they are written."""

from __future__ import annotations

import os

SPEAK = """
    for number in range(400):
        log.info("line %d", number)
        if number % 100 == 99:
            open("at-%d" % number, "w").close()
            while not os.path.exists("go-%d" % number): time.sleep(0.01)
    """


def test_a_file_deleted_in_mid_run_comes_back_and_the_others_do_not_notice(node, numbers):
    node.agent()
    rank = node.rank(SPEAK)
    _stop_at(node, 99)
    node.until(lambda: "line 99" in node.texts(0), "the first hundred")
    (node.exp / "logs/pretrain/rank-0/debug.log").unlink()
    _go_on(node, 99, 199, 299, 399)
    node.finish(rank)
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(100, 400))
    assert numbers(node.texts(0, level="info")) == list(range(400))


def test_a_file_on_a_full_device_costs_the_others_nothing_and_catches_up(node, numbers):
    node.agent()
    folder = node.exp / "logs/pretrain/rank-0"
    folder.mkdir(parents=True)
    os.symlink("/dev/full", folder / "debug.log")
    rank = node.rank(SPEAK)
    _stop_at(node, 99)
    node.until(lambda: "line 99" in node.texts(0, level="info"), "the healthy file")
    status = node.command("status", "--json").stdout
    assert "waiting for" in status
    (folder / "debug.log").unlink()
    _go_on(node, 99, 199, 299, 399)
    node.finish(rank)
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(400))
    assert numbers(node.texts(0, level="info")) == list(range(400))
    assert node.log("agent").count("debug.log") <= 3  # told, and not told again and again


def test_rotation_loses_and_doubles_nothing_across_kills_of_the_agent(node, numbers):
    config = node.base / "agent.yaml"
    config.write_text("rotation_bytes: 200000\ngzip_rotated: false\n")
    agent = node.agent("--config", str(config))
    body = """
        for number in range(5000):
            log.info("line %d %s", number, "x" * 400)
            if number % 20 == 0:
                time.sleep(0.01)
        """
    rank = node.rank(body)
    for _ in range(5):
        seen = len(node.lines(0))
        node.until(lambda n=seen: len(node.lines(0)) > n + 200 or rank.poll() is not None, "lines")
        node.end(agent, 9)
        agent = node.agent("--config", str(config))
    node.finish(rank)
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(5000))
    rotated = list((node.exp / "logs/pretrain/rank-0").glob("debug.2*.log"))
    assert len(rotated) > 5


def _stop_at(node, number):
    node.until((node.base / f"at-{number}").exists, f"line {number}")


def _go_on(node, *numbers):
    for number in numbers:
        (node.base / f"go-{number}").touch()


def test_a_state_folder_removed_under_a_living_agent_is_made_anew_and_no_line_is_lost(node, numbers):
    agent = node.agent()
    rank = node.rank(
        """
        for i in range(1, 501):
            log.info("line %d", i)
            if i == 100:
                while not os.path.exists("go on"): time.sleep(0.01)
        """
    )
    node.until(lambda: len(numbers(node.texts(0))) == 100, "the first lines are there")
    node.state.rename(node.base / "removed")  # at once, and not file by file
    (node.base / "go on").touch()
    node.finish(rank)
    node.until(node.all_delivered, "all is delivered")
    assert agent.poll() is None
    assert numbers(node.texts(0)) == list(range(1, 501))
    assert "was removed while this agent lives" in node.log("agent")
    assert sorted(path.name for path in node.state.iterdir()) == ["agent-id", "done", "lock", "runs"]
