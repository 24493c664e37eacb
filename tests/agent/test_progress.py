"""What the points of a rank say on their way past: counted, and what is no number is told of once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rankside import wire
from rankside.wire import Kind
from rankside_agent.progress import Progress


def take(progress: Progress, kind: Kind, *fields: Any) -> str:
    return progress.take(kind, wire.pack((1.7e9, *fields)))[1]


def test_steps_and_counts_are_kept():
    progress = Progress()
    assert take(progress, Kind.METRICS, 7, {"loss": 1.0}) == ""
    assert take(progress, Kind.THROUGHPUT, 8, {"elapsed_s": 1.0}) == ""
    assert take(progress, Kind.METRICS, None, {"loss": math.nan}) == ""
    assert take(progress, Kind.EVENT, "x", {}) == ""
    assert progress.step == 8
    assert progress.counts == {"metrics": 2, "throughput": 1, "event": 1}


def test_what_is_no_number_is_told_once_by_name_and_reason():
    progress = Progress()
    values = {"loss": 1.0, "e": {"?": "Tensor of shape [4]"}, "g": None, "h": "nan"}
    told = take(progress, Kind.METRICS, 1, values)
    assert "'e' (Tensor of shape [4])" in told
    assert "'g' (NoneType is no number)" in told
    assert "'h' (str is no number)" in told
    assert "loss" not in told
    assert take(progress, Kind.METRICS, 2, values) == ""
    assert "'new'" in take(progress, Kind.METRICS, 3, {**values, "new": []})


def test_names_without_end_are_neither_remembered_nor_told_without_end():
    progress = Progress()
    told = [take(progress, Kind.METRICS, 1, {f"n{step}-{k}": None for k in range(100)}) for step in range(50)]
    assert len(told[0]) < 2000
    assert sum(bool(text) for text in told) < 15
    assert len(progress._warned) < 2000


def test_drops_are_added_up():
    progress = Progress()
    take(progress, Kind.DROPPED, {"log": 3, "metrics": 1})
    take(progress, Kind.DROPPED, {"log": 2})
    assert progress.announced_drops == 6


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\xc0", b"\x05", b"\x90", b"\x80", b"\x81\x01\x02", b"\x91" * 900 + b"\xc0"]
)
def test_a_record_of_any_form_is_counted_and_raises_nothing(kind: Kind, body: bytes):
    progress = Progress()
    _, told = progress.take(kind, body)
    assert progress.counts[kind.name.lower()] == 1
    assert told == "" or "cannot be read" in told


def test_a_sign_of_life_is_taken_and_nonsense_refused():
    progress = Progress()
    progress.beat({"dropped": 3, "used": 100, "last": 9, "more": "x"})
    assert (progress.dropped, progress.used) == (3, 100)
    for nonsense in (None, 5, [], "x"):
        with pytest.raises(ValueError, match="not a mapping"):
            progress.beat(nonsense)
    with pytest.raises((ValueError, TypeError, OverflowError)):
        progress.beat({"dropped": math.inf})
