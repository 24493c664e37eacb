"""Frames and messages: what went in comes out, and damage of any kind is never taken for a record."""

from __future__ import annotations

import pickle
import random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside import wire
from rankside.wire import BadFrame, Kind

KINDS = st.sampled_from(sorted(wire.KINDS))
BODIES = st.binary(min_size=1, max_size=200)
RECORDS = st.lists(st.tuples(KINDS, BODIES), min_size=1, max_size=8)
FIRST = st.integers(1, 2**60)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def sealed(first: int, records: list[tuple[int, bytes]]) -> bytes:
    return b"".join(wire.seal(first + i, kind, body) for i, (kind, body) in enumerate(records))


def read(data: bytes) -> list[tuple[int, int, bytes]]:
    return [(frame.seq, frame.kind, wire.body(data, frame)) for frame in wire.frames(data)]


@pytest.fixture(scope="module")
def three() -> bytes:
    """Three records, as they lie in a spool."""
    return sealed(41, [(Kind.LOG, b"first"), (Kind.METRICS, bytes(range(70))), (Kind.EVENT, b"\0\0\0")])


@given(FIRST, RECORDS)
def test_frames_come_out_as_they_went_in(first, records):
    data = sealed(first, records)
    assert read(data) == [(first + i, kind, body) for i, (kind, body) in enumerate(records)]
    assert [frame.end for frame in wire.batch(data)][-1] == len(data)


def test_a_cut_at_any_byte_leaves_the_whole_frames_before_it(three):
    ends = [frame.end for frame in wire.frames(three)]
    for cut in range(len(three)):
        assert read(three[:cut]) == read(three)[: sum(end <= cut for end in ends)]


