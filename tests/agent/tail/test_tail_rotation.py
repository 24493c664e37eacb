"""A process follows a log which another one writes and rotates: each line once, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]
WRITER = Path(__file__).with_name("rotating_writer.py")


def write(
    run: Any, last: int, per_file: int, packing: str, batch: int, pause: float
) -> subprocess.Popen[bytes]:
    arguments = [run.logs / "pretrain" / "node-a.log", last, per_file, packing, batch, pause]
    return subprocess.Popen([sys.executable, str(WRITER), *map(str, arguments)])


def numbers(lines: list[str]) -> list[int]:
    return [int(json.loads(line)["text"].split()[1]) for line in lines]


@pytest.mark.parametrize(
    ("last", "per_file", "packing", "batch", "pause"),
    [
        (100_000, 2000, "gzip", 100, 0.002),  # the way of real logs: many polls a file
        (8_000, 20, "gzip", 20, 0.001),  # several rotations between two polls
        (8_000, 20, "plain", 7, 0.0),
    ],
)
def test_followers_from_before_and_from_the_middle_see_each_line_once(
    run: Any, tail: Start, last: int, per_file: int, packing: str, batch: int, pause: float
) -> None:
    before = tail(run.root, "-f", "-n", "0", "--json")
    before.wait_for_notice("waiting")
    writer = write(run, last, per_file, packing, batch, pause)
    before.wait_for(lambda: before.lines)
    middle = tail(run.root, "-f", "-n", "1000000", "--json")
    for each in (before, middle):
        each.wait_for_line(f'"number {last}"')
        assert each.interrupt() == 0
        assert numbers(each.lines) == list(range(1, last + 1))
    assert writer.wait(20) == 0


def test_an_outside_logrotate_with_copytruncate_is_followed_and_told(
    run: Any, tail: Start, node_text: Any
) -> None:
    path = run.node()
    run.append(path, "".join(node_text(0, f"number {number}") for number in range(50)))
    follower = tail(run.root, "-f", "-n", "1", "--json")
    follower.wait_for_line('"number 49"')
    path.with_name("node-a.log.1").write_bytes(path.read_bytes())
    os.truncate(path, 0)
    run.append(path, node_text(0, "number 50"))
    follower.wait_for_line('"number 50"')
    follower.wait_for_notice("starting again from its beginning")
    run.append(path, node_text(0, "number 51"))
    follower.wait_for_line('"number 51"')
    assert follower.interrupt() == 0
    assert numbers(follower.lines) == [49, 50, 51]


def test_new_ranks_modules_hosts_and_attempts_show_up_while_following(run: Any, tail: Start) -> None:
    run.say(0, "first")
    follower = tail(run.root, "-f")
    follower.wait_for_line("first")
    for text, where in (
        ("another rank", {}),
        ("another host", {"host": "b"}),
        ("another module", {"module": "sft"}),
        ("another attempt", {"module": "attempt-2/pretrain"}),
    ):
        run.say(9, text, **where)
        follower.wait_for_line(text)
    assert follower.interrupt() == 0
    assert len(follower.lines) == 5
    assert follower.notices == []


def test_new_ranks_of_a_folder_without_a_node_log_show_up(run: Any, tail: Start, level_text: Any) -> None:
    run.append(run.level(0), level_text(0, "first"))
    follower = tail(run.logs / "pretrain", "-f")
    follower.wait_for_line("first")
    run.append(run.level(1), level_text(1, "second"))
    follower.wait_for_line("second")
    assert follower.interrupt() == 0


def test_eight_ranks_that_fail_at_once_are_folded_while_following(
    run: Any, tail: Start, node_text: Any
) -> None:
    run.append(run.node(), node_text(0, "start"))
    follower = tail(run.root, "-f", "-n", "1")
    follower.wait_for_line("start")
    trace = "Traceback (most recent call last):\n" + "  File x\n" * 28 + "RuntimeError: boom"
    texts = [trace if rank != 5 else trace.replace("boom", "odd") for rank in range(8)]
    run.append(
        run.node(),
        "".join(node_text(rank, text, f"20260102 12:00:05.00{rank}000") for rank, text in enumerate(texts)),
    )
    follower.wait_for_line("odd")
    assert follower.interrupt() == 0
    assert [line.split(" |")[0].split(")")[0] for line in follower.lines[1:31]] == ["ranks 0-4,6-7 (7x"] * 30
    assert all(line.startswith("rank 5 ") for line in follower.lines[31:])
    assert len(follower.lines) == 61


def test_a_character_written_in_two_halves_is_whole(run: Any, tail: Start, node_text: Any) -> None:
    line = node_text(0, "loss 損").encode()
    run.append(run.node(), node_text(0, "start").encode() + line[:-2])
    follower = tail(run.root, "-f")
    follower.wait_for_line("start")
    run.append(run.node(), line[-2:] + node_text(1, "stray X").encode().replace(b"X", b"\xd0"))
    follower.wait_for_line("stray")
    assert follower.interrupt() == 0
    assert [text.split("| ")[1] for text in follower.lines] == ["start\n", "loss 損\n", "stray �\n"]
