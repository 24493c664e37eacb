"""A record and its further lines are one unit, read from either end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.tail.assembly import Assembler, Kind, backward, forward, head_of
from rankside_agent.tail.line import Head, level_line, node_line
from rankside_agent.tail.lines import LIMIT
from rankside_agent.tail.names import LIVE, Position
from rankside_agent.tail.pile import Pile
from rankside_agent.tail.record import Record, Source

BLANK = Head("", "", "3", "?", "", "", "")
Text = Callable[..., str]
LEVEL = Kind(level_line, Source("pretrain", "pretrain"), BLANK)
NODE = Kind(node_line, Source("pretrain", "pretrain", "a"), BLANK)
TEXTS = st.lists(st.text("ab| [\t", max_size=5), min_size=1, max_size=4).map("\n".join)
TRACE = "Traceback (most recent call last):\n  File a\n\nValueError: x"


def placed(lines: list[bytes]) -> Iterator[tuple[Position, bytes]]:
    return ((Position(LIVE, number), line) for number, line in reversed(list(enumerate(lines))))


def lines_of(*texts: str) -> list[bytes]:
    return [line.encode() for text in texts for line in text[:-1].split("\n")]


def texts(records: list[Record]) -> list[str]:
    return [record.text for record in records]


@given(st.lists(st.tuples(st.integers(0, 2), TEXTS), max_size=8))
def test_both_directions_give_the_records_that_were_written(
    level_text: Text, node_text: Text, written: list[tuple[int, str]]
) -> None:
    for kind, write in ((LEVEL, level_text), (NODE, node_text)):
        lines = lines_of(*(write(rank, text) for rank, text in written))
        there = list(forward(iter(lines), kind))
        back = [record for _, record in backward(placed(lines), kind)]
        assert there == back[::-1]
        assert [(record.rank, record.text) for record in there] == written


def test_a_traceback_is_one_record_with_the_place_of_its_first_line(level_text: Text) -> None:
    lines = lines_of(level_text(1, "before"), level_text(1, TRACE), level_text(1, "after"))
    found = list(backward(placed(lines), LEVEL))
    assert [(place.offset, record.text) for place, record in found] == [
        (5, "after"),
        (1, TRACE),
        (0, "before"),
    ]


def test_lines_without_a_beginning_are_shown_as_late_under_the_folders_rank() -> None:
    for records in (
        list(forward(iter([b"  File a", b"ValueError"]), LEVEL)),
        [record for _, record in backward(placed([b"  File a", b"ValueError"]), LEVEL)],
    ):
        assert texts(records) == ["  File a\nValueError"]
        assert records[0].late
        assert records[0].label == "3"


def test_further_lines_of_a_node_log_name_their_own_rank_even_without_a_beginning(node_text: Text) -> None:
    lines = lines_of(node_text(5, "gone\n  File a\nValueError"))[1:] + lines_of(node_text(6, "next"))
    for records in (
        list(forward(iter(lines), NODE)),
        [record for _, record in backward(placed(lines), NODE)][::-1],
    ):
        assert texts(records) == ["  File a\nValueError", "next"]
        assert (records[0].label, records[0].late) == ("5", True)


def test_lines_that_come_after_a_flush_carry_their_records_head(level_text: Text) -> None:
    assembler = Assembler(LEVEL)
    assembler.feed(level_text(7, "Traceback:")[:-1].encode())
    first = assembler.flush()
    assembler.feed(b"  File a")
    rest = assembler.flush()
    assert first is not None
    assert rest is not None
    assert (first.text, first.late) == ("Traceback:", False)
    assert (rest.text, rest.late, rest.label, rest.stamp) == ("  File a", True, "7", first.stamp)
    assert assembler.flush() is None


def test_an_assembler_goes_on_after_a_record_that_was_read_elsewhere(node_text: Text) -> None:
    (before,) = forward(iter(lines_of(node_text(2, "Traceback:"))), NODE)
    assembler = Assembler(NODE, head_of(before))
    assembler.feed(lines_of(node_text(2, "Traceback:\n  File a"))[1])
    rest = assembler.flush()
    assert rest is not None
    assert (rest.text, rest.late, rest.location) == ("  File a", True, "train.py:215")


def test_bad_bytes_become_replacement_characters(level_text: Text) -> None:
    line = level_text(0, "half").encode()[:-1] + b" \xd0 \xe2\x82"
    assert texts(list(forward(iter([line]), LEVEL))) == ["half � �"]


def test_a_record_of_many_lines_is_cut_with_its_length_from_either_end(level_text: Text) -> None:
    lines = [level_text(0, "big")[:-1].encode(), *[b"x" * 1023] * 5000]
    size = len("big") + 5000 * 1024
    (there,) = forward(iter(lines), LEVEL)
    ((_, back),) = backward(placed(lines), LEVEL)
    assert there == back
    assert there.text.endswith(f" [cut: {size} characters in all]")
    assert len(there.text) < LIMIT + 2000


@given(st.lists(st.text("ab", max_size=3), max_size=20))
def test_a_pile_is_the_same_from_either_end(lines: list[str]) -> None:
    def piled(add: Callable[[Pile], Callable[[str], None]], given: list[str]) -> str:
        pile = Pile(limit=10)
        for line in given:
            add(pile)(line)
        return pile.take()

    assert piled(lambda pile: pile.after, lines) == piled(lambda pile: pile.before, lines[::-1])
