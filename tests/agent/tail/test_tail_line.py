"""What the agent writes is what tail reads."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.lines import Form, Locations
from rankside_agent.tail.line import level_line, local_seconds, master_line, node_line, seconds

AT = 1_767_323_045.25
HEAD = "[20260102 03:04:05][user/team][module     ][ip-10.0.0.7][rank-7/8][INFO]"
LEVEL = f"{HEAD}     [-----------train.py:215] : text"
NODE = "[20260102 03:04:05.123456][rank-7/8][INFO]     [-----------train.py:215] : text"
FURTHER = "[20260102 03:04:05.123456][rank-7/8][INFO]     | second line"
TEXTS = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))


def written(
    text: str = "text", level: str = "INFO", line: int = 215, at: float = AT, **changes: object
) -> tuple[bytes, bytes]:
    """What the agent writes into a level file and into the node log, without the last newline."""
    info = {
        "label": "7",
        "rank": 7,
        "world_size": 8,
        "parent": None,
        "user": "user",
        "team": "team",
        "module": "pretrain",
        "role": "worker",
        "node_ip": "10.0.0.7",
        "pid": 4711,
        **changes,
    }
    level_file, node_log = Form(info, Locations())(at, level, "train", line, text)
    return level_file[:-1].encode(), node_log[:-1].encode()


def test_a_level_line_gives_all_its_fields() -> None:
    head = level_line(LEVEL.encode())
    assert head is not None
    assert head == ("20260102 03:04:05", "10.0.0.7", "7", "8", "INFO", "train.py:215", "text")


def test_a_node_line_gives_microseconds() -> None:
    head = node_line(NODE.encode())
    assert head is not None
    assert (head.stamp, head.label, head.text) == ("20260102 03:04:05.123456", "7", "text")


def test_a_further_line_of_the_node_log_has_no_location_and_continues_its_record() -> None:
    first, further = node_line(NODE.encode()), node_line(FURTHER.encode())
    assert first is not None
    assert further is not None
    assert further.location is None
    assert further.text == "second line"
    assert further.continues(first)


def test_a_further_line_that_quotes_a_head_is_still_a_further_line() -> None:
    head = node_line(b"[20260102 03:04:05.123456][rank-7/8][INFO]     | [x] [train.py:1] : quoted")
    assert head is not None
    assert head.location is None
    assert head.text == "[x] [train.py:1] : quoted"


@pytest.mark.parametrize("line", [NODE, FURTHER, "plain", "", "[20260102 03:04:05]", "[" * 1000, "\x00" * 99])
def test_a_level_file_has_no_other_heads(line: str) -> None:
    assert level_line(line.encode()) is None


def test_the_older_level_padding_of_primus_reads_as_well() -> None:
    head = level_line(LEVEL.replace("[INFO]     ", "[INFO ] ").encode())
    assert head is not None
    assert head.level == "INFO"


def test_zeros_which_a_network_disk_left_before_a_line_do_not_hide_it() -> None:
    assert level_line(b"\0" * 300 + LEVEL.encode()) == level_line(LEVEL.encode())


def test_the_launchers_line_names_its_node() -> None:
    head = master_line(written("started", role="master", label="0", world_size=1)[0])
    assert head is not None
    assert (head.label, head.address, head.text) == ("node-0", "10.0.0.7", "started")


@given(
    text=TEXTS, level=st.sampled_from(["INFO", "CRITICAL", "Level 15", "NOTICE"]), line=st.integers(0, 10**6)
)
def test_every_text_comes_back_as_it_was_written(text: str, level: str, line: int) -> None:
    level_file, node_log = written(text, level, line)
    for head in (level_line(level_file), node_line(node_log)):
        assert head is not None
        assert (head.text, head.level, head.location) == (text, level, f"train.py:{line}")
        assert abs((seconds(head.stamp) or 0) - local_seconds(datetime.fromtimestamp(AT))) < 1


@given(TEXTS, TEXTS)
def test_a_text_of_two_lines_gives_a_first_and_a_further_line(first: str, second: str) -> None:
    heads = [node_line(line) for line in written(f"{first}\n{second}")[1].split(b"\n")]
    assert [head.text for head in heads if head] == [first, second]
    assert [head.location for head in heads if head] == ["train.py:215", None]


def test_an_unknown_rank_goes_by_host_and_pid() -> None:
    for line, parse in zip(written(rank=None, label="gpu-node.a-4711"), (level_line, node_line), strict=True):
        head = parse(line)
        assert head is not None
        assert (head.label, head.world) == ("gpu-node.a-4711", "?")


def test_brackets_in_names_do_not_hide_the_record() -> None:
    for line, parse in zip(
        written(user="a][b", team="]", level="odd]"), (level_line, node_line), strict=True
    ):
        head = parse(line)
        assert head is not None
        assert (head.level, head.label, head.text) == ("odd]", "7", "text")


def test_what_the_agent_writes_for_no_time_is_no_time() -> None:
    for line, parse in zip(written(at=float("nan")), (level_line, node_line), strict=True):
        head = parse(line)
        assert head is not None
        assert (seconds(head.stamp), head.text) == (None, "text")


def test_seconds_follow_the_written_local_time() -> None:
    assert seconds("20260102 03:04:05.250000") == local_seconds(datetime(2026, 1, 2, 3, 4, 5, 250000))


@pytest.mark.parametrize("stamp", ["", "-------- --:--:--", "20261302 03:04:05", "20260102 03:04:61"])
def test_what_is_no_time_is_none(stamp: str) -> None:
    assert seconds(stamp) is None


@pytest.mark.parametrize(
    "line",
    [
        "[20260102 03:04:05]" + "[" * 500_000,
        "[20260102 03:04:05][" + "][ip-][rank-" * 40_000,
        "[20260102 03:04:05.1][rank-1/8][INFO] [" + "-" * 500_000,
        "[20260102 03:04:05.1][rank-1/8][INFO]" + " " * 500_000,
        "(" + "ip=" * 200_000,
    ],
)
def test_a_hostile_line_costs_no_more_than_its_length(line: str) -> None:
    begun = time.process_time()
    assert level_line(line.encode()) is None
    assert node_line(line.encode()) is None
    assert master_line(line.encode()) is None
    assert time.process_time() - begun < 2.0  # backtracking over such lengths would take hours
