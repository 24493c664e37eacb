"""config.yaml: for people, for init, and for the comparison; what is written is read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside.parameters import PARAMETERS
from rankside.settings import resolve
from rankside_agent.snapshot import config_text

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def test_a_line_for_each_parameter_says_whether_it_was_given():
    text = config_text.write({"log_interval": 5, "metrics.log_freq": 10}, {"log_interval": "a.yaml"}, "title")
    assert text == "# title\nlog_interval: 5  # given: a.yaml\nmetrics.log_freq: 10\n"


def test_init_takes_it_again(tmp_path):
    pytest.importorskip("yaml")
    values = resolve(
        {"log_interval": 7, "metrics.enable_wandb": True, "wandb_project": 'a # b: "c"\n\u00e9'}, {}
    )
    path = tmp_path / "config.yaml"
    path.write_text(config_text.write(values.values, values.given, "exp\n1"))
    again = resolve(path, {})
    assert (again.values, again.notes) == (values.values, ())


@given(st.dictionaries(st.sampled_from(list(PARAMETERS)) | st.text(min_size=1), PLAIN, max_size=5))
def test_what_is_written_is_read_again(values):
    places = dict.fromkeys(list(values)[::2], "a place  # given: b")
    found = config_text.read(config_text.write(values, places, "x"))
    assert found.values == values
    assert found.given.keys() == places.keys()


@given(st.text())
def test_anything_is_read_without_a_word(text):
    config_text.read(text)
    config_text.read(f"a: {text}")
