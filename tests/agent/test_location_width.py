"""The place of a record is padded to the longest that was seen, as in Primus: at once, and after a crash too.

Separate from the tests of lines because a width lives longer than a line's form, and longer than an agent.
"""

from __future__ import annotations

import re
from typing import Any

from rankside.wire import Kind
from rankside_agent.lines import Form, Locations

Scene = Any  # of conftest.py
AT = 1.7e9
LONG = "a_module_with_a_rather_long_name"
WIDE = len(f"{LONG}.py:7")


def width(line: str) -> int:
    """Of the field, without its brackets."""
    found = re.search(r"\[(-*\w+\.py:\d+)\] : ", line)
    assert found, line
    return len(found[1])


def said(file: str, level: int = 20) -> tuple[Kind, Any]:
    return Kind.LOG, (AT, level, "INFO" if level == 20 else "DEBUG", file, 7, "x")


def widths(scene: Scene, module: str = "pretrain", level: str = "debug") -> list[int]:
    return [width(line) for line in scene.text(scene.path(module=module, level=level)).splitlines()]


def test_a_place_seen_in_the_same_second_is_widened_too(info):
    form = Form(info(0), Locations())
    before, long, after = (form(AT, "INFO", file, 7, "x")[0] for file in ("train", LONG, "train"))
    assert [width(line) for line in (before, long, after)] == [23, WIDE, WIDE]


def test_it_is_kept_from_module_to_module(scene: Scene):
    rank = scene.channel()
    scene.put(rank, said("train"), said(LONG))
    scene.journal.module(rank, "sft")
    scene.put(rank, said("train"))
    scene.drain()
    assert widths(scene) + widths(scene, "sft") == [23, WIDE, WIDE]


def test_records_that_no_file_takes_widen_it_too(scene: Scene):
    rank = scene.channel(file_level=20)
    scene.put(rank, said("train"), said(LONG, level=10), said("train"))
    scene.drain()
    assert widths(scene, level="info") == [23, WIDE]


def test_each_rank_has_its_own(scene: Scene):
    one, other = scene.channel(0), scene.channel(1)
    scene.put(one, said(LONG))
    scene.put(other, said("train"))
    scene.drain()
    assert width(scene.text(scene.path(1))) == 23


def test_another_agent_goes_on_with_it(scene: Scene):
    rank = scene.channel()
    scene.put(rank, said(LONG))
    scene.drain()
    scene.files.save()
    scene.take_up()
    scene.put(rank, said("train"))
    scene.drain()
    assert widths(scene) == [WIDE, WIDE]


def test_what_is_written_again_after_a_crash_reads_as_it_did(scene: Scene):
    rank = scene.channel()
    scene.put(rank, said("train"))
    scene.drain()
    scene.files.save()
    scene.put(rank, said("train"), said(LONG))
    scene.drain()  # and no checkpoint after it
    scene.take_up()
    scene.drain()
    assert widths(scene) == [23, 23, WIDE]


def test_a_checkpoint_in_the_middle_of_a_step_is_of_before_it(scene: Scene):
    rank = scene.channel()
    scene.put(rank, said("train"), said(LONG))
    scene.drain()  # the first step makes the files, with a checkpoint before their first byte
    scene.take_up()
    scene.drain()
    assert widths(scene) == [23, WIDE]
