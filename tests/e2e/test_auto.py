"""endpoint="auto": an agent is started for the node, one for all ranks, and leaves when all is delivered."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

SCRIPT = """
    import sys, rankside
    from rankside import endpoint
    here = sys.argv[1]
    endpoint.runtime_dir = lambda: __import__("pathlib").Path(here)
    mon = rankside.init(exp_root=here + "/exp", rank=int(sys.argv[2]), world_size=8)
    for number in range(100):
        mon.log("line %d" % number)
    mon.close()
    """


def test_eight_ranks_that_start_together_get_one_agent_that_leaves_when_done(node, numbers):
    config = node.base / "agent.yaml"
    config.write_text("idle_exit_seconds: 1\nfinish_after_seconds: 0.5\n")
    script = node.base / "auto.py"
    script.write_text(textwrap.dedent(SCRIPT))
    env = {**node.env, "RANKSIDE_CONFIG": str(config)}
    # the default endpoint lies below /tmp and is this user's real one; the agent is told of another by its
    # settings, which is what start_agent hands on
    del env["RANKSIDE_ENDPOINT"]
    wrapper = node.base / "rankside_sitecustomize"
    wrapper.mkdir()
    (wrapper / "sitecustomize.py").write_text(
        f"from rankside import endpoint\nfrom pathlib import Path\nendpoint.runtime_dir = lambda: Path({str(node.base)!r})\n"
        "endpoint.SERVICE_SOCKET = '/nonexistent/agent.sock'\n"
    )
    env["PYTHONPATH"] = str(wrapper)
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(node.base), str(rank)], env=env, cwd=node.base)
        for rank in range(8)
    ]
    node.started += ranks
    node.finish(*ranks)
    log = node.base / "agent.log"
    node.until(lambda: log.exists() and "stopped" in log.read_text(), "the agent to leave by itself")
    assert log.read_text().count("listens on") == 1
    for rank in range(8):
        assert numbers(node.texts(rank)) == list(range(100))
    pids = _pids(log.read_text())
    node.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "its process to end")


def _pids(text: str) -> list[int]:
    return [int(part.split(",")[0]) for part in text.split("agent, pid ")[1:]]


def test_without_an_installed_agent_training_goes_on_and_is_told_once(node):
    body = "import importlib.util\nfor n in range(10): mon.log('line')\n"
    env = {"RANKSIDE_ENDPOINT": "auto", "PATH": "/nonexistent", "HOME": os.environ.get("HOME", "/")}
    script = f"""
        from rankside import endpoint
        from pathlib import Path
        endpoint.runtime_dir = lambda: Path({str(node.base)!r})
        endpoint.SERVICE_SOCKET = "/nonexistent/agent.sock"
        endpoint._agent_command = lambda: None
        """
    pre = node.base / "pre"
    pre.mkdir()
    (pre / "sitecustomize.py").write_text(textwrap.dedent(script))
    node.finish(node.rank(body, PYTHONPATH=str(pre), **env))
    assert node.log("rank-0").count("pip install 'rankside[agent]'") == 1
