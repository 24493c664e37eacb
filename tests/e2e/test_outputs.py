"""Output of the descriptors 1 and 2, from real ranks into the files of a real agent, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

BEGIN = "mon.capture_logging(fds=True)\n"


def helpers(node) -> list[int]:
    """The processes that read captured output of this node's ranks: each works in its folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            here = os.readlink(process / "cwd")
            if here.startswith(f"{node.base}/spool") and b"output_tail" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def left(node) -> list[Path]:
    return list((node.base / "spool").glob("*/*.outputs"))


def test_rank_and_helper_killed_together_leave_their_last_words_to_the_agent(node, numbers):
    node.agent()
    body = """
        for number in range(500):
            os.write(1 + number % 2, b"line %d\\n" % number)
        os.write(1, b"half a l")
        time.sleep(60)
        """
    rank = node.rank(BEGIN + dedent(body))
    node.until(lambda: "line 499" in node.texts(0), "lines")
    for pid in helpers(node):
        os.kill(pid, signal.SIGSTOP)  # so that what comes now is read by nobody
    node.end(rank, signal.SIGKILL)
    for pid in helpers(node):
        os.kill(pid, signal.SIGKILL)
    node.until(lambda: "half a l" in node.texts(0), "the last words")
    node.until(lambda: not left(node), "the folder's end")
    assert sorted(numbers(node.texts(0))) == list(range(500))
    assert numbers(node.texts(0, level="warning")) == list(range(1, 500, 2))


def test_output_arrives_once_though_the_agent_is_killed_and_untagged(node, numbers):
    agent = node.agent()
    body = """
        for number in range(3000):
            print("line", number)
            if number % 30 == 0:
                time.sleep(0.02)
        """
    rank = node.rank(BEGIN + dedent(body))
    node.until(lambda: len(node.lines(0)) > 300, "lines")
    node.end(agent, signal.SIGKILL)
    node.agent()
    node.finish(rank)
    node.until(node.all_delivered, "the run finished")
    assert numbers(node.texts(0)) == list(range(3000))
    assert not any("[pid " in line for line in node.lines(0))
    assert numbers(node.log("rank-0").split("\n")) == list(range(3000))
    assert not left(node)


def test_two_ranks_of_torchrun_and_a_child_of_each_print_into_their_own_files(node):
    node.agent()
    script = node.base / "train.py"
    script.write_text(
        f"""
import os, subprocess, sys
import rankside
mon = rankside.init(exp_root={str(node.exp)!r})
mon.capture_logging(fds=True)
print("printed by", mon.rank)
subprocess.run(["sh", "-c", "echo child of $RANK >&2"])
if mon.rank:
    while not os.path.exists("said"):  # else torchrun ends rank 0 before it has begun
        pass
    os.abort()
open("said", "w")
"""
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--master-port=0",
        str(script),
    ]
    done = subprocess.run(command, env=node.env, cwd=node.base, capture_output=True, text=True, timeout=120)
    assert "printed by 0" in done.stdout, done.stderr
    assert "printed by 1" in done.stdout
    node.until(lambda: not left(node) and node.all_delivered(), "the run finished")
    for rank in range(2):
        assert f"printed by {rank}" in node.texts(rank)
        assert f"child of {rank}" in node.texts(rank, level="warning")
        assert not any(f" {1 - rank}" in text for text in node.texts(rank) if "printed" in text)
