"""Bytes are cut into the same lines from either end, and no line takes more than its share of memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.tail.lines import LIMIT, Cutter, Read, backward, beginnings, next_line, whole_until

DATA = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\xff", b"\r", b"\xe2\x82\xac"]), max_size=60).map(
    b"".join
)
BLOCKS = st.integers(1, 9)


def reader(data: bytes) -> Read:
    return lambda offset, count: data[offset : offset + max(count, 0)]


def lines_of(data: bytes) -> list[bytes]:
    *whole, rest = data.split(b"\n")
    return whole + ([rest] if rest else [])


@given(data=DATA, block=BLOCKS)
def test_chunks_of_any_size_give_the_same_lines(data: bytes, block: int) -> None:
    cutter = Cutter()
    lines = [line for at in range(0, len(data), block) for line in cutter.feed(data[at : at + block])]
    assert lines + ([cutter.rest()] if cutter.waits else []) == lines_of(data)


@given(data=DATA, block=BLOCKS)
def test_backwards_gives_the_same_lines_reversed_each_at_its_offset(data: bytes, block: int) -> None:
    found = list(backward(reader(data), len(data), block))
    assert [line for _, line in reversed(found)] == lines_of(data)
    assert all(
        data[at : at + len(line)] == line and (at == 0 or data[at - 1 : at] == b"\n") for at, line in found
    )


@given(data=DATA, block=BLOCKS)
def test_beginnings_finds_every_line(data: bytes, block: int) -> None:
    found = list(beginnings(reader(data), 0, len(data), block))
    assert len(found) == len(lines_of(data))
    for (at, begun), line in zip(found, lines_of(data), strict=True):
        assert line.startswith(begun)
        assert data[at : at + len(line)] == line


@given(DATA)
def test_whole_lines_end_at_the_last_newline(data: bytes) -> None:
    assert whole_until(reader(data), len(data)) == data.rfind(b"\n") + 1


@given(data=DATA, at=st.integers(0, 60))
def test_the_next_line_begins_after_the_next_newline(data: bytes, at: int) -> None:
    found = data.find(b"\n", at)
    assert next_line(reader(data), at, len(data)) == (found + 1 if found >= 0 else len(data))


def test_a_line_of_8_megabytes_is_cut_with_its_length_from_either_end() -> None:
    size = 8 << 20

    def read(offset: int, count: int) -> bytes:
        return b"x" * max(0, min(count, size - offset)) + (b"\nz" if offset + count > size else b"")

    cutter = Cutter()
    tracemalloc.start()
    forwards = [line for _ in range(8) for line in cutter.feed(b"x" * (1 << 20))] + cutter.feed(b"\nz")
    backwards = [line for _, line in backward(read, size + 2)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected = b"x" * LIMIT + b" [cut: 8388608 bytes in all]"
    assert forwards == [expected]
    assert backwards == [b"z", expected]
    assert peak < 6 * LIMIT
