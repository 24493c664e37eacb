"""A remark as it is shown: long words are cut, a command never."""

from __future__ import annotations

from rankside_agent import remarks


def test_words_are_cut_at_the_end_and_a_command_is_whole():
    command = f"    wandb sync '/{'x' * 500}'"
    shown = list(remarks.lines(f"{'w' * 400}\n{command}\nmore", 300))
    assert shown == [f"{'w' * 300}...", command, "more"]


def test_nothing_steers_the_terminal():
    assert list(remarks.lines("a\x1b[2Jb\n    c\x1b]0;t\x07", 300)) == ["a\\x1b[2Jb", "    c\\x1b]0;t\\x07"]
