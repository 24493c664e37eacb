"""The Slurm script with a stand-in for srun: an agent of the job's own serves the training, and both end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).parents[2]
JOB = f"9{os.getpid()}"


@pytest.mark.parametrize("late", [0, 3])
def test_the_slurm_script_runs_agent_and_training_and_leaves_nothing_behind(node, numbers, late):
    programs = node.base / "bin"
    programs.mkdir()
    (programs / "srun").write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n')
    (programs / "rankside").write_text(
        f'#!/bin/bash\nsleep {late}\nexec {sys.executable} -m rankside_agent "$@"\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    train = node.base / "train.py"
    train.write_text(
        "import rankside\n"
        f"mon = rankside.init(exp_root={str(node.exp)!r}, rank=0, world_size=1, disable_tensorboard=False)\n"
        "with mon:\n"
        "    for number in range(100):\n"
        "        mon.log(f'line {number}')\n"
        "        mon.metrics({'loss': number}, step=number)\n"
    )
    env = {**node.env, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": JOB}
    done = subprocess.run(
        ["bash", str(ROOT / "deploy/slurm.sh"), sys.executable, str(train)],
        env=env,
        cwd=node.base,
        capture_output=True,
        text=True,
        timeout=60,
    )
    try:
        assert done.returncode == 0, done.stderr
        assert numbers(node.texts(0)) == list(range(100))
        shown = EventAccumulator(str(node.exp / "tensorboard"), size_guidance={"scalars": 0}).Reload()
        assert [point.step for point in shown.Scalars("loss")] == list(range(100))
        pid = int(re.findall(r"agent, pid (\d+)", done.stderr)[0])
        assert not Path(f"/proc/{pid}").exists()
    finally:
        shutil.rmtree(f"/var/tmp/rankside-{os.getuid()}/job-{JOB}", ignore_errors=True)
        for left in Path(f"/tmp/rankside-{os.getuid()}").glob(f"job-{JOB}*"):
            left.unlink()
