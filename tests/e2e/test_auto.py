"""endpoint="auto": an agent is started for the node, one for all ranks, and leaves when all is delivered."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

LINES = "for number in range(100): log.info('line %d', number)"
# The default socket lies below /tmp and may be in use by this very user: ranks and agent are told another
# place by the one means that reaches both, a sitecustomize on their path.
ELSEWHERE = """
from pathlib import Path
from rankside import endpoint
endpoint.runtime_dir = lambda: Path({base!r})
endpoint.SERVICE_SOCKET = "/nonexistent/agent.sock"
"""


def auto(node, more=""):
    """What makes a rank of this node look for an agent at `node.base`."""
    folder = node.base / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ELSEWHERE.format(base=str(node.base)) + more)
    config = node.base / "agent.yaml"
    config.write_text("idle_exit_seconds: 1\nfinish_after_seconds: 0.5\n")
    return {"PYTHONPATH": str(folder), "RANKSIDE_CONFIG": str(config), "RANKSIDE_ENDPOINT": "auto"}


def test_eight_ranks_that_start_together_get_one_agent_that_leaves_when_done(node, numbers):
    env = auto(node)
    node.finish(*(node.rank(LINES, rank=rank, world=8, **env) for rank in range(8)))
    log = node.base / "agent.log"
    node.until(lambda: log.exists() and "stopped" in log.read_text(), "the agent to leave by itself")
    pids = re.findall(r"agent, pid (\d+)", log.read_text())
    assert len(pids) == 1
    node.until(lambda: not Path(f"/proc/{pids[0]}").exists(), "its process to end")
    for rank in range(8):
        assert numbers(node.texts(rank)) == list(range(100))


def test_an_agent_killed_in_mid_run_is_started_again_by_the_ranks(node, numbers):
    env = auto(node)
    body = """
        for number in range(300):
            log.info("line %d", number)
            if number == 100:
                open("at-100", "w").close()
                while not os.path.exists("go"): time.sleep(0.02)
        """
    rank = node.rank(body, **env)
    log = node.base / "agent.log"
    node.until(lambda: (node.base / "at-100").exists() and "line 99" in node.texts(0), "the first lines")
    first = int(re.findall(r"agent, pid (\d+)", log.read_text())[0])
    os.kill(first, signal.SIGKILL)
    (node.base / "go").touch()
    node.finish(rank)
    node.until(lambda: "stopped" in log.read_text(), "the second agent to leave")
    assert len(re.findall(r"agent, pid (\d+)", log.read_text())) == 2
    assert numbers(node.texts(0)) == list(range(300))


def test_without_an_installed_agent_training_goes_on_and_is_told_once(node):
    env = auto(node, "endpoint._agent_command = lambda: None\n")
    node.finish(node.rank(LINES, **env))
    assert node.log("rank-0").count("pip install 'rankside[agent]'") == 1
