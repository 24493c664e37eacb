"""A log reads as one, over rotated and packed files, from either end, and only as far as asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from rankside_agent.tail.family import Family
from rankside_agent.tail.log import Log
from rankside_agent.tail.names import LIVE, Order, Position
from rankside_agent.tail.piece import Piece

Text = Callable[..., str]


@pytest.fixture
def numbered(run: Any, node_text: Text) -> Log:
    """Records 0 to 39: two packed files, one plain, the live one; ten in each."""
    path = run.node()
    for number in range(40):
        run.append(path, node_text(number % 8, f"{number}\nmore of {number}"))
        if number % 10 == 9 and number < 39:
            run.rotate(path, number, packed=number < 29)
    found: Log = run.log(path)
    return found


def numbers(records: Any) -> list[int]:
    return [int(record.text.split("\n")[0]) for record in records]


def test_forwards_all_files_are_joined_in_order(numbered: Log) -> None:
    assert numbers(Family(numbered).forward()) == list(range(40))


def test_backwards_gives_the_same_reversed(numbered: Log) -> None:
    assert numbers(record for _, record in Family(numbered).backward()) == list(range(39, -1, -1))


def test_every_place_found_backwards_is_one_to_go_forwards_from(numbered: Log) -> None:
    family = Family(numbered)
    for place, record in family.backward():
        first = next(family.forward(place))
        assert first == record


def test_backwards_stops_where_told_and_begins_where_told(numbered: Log) -> None:
    family = Family(numbered)
    places = {record.text.split("\n")[0]: place for place, record in family.backward()}
    between = family.backward(stop=places["5"], before=places["25"])
    assert numbers(record for _, record in between) == list(range(24, 4, -1))


def test_the_newest_records_come_without_opening_older_files(numbered: Log) -> None:
    class Watched(Log):
        opened: list[Order] = []  # noqa: RUF012  shared on purpose

        def open(self, order: Order) -> Piece | None:
            self.opened.append(order)
            return super().open(order)

    log = Watched(numbered.folder, numbered.stem, numbered.kind, numbered.say)
    newest = Family(log).backward()
    for _ in range(10):
        next(newest)
    assert log.opened == []
    next(newest)
    assert len(log.opened) == 1


def test_what_is_written_or_rotated_after_the_opening_does_not_change_it(numbered: Log, run: Any) -> None:
    family = Family(numbered)
    run.append(numbered.path, "[later]\n")
    run.rotate(numbered.path, 50, packed=True)
    run.append(numbered.path, "[even later]\n")
    assert numbers(family.forward()) == list(range(40))


def test_a_file_packed_after_the_opening_is_read_packed(numbered: Log, run: Any) -> None:
    family = Family(numbered)
    (plain,) = [
        path for path in numbered.folder.iterdir() if path.name != "node-a.log" and path.suffix == ".log"
    ]
    run.pack(plain)
    assert numbers(family.forward()) == list(range(40))


def test_a_plain_file_counts_while_its_packed_copy_is_being_written(numbered: Log) -> None:
    (plain,) = [
        path for path in numbered.folder.iterdir() if path.name != "node-a.log" and path.suffix == ".log"
    ]
    plain.with_name(plain.name + ".gz").write_bytes(b"\x1f\x8b\x08half")
    assert numbers(Family(numbered).forward()) == list(range(40))


def test_a_deleted_file_is_a_gap_and_no_fault(numbered: Log) -> None:
    family = Family(numbered)
    sorted(numbered.folder.iterdir())[1].unlink()
    assert len(numbers(family.forward())) == 30


def test_a_damaged_packed_file_gives_what_it_can_and_a_word(numbered: Log, run: Any) -> None:
    packed = sorted(path for path in numbered.folder.iterdir() if path.suffix == ".gz")[0]
    packed.write_bytes(packed.read_bytes()[:-12])
    assert numbers(Family(numbered).forward())[-30:] == list(range(10, 40))
    assert any("damaged" in notice for notice in run.notices)


def test_the_last_line_without_a_newline_is_shown_or_left_to_the_follower(numbered: Log, run: Any) -> None:
    run.append(numbered.path, "[half a line")
    assert next(Family(numbered).backward())[1].text.endswith("\n[half a line")
    assert next(Family(numbered, whole_lines=True).backward())[1].text == "39\nmore of 39"


def test_no_live_file_is_no_fault(numbered: Log, run: Any) -> None:
    run.rotate(numbered.path, 50)
    assert numbers(Family(numbered).forward()) == list(range(40))


def test_a_pipe_under_a_logs_name_is_refused_without_blocking(run: Any) -> None:
    os.mkfifo(run.node())
    with pytest.raises(OSError, match="no regular file"):
        Family(run.log(run.node()))


def test_a_rotation_between_opening_and_listing_shows_no_file_twice(numbered: Log, run: Any) -> None:
    class Raced(Log):
        left = [60, 61]  # noqa: RUF012  shared on purpose

        def siblings(self) -> list[Order]:
            if self.left:
                run.rotate(self.path, self.left.pop(0), packed=True)
                run.append(self.path, "[of the next file]\n")
            return super().siblings()

    log = Raced(numbered.folder, numbered.stem, numbered.kind, numbered.say)
    assert numbers(Family(log).forward()) == list(range(40))


def test_positions_compare_in_the_order_of_writing(numbered: Log) -> None:
    places = [place for place, _ in Family(numbered).backward()]
    assert places == sorted(places, reverse=True)
    assert places[0] > Position(LIVE, 0) > places[-1]
