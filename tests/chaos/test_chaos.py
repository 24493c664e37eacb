"""Seeded runs of eight ranks, an agent and sinks, killed, frozen, starved and restarted: all is there.

A finding names its seed, which plays again by `python -m tests.chaos.drive --seed N`, and the folder it left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# The short form has two that need few seconds, and between them kill, freeze, fill a disk and lose files
SHORT = (3, 8)
LONG = range(200)
SEEDS = LONG if os.environ.get("RANKSIDE_CHAOS") == "long" else SHORT


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seeded_run_loses_and_doubles_nothing(seed: int):
    command = [sys.executable, "-m", "tests.chaos.drive", "--seed", str(seed)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
