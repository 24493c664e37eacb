"""The pages that outlive a process are whole wherever a SIGKILL falls."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from rankside.output_page import OutputPage
from rankside.state_page import StatePage

KILLS = 100


def dropping(path: Path) -> Callable[[int], None]:
    page = StatePage(path, create=True)
    return lambda number: page.census([number] * 16, [1] * 16)


def in_memory(path: Path) -> Callable[[int], None]:
    return StatePage(path, create=True).in_memory


def passing_on(path: Path) -> Callable[[int], None]:
    page = OutputPage(path, create=True)
    return lambda number: page.pass_on(1, number)


def killed_while(writing: Callable[[Path], Callable[[int], None]], path: Path) -> None:
    """A process that notes 2, 3, 4, ... and is killed in the midst of it."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        note = writing(path)
        note(2)
        os.write(tell, b"!")
        for number in count(3):
            note(number)
    assert os.read(told, 1) == b"!"
    time.sleep(random.uniform(0, 0.001))  # the instant is the test's subject
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(told)
    os.close(tell)


def unannounced(path: Path) -> int:
    page = StatePage(path)
    found = page.unannounced()
    page.close()
    return min(found.values(), default=0)


def last_in_memory(path: Path) -> int:
    page = StatePage(path)
    found = page.last_in_memory()
    page.close()
    return found


def passed(path: Path) -> int:
    page = OutputPage(path)
    found = page.passed(1)
    page.close()
    return found


@pytest.mark.parametrize(
    ("writing", "read"), [(dropping, unannounced), (in_memory, last_in_memory), (passing_on, passed)]
)
def test_a_kill_in_the_midst_of_a_note_leaves_the_old_figure_or_the_new_one(tmp_path, writing, read):
    for kill in range(KILLS):
        path = tmp_path / str(kill)
        killed_while(writing, path)
        assert read(path) >= 1