def test_a_flipped_bit_anywhere_ends_the_stream_before_its_frame(three):
    whole, ends = read(three), [frame.end for frame in wire.frames(three)]
    for place in range(len(three) * 8):
        damaged = bytearray(three)
        damaged[place // 8] ^= 1 << place % 8
        assert read(bytes(damaged)) == whole[: sum(end <= place // 8 for end in ends)], place


@given(FIRST, RECORDS, st.integers(0), st.binary(min_size=1, max_size=40))
def test_bytes_written_over_frames_never_make_a_wrong_record(first, records, place, rubbish):
    data = sealed(first, records)
    place %= len(data)
    damaged = data[:place] + rubbish + data[place + len(rubbish) :]
    sent = [(first + i, kind, body) for i, (kind, body) in enumerate(records)]
    assert all(found in sent for found in read(damaged))


@given(st.binary(max_size=300))
def test_any_bytes_can_be_looked_at(data):
    assert len(read(data)) <= len(data) // (wire.HEAD.size + 1)


def test_a_frame_with_another_sequence_number_or_kind_is_none():
    frame = wire.seal(5, Kind.LOG, b"body")
    length, check, seq, kind = wire.HEAD.unpack_from(frame)
    for other in [seq ^ 1 << bit for bit in range(64)]:
        assert read(wire.HEAD.pack(length, check, other, kind) + b"body") == []
    for other in range(256):
        assert (read(wire.HEAD.pack(length, check, seq, other) + b"body") != []) == (other == kind)


@pytest.mark.parametrize("length", [0, wire.MAX_BODY + 1, 2**31, 2**32 - 1])
def test_a_declared_length_beyond_reason_is_no_frame(length):
    assert read(wire.HEAD.pack(length, 0, 1, Kind.LOG) + b"x" * 64) == []


def test_the_longest_body_is_a_frame_and_one_byte_more_is_none():
    assert len(read(wire.seal(1, Kind.LOG, b"x" * wire.MAX_BODY))) == 1
    assert read(wire.seal(1, Kind.LOG, b"x" * (wire.MAX_BODY + 1))) == []


@pytest.mark.parametrize(
    "sequence", [[1, 3], [1, 1], [2, 1], [1, 1, 3], [1, 99, 3], [3, 2, 1, 4], [1, 2, 4, 3, 5]]
)
def test_a_batch_out_of_sequence_is_refused(sequence):
    with pytest.raises(BadFrame, match="consecutive"):
        wire.batch(b"".join(wire.seal(seq, Kind.LOG, b"x") for seq in sequence))


def test_a_batch_with_a_remainder_is_refused(three):
    for data in (b"", b"x", three + b"\0", three[:-1], b"\0" + three):
        with pytest.raises(BadFrame):
            wire.batch(data)


@given(PLAIN)
def test_plain_values_come_back(value):
    assert wire.unpack(wire.pack(value)) == value


def test_lone_surrogates_and_any_control_character_come_back():
    text = "\ud800 half \udfff \x00\x1b[31m\r\n\u2028" + "".join(map(chr, range(256)))
    assert wire.unpack(wire.pack(text)) == text


@given(PLAIN.filter(lambda value: len(msgpack.packb(value)) > 1))
def test_a_message_cut_anywhere_is_refused(value):
    packed = wire.pack(value)
    for cut in range(len(packed)):
        with pytest.raises(ValueError, match="not a message"):
            wire.unpack(packed[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        msgpack.packb(msgpack.ExtType(1, b"x")),
        b"\x81\xa6config\x91\xd7\xfe" + b"x" * 8,
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\x7f\xff\xff\xff" + b"x",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 5000 + b"\x00",
        b"\x81\x90\x00",
        b"\x81\x80\x00",
        b"\xa1\xff",
        random.Random(1).randbytes(1024),
    ],
)
def test_what_is_no_message_is_a_value_error(data):
    with pytest.raises(ValueError):
        wire.unpack(data)


def test_a_pickle_is_never_run(here):
    class Trap:
        def __reduce__(self):
            return (open, (str(here / "trap"), "w"))

    for data in (pickle.dumps(Trap()), pickle.dumps(Trap(), protocol=0)):
        with pytest.raises(ValueError):
            wire.unpack(data)
    assert not (here / "trap").exists()


@given(st.binary(max_size=100))
def test_whatever_is_unpacked_is_plain(data):
    try:
        value = wire.unpack(data)
    except ValueError:
        return
    waiting = [value]
    while waiting:
        found = waiting.pop()
        assert type(found) in (type(None), bool, int, float, str, bytes, list, dict)
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            waiting += [*found.keys(), *found.values()]


def test_a_time_of_msgpack_becomes_a_number():
    assert wire.unpack(msgpack.packb(msgpack.Timestamp(12, 500_000_000))) == 12.5


def test_numbers_of_kinds_are_those_on_disk():
    assert {kind.name: int(kind) for kind in Kind} == {
        "LOG": 1,
        "METRICS": 2,
        "THROUGHPUT": 3,
        "PARAMS": 4,
        "EVENT": 5,
        "ARTIFACT": 6,
        "MODULE": 7,
        "DROPPED": 8,
        "CLOSE": 9,
    }


def test_the_longest_batch_fits_into_a_message():
    assert max(wire.MAX_BATCH, wire.MAX_BODY + wire.HEAD.size) < wire.MAX_MESSAGE


@given(FIRST, RECORDS)
def test_the_short_way_takes_batches_of_logs_alone_and_agrees_with_the_long_one(first, records):
    data = sealed(first, records)
    found = wire.batch(data)
    logs = all(kind == Kind.LOG for kind, _ in records)
    assert wire.only_logs(data) == ((found[0].seq, found[-1].seq) if logs else None)


def test_the_short_way_takes_no_damage_and_no_gap():
    data = sealed(41, [(Kind.LOG, b"first"), (Kind.LOG, b"second"), (Kind.LOG, b"\0\0\0")])
    assert wire.only_logs(data) == (41, 43)
    assert not any(wire.only_logs(data[:cut]) for cut in range(len(data)) if cut not in ends(data))
    for place in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        assert wire.only_logs(bytes(damaged)) is None, place
    assert wire.only_logs(wire.seal(1, Kind.LOG, b"a") + wire.seal(3, Kind.LOG, b"b")) is None
    assert wire.only_logs(b"") is None


def ends(data: bytes) -> list[int]:
    return [frame.end for frame in wire.frames(data)]
