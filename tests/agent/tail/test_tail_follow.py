"""A log that grows, rotates, is cut, vanishes and comes back: each line once, in order, or a word."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankside_agent.tail.assembly import head_of
from rankside_agent.tail.family import Family
from rankside_agent.tail.follow import Follower
from rankside_agent.tail.lines import LIMIT
from rankside_agent.tail.log import Log
from rankside_agent.tail.names import Order
from rankside_agent.tail.piece import Plain

Text = Callable[..., str]


class Watch:
    """A follower with a clock of its own: each poll is a second after the last."""

    def __init__(self, run: Any, log: Log, *, from_now: bool = False) -> None:
        self.run = run
        self.now = 0.0
        clock = self.clock
        if from_now:
            family = Family(log, whole_lines=True)
            newest = next(family.backward(), None)
            before = head_of(newest[1]) if newest else None
            self.follower = Follower(
                log, live=family.live, prints=family.prints, seen=family.older, before=before, clock=clock
            )
        else:
            self.follower = Follower(log, clock=clock)

    def clock(self) -> float:
        return self.now

    def poll(self, times: int = 3) -> list[str]:
        """The texts that came."""
        found = []
        for _ in range(times):
            more = True
            while more:
                records, more = self.follower.poll()
                found += [record.text for record in records]
            self.now += 1.0
        return found


@pytest.fixture
def node(run: Any) -> Path:
    path: Path = run.node()
    return path


@pytest.fixture
def write(run: Any, node: Path, node_text: Text) -> Callable[..., None]:
    """Append numbered records to the live node log."""

    def append(*numbers: int) -> None:
        run.append(node, "".join(node_text(number % 8, f"number {number}") for number in numbers))

    return append


def numbers(*each: int) -> list[str]:
    return [f"number {number}" for number in each]


def test_what_is_appended_comes_once(run: Any, node: Path, write: Any) -> None:
    write(1, 2)
    watch = Watch(run, run.log(node), from_now=True)
    assert watch.poll() == []
    write(3)
    assert watch.poll() == numbers(3)
    write(4, 5)
    assert watch.poll() == numbers(4, 5)
    assert watch.poll() == []


def test_a_log_that_is_not_there_yet_is_read_from_its_first_line(run: Any, node: Path, write: Any) -> None:
    watch = Watch(run, run.log(node))
    assert watch.poll() == []
    write(1, 2)
    assert watch.poll() == numbers(1, 2)


def test_a_log_that_has_rotated_before_it_was_found_is_read_whole(run: Any, node: Path, write: Any) -> None:
    watch = Watch(run, run.log(node))
    write(1)
    run.rotate(node, 1, packed=True)
    write(2)
    run.rotate(node, 2)
    assert watch.poll() == numbers(1, 2)
    write(3)
    assert watch.poll() == numbers(3)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotations", [1, 2, 5])
def test_rotations_between_two_polls_lose_and_double_nothing(
    run: Any, node: Path, write: Any, rotations: int, packed: bool
) -> None:
    write(0)
    run.rotate(node, 1, packed=packed)
    write(1)
    watch = Watch(run, run.log(node), from_now=True)
    for rotation in range(rotations):
        write(2 + 2 * rotation, 3 + 2 * rotation)
        run.rotate(node, 2 + rotation, packed=packed)
    write(100)
    assert watch.poll() == numbers(*range(2, 2 + 2 * rotations), 100)
    write(101)
    assert watch.poll() == numbers(101)


def test_lines_written_just_before_a_rotation_are_read_from_the_renamed_file(
    run: Any, node: Path, write: Any
) -> None:
    write(1)
    watch = Watch(run, run.log(node), from_now=True)
    write(2)
    run.rotate(node, 1)
    assert watch.poll() == numbers(2)
    write(3)
    assert watch.poll() == numbers(3)


def test_a_file_packed_only_later_is_not_taken_for_a_new_one(run: Any, node: Path, write: Any) -> None:
    write(1)
    old = run.rotate(node, 1)
    write(2)
    watch = Watch(run, run.log(node), from_now=True)
    run.pack(old)
    write(3)
    run.rotate(node, 2)
    write(4)
    assert watch.poll() == numbers(3, 4)


def test_a_reused_inode_is_not_taken_for_the_old_file(run: Any, node: Path, write: Any) -> None:
    write(1)
    watch = Watch(run, run.log(node))
    assert watch.poll() == numbers(1)
    for number in range(2, 40):  # unlinking lets the file system give the number away again
        run.rotate(node, number, packed=True).unlink()
        write(number)
        assert watch.poll() == numbers(number)


def test_a_record_is_never_cut_by_its_rotation(run: Any, node: Path, node_text: Text) -> None:
    watch = Watch(run, run.log(node))
    run.append(node, node_text(0, "Traceback:\n  File a\nend"))
    run.rotate(node, 1)
    run.append(node, node_text(0, "after"))
    assert watch.poll() == ["Traceback:\n  File a\nend", "after"]


def test_a_truncated_file_is_read_from_its_beginning_and_said_so(run: Any, node: Path, write: Any) -> None:
    write(1, 2, 3)
    watch = Watch(run, run.log(node), from_now=True)
    os.truncate(node, 0)  # as copytruncate does
    assert watch.poll() == []
    write(4)
    assert watch.poll() == numbers(4)
    assert run.notices == [f"{node} was truncated; starting again from its beginning"]


def test_a_file_truncated_while_its_end_is_being_shown_is_noticed(run: Any, node: Path, write: Any) -> None:
    write(1, 2, 3)
    family = Family(run.log(node), whole_lines=True)
    os.truncate(node, 0)
    write(4)
    watch = Watch(run, run.log(node))
    watch.follower = Follower(run.log(node), live=family.live, prints=family.prints, clock=watch.clock)
    assert watch.poll() == numbers(4)
    assert run.notices == [f"{node} was truncated; starting again from its beginning"]


def test_a_file_truncated_and_grown_beyond_its_old_size_is_noticed(run: Any, node: Path, write: Any) -> None:
    write(1)
    watch = Watch(run, run.log(node), from_now=True)
    os.truncate(node, 0)
    write(*range(2, 30))
    assert watch.poll() == numbers(*range(2, 30))
    assert run.notices == [f"{node} was written anew; starting again from its beginning"]


@pytest.mark.parametrize("seen_between", [0, 1, 2])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_an_agent_that_cuts_its_file_and_writes_it_again_doubles_nothing(
    run: Any, node: Path, write: Any, kept: int, seen_between: int
) -> None:
    write(*range(kept))
    size = node.stat().st_size if node.exists() else 0
    watch = Watch(run, run.log(node))
    write(7, 8)
    assert watch.poll() == numbers(*range(kept), 7, 8)
    os.truncate(node, size)
    assert watch.poll(seen_between) == []
    write(7)
    assert watch.poll(seen_between) == []
    write(8, 9)
    assert watch.poll() == numbers(9)
    assert run.notices == []


@pytest.mark.parametrize("kept", [1, 20])
def test_a_file_that_is_cut_and_goes_on_otherwise_is_followed_from_the_cut(
    run: Any, node: Path, write: Any, kept: int
) -> None:
    write(*range(kept))
    size = node.stat().st_size
    watch = Watch(run, run.log(node))
    write(*range(kept, kept + 9))
    watch.poll()
    os.truncate(node, size)
    assert watch.poll() == []
    write(99)
    assert watch.poll(6) == numbers(99)
    assert run.notices == [f"{node} lost its end and went on otherwise after {size} bytes; following on"]


@pytest.mark.parametrize("rotations", [1, 2])
@pytest.mark.parametrize("seen_between", [0, 1])
def test_what_is_written_again_into_the_next_file_is_not_doubled(
    run: Any, node: Path, write: Any, seen_between: int, rotations: int
) -> None:
    write(0, 1)
    size = node.stat().st_size
    watch = Watch(run, run.log(node))
    write(2, 3, 4)
    assert watch.poll() == numbers(0, 1, 2, 3, 4)
    os.truncate(node, size)
    assert watch.poll() == []
    write(2)
    run.rotate(node, 1)
    assert watch.poll(seen_between) == []
    write(3, 4, 5)
    if rotations == 2:
        run.rotate(node, 2)
        write(6)
    assert watch.poll() == numbers(*([5] if rotations == 1 else [5, 6]))
    assert run.notices == []


def test_a_cut_file_that_is_rotated_and_goes_on_otherwise_is_followed(
    run: Any, node: Path, write: Any
) -> None:
    write(0, 1, 2)
    watch = Watch(run, run.log(node))
    watch.poll()
    os.truncate(node, node.stat().st_size // 3)
    assert watch.poll() == []
    run.rotate(node, 1)
    write(9)
    assert watch.poll(6) == numbers(9)


def test_a_deleted_file_that_is_still_written_to_is_still_read(run: Any, node: Path, node_text: Text) -> None:
    with open(node, "a", buffering=1) as writer:
        writer.write(node_text(0, "a"))
        watch = Watch(run, run.log(node))
        assert watch.poll() == ["a"]
        node.unlink()
        writer.write(node_text(0, "b"))
        assert watch.poll() == ["b"]
    assert run.notices[:1] == [f"{node} is gone; waiting for it to come back"]
    run.append(node, node_text(0, "c"))
    assert watch.poll() == ["c"]


def test_a_file_moved_away_and_back_doubles_nothing(run: Any, node: Path, write: Any) -> None:
    write(1)
    watch = Watch(run, run.log(node))
    assert watch.poll() == numbers(1)
    node.rename(node.with_name("elsewhere"))
    assert watch.poll() == []
    node.with_name("elsewhere").rename(node)
    write(2)
    assert watch.poll() == numbers(2)


def test_a_half_written_line_waits_for_its_rest(run: Any, node: Path, node_text: Text) -> None:
    text = node_text(0, "whole")
    watch = Watch(run, run.log(node))
    run.append(node, text[:50])
    assert watch.poll() == []
    run.append(node, text[50:])
    assert watch.poll() == ["whole"]


def test_a_half_written_line_at_the_start_waits_as_well(
    run: Any, node: Path, write: Any, node_text: Text
) -> None:
    write(1)
    text = node_text(0, "whole")
    run.append(node, text[:50])
    watch = Watch(run, run.log(node), from_now=True)
    run.append(node, text[50:])
    assert watch.poll() == ["whole"]


def test_a_half_written_character_is_whole_in_the_end_and_a_stray_byte_is_replaced(
    run: Any, node: Path, node_text: Text
) -> None:
    line = node_text(0, "损 ").encode()
    watch = Watch(run, run.log(node))
    cut = line.index("损".encode()) + 2
    run.append(node, line[:cut])
    assert watch.poll() == []
    run.append(node, line[cut:-1] + b"\xd0\n")
    assert watch.poll() == ["损 �"]


def test_a_line_left_unfinished_by_a_rotation_is_shown_as_it_is(run: Any, node: Path, write: Any) -> None:
    watch = Watch(run, run.log(node))
    write(1)
    run.append(node, "[2026")
    assert watch.poll() == numbers(1)
    run.rotate(node, 1)
    write(2)
    assert watch.poll() == ["[2026", "number 2"]


def test_further_lines_that_come_later_are_shown_under_their_record(run: Any, level_text: Text) -> None:
    path = run.level(3)
    watch = Watch(run, run.log(path))
    run.append(path, level_text(3, "Traceback:"))
    assert watch.poll() == ["Traceback:"]
    run.append(path, "  File a\n")
    records, _ = watch.follower.poll()
    watch.now += 1
    records += watch.follower.poll()[0]
    assert [(record.text, record.late, record.label) for record in records] == [("  File a", True, "3")]


def test_a_line_of_64_megabytes_takes_a_few_of_memory(run: Any, node: Path, node_text: Text) -> None:
    watch = Watch(run, run.log(node))
    head = node_text(0, "")[:-1]
    with open(node, "w") as file:
        file.write(head)
        for _ in range(64):
            file.write("x" * (1 << 20))
        file.write("\n" + node_text(1, "after"))
    first, second = watch.poll()
    size = len(head) + (64 << 20)
    assert first == "x" * (LIMIT - len(head)) + f" [cut: {size} bytes in all]"
    assert second == "after"


def test_a_listing_that_fails_for_a_moment_costs_a_poll_and_nothing_else(
    run: Any, node: Path, write: Any
) -> None:
    class Flaky(Log):
        failing = [True]  # noqa: RUF012  shared on purpose

        def siblings(self) -> list[Order]:
            if self.failing[0]:
                raise OSError(116, "Stale file handle")
            return super().siblings()

    write(1)
    log = run.log(node)
    flaky = Flaky(log.folder, log.stem, log.kind, log.say)
    flaky.failing[0] = False
    watch = Watch(run, flaky, from_now=True)
    write(2)
    run.rotate(node, 1)
    write(3)
    flaky.failing[0] = True
    with pytest.raises(OSError, match="Stale"):
        watch.poll()
    flaky.failing[0] = False
    assert watch.poll() == numbers(2, 3)


@pytest.mark.parametrize("fate", ["stays", "rotated", "packed", "rotated twice", "deleted"])
def test_a_handle_that_goes_stale_is_taken_up_again_where_it_was(
    run: Any, node: Path, write: Any, fate: str
) -> None:
    class Dying(Plain):
        dead = False

        def read(self, offset: int, count: int) -> bytes:
            if self.dead:
                raise OSError(116, "Stale file handle")
            return super().read(offset, count)

    write(1)
    live = Dying(node)
    watch = Watch(run, run.log(node))
    watch.follower = Follower(run.log(node), live=live, clock=watch.clock)
    assert watch.poll() == numbers(1)
    write(2)
    live.dead = True
    if fate == "deleted":
        node.unlink()
    elif fate != "stays":
        run.rotate(node, 1, packed=fate == "packed")
        write(3)
        if fate == "rotated twice":
            run.rotate(node, 2)
    write(4)
    with pytest.raises(OSError, match="Stale"):
        watch.poll()
    expected = {"stays": (2, 4), "deleted": (4,), "rotated": (2, 3, 4), "packed": (2, 3, 4)}
    assert watch.poll() == numbers(*expected.get(fate, (2, 3, 4)))
    assert bool(run.notices) == (fate == "deleted")


def test_a_rotated_file_deleted_before_it_was_read_is_told(run: Any, node: Path, write: Any) -> None:
    class Deleting(Log):
        def open(self, order: Order) -> Any:
            self.siblings()
            for path in self.folder.glob(f"*{order[0]}*"):
                path.unlink()
            return super().open(order)

    write(1)
    log = run.log(node)
    watch = Watch(run, Deleting(log.folder, log.stem, log.kind, log.say), from_now=True)
    run.rotate(node, 1)
    write(2)
    run.rotate(node, 2)
    write(3)
    assert watch.poll() == numbers(3)
    assert run.notices == [f"{node}: a rotated file was deleted before it could be read"]


def test_a_follower_tells_where_it_is(run: Any, node: Path, write: Any) -> None:
    watch = Watch(run, run.log(node))
    assert "waiting" in repr(watch.follower)
    write(1)
    watch.poll()
    assert f"live at {node.stat().st_size}" in repr(watch.follower)
    watch.follower.close()
