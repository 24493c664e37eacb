"""YAML of a configuration: what PyYAML would take without a word, or choke on, is refused."""

from __future__ import annotations

import contextlib

import pytest

from rankside.config_yaml import NotYaml, parsed

pytest.importorskip("yaml")


def refused(text):
    with pytest.raises(NotYaml) as error:
        parsed(text)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\n\na: 3", "the name 'a' stands twice, in lines 1 and 4"),
        ("m:\n  x:\n    - k: 1\n      k: 1", "the name 'k' stands twice, in lines 3 and 4"),
        ("{a: 1, a: 2}", "the name 'a' stands twice, in line 1"),
        ("'a': 1\na: 2", "the name 'a' stands twice, in lines 1 and 2"),
        ("7: 1\n7: 2", "the name '7' stands twice, in lines 1 and 2"),
    ],
)
def test_a_name_that_stands_twice_in_a_group_is_refused_with_both_lines(text, told):
    assert refused(text) == told


def test_a_preset_of_somebody_else_s_may_hold_one_and_the_last_counts():
    assert parsed("a: 1\na: 2", doubled=True) == {"a": 2}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("a: 1\nb: {a: 1}\nc: [{a: 1}, {a: 2}]", {"a": 1, "b": {"a": 1}, "c": [{"a": 1}, {"a": 2}]}),
        ("b: &b {x: 1, y: 1}\nc: {<<: *b, x: 2}", {"b": {"x": 1, "y": 1}, "c": {"x": 2, "y": 1}}),
        ("a: &a {x: 1}\nb: &b {<<: *a}\nc: {<<: [*a, *b]}", {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}),
    ],
)
def test_names_once_in_each_group_and_merges_are_as_ever(text, found):
    assert parsed(text) == found


def test_merges_that_stand_for_billions_are_refused_before_they_are_made():
    levels = ["a0: &a0 {x: 1, y: 2}"]
    levels += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    assert "merges stand for too many values, in the group of line" in refused("\n".join(levels))


@pytest.mark.parametrize("text", ["a: &a {<<: *a}", "a: &a [*a]", "a: &a {b: *a}", "<<: 5", "<<: [5]"])
def test_what_holds_itself_comes_to_an_end(text):
    with contextlib.suppress(NotYaml, RecursionError):
        parsed(text)


def test_nothing_of_the_text_is_told():
    assert "hunter2" not in refused("password: [hunter2\nx: {")
    assert refused("d: 2026-13-01") == "holds a value that does not fit its kind"
