"""The rule for names: everything becomes legal, nothing becomes the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.sinks.mlflow_names import Names, legal

KEPT = ["loss", "lm loss", "a:b", "é", "lr/AdamW", "grad_norm", "a.b-c", "x" * 250, "rank-3/loss", "損失"]
CHANGED = {
    "throughput(tps)": "throughput_tps-924ed0",
    "mfu(%)": "mfu_pct-8ae227",
    "memory/max_active(GiB)": "memory/max_active_GiB-2f6cc4",
}
REFUSED = [
    "",
    ".",
    "..",
    "../x",
    "/abs",
    "a//b",
    "a/",
    "a/../b",
    "./a",
    "a,b",
    "tokens@s",
    "loss[0]",
    "x" * 251,
]
REFUSED += ["a\n", "\ud800", "a\0b", "(%)", "/", "//", "a|b", "tab\there"]


def is_legal(name):
    from mlflow.utils.validation import MAX_ENTITY_KEY_LENGTH, _validate_metric_name

    _validate_metric_name(name)
    return len(name) <= MAX_ENTITY_KEY_LENGTH and "\n" not in name and name.encode()


@pytest.mark.parametrize("name", KEPT)
def test_what_mlflow_takes_keeps_its_name(name):
    assert legal(name) == name
    assert is_legal(name)


@pytest.mark.parametrize("name", CHANGED)
def test_what_it_refuses_is_changed_for_ever_in_the_same_way(name):
    assert legal(name) == CHANGED[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_refuses_becomes_legal(name):
    assert is_legal(legal(name))
    assert legal(name) != name


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_every_text_becomes_legal(name):
    assert is_legal(legal(name))
    assert is_legal(legal(name, colons=False))
    assert ":" not in legal(name, colons=False)
    assert is_legal(Names(lambda *_: None).behind("rankside.nonfinite.", name))


def test_two_names_never_become_one():
    names = [*KEPT, *CHANGED, *CHANGED.values(), *REFUSED, "x" * 252, "mfu{%}", "mfu[%]", "mfu_pct"]
    assert len({legal(name) for name in names}) == len(names)
    assert legal(legal("mfu(%)")) != legal("mfu(%)")


def test_each_change_is_told_once():
    told = []
    names = Names(lambda *change: told.append(change))
    for _ in range(3):
        names.legal("mfu(%)")
        names.legal("loss")
    assert told == [("mfu_pct-8ae227", "mfu(%)")]


def test_a_server_without_colons_gets_none():
    names = Names(lambda *_: None)
    assert names.legal("a:b") == "a:b"
    names.forbid_colons()
    assert names.legal("a:b").startswith("a_b-")
