"""A process that never found room for a spool: what it lost is told when it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from rankside import wire
from rankside.leftover import Leftover
from rankside.wire import Kind

BODY = """
    import os, sys, rankside
    given = {"rank": 0, "world_size": 1, "flush_seconds": 0.2}
    mon = rankside.init(exp_root=sys.argv[1], endpoint="ipc://" + sys.argv[1] + "/a.sock", **given)
    for number in range(5):
        mon.log("line %d" % number)
    if sys.argv[3] == "room":
        os.unlink(sys.argv[2] + "/stone")
    mon.close()
    """


@pytest.fixture
def full(tmp_path):
    """A small disk without any room."""
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    subprocess.run(["dd", "if=/dev/zero", f"of={disk}/stone", "bs=4k"], capture_output=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def leave(tmp_path, full, room):
    env = {**os.environ, "RANKSIDE_SPOOL_DIR": str(full)}
    command = [sys.executable, "-c", textwrap.dedent(BODY), str(tmp_path), str(full), room]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_with_room_at_the_end_it_is_announced_as_any_loss_is(tmp_path, full):
    leave(tmp_path, full, "room")
    (channel,) = full.glob("*/*/channel")
    bodies = [
        f[wire.HEAD.size :] for _, kind, f in Leftover(channel.parent).frames(0) if kind == Kind.DROPPED
    ]
    assert [wire.unpack(body)[1] for body in bodies] == [{"log": 5}]


def test_without_it_is_said_on_stderr(tmp_path, full):
    assert "5 records are lost: there was no room for a spool to the end" in leave(tmp_path, full, "none")
