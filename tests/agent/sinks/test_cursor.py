"""The small file that says how far a sink is."""

from __future__ import annotations

import json

import pytest

from rankside_agent.journal import Position
from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.cursor import Cursor, Mark


def test_a_cursor_comes_back_as_it_was_saved(tmp_path):
    cursor = Cursor(tmp_path / "c.json")
    cursor.mark = Mark(Position(3, 77), 12, Counts(delivered=9, points=20), {"file": "f"})
    cursor.failures, cursor.last_time, cursor.last_error = 4, 1.5, "OSError: no"
    cursor.save()
    again = Cursor.load(tmp_path / "c.json")
    assert again.mark == cursor.mark
    assert (again.failures, again.last_time, again.last_error) == (4, 1.5, "OSError: no")


def test_status_and_agent_find_plain_keys(tmp_path):
    cursor = Cursor(tmp_path / "c.json")
    cursor.mark = Mark(Position(3, 77), 12, Counts(delivered=9, skipped=3), {})
    cursor.save()
    found = json.loads((tmp_path / "c.json").read_text())
    assert (found["read"], found["delivered"], found["skipped"], found["failed"]) == (12, 9, 3, 0)
    assert found["position"] == [3, 77]
    assert found["state"] == "starting"


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"position": 3}', '{"position": [1, "x"]}'])
def test_a_cursor_that_makes_no_sense_begins_again(tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    assert Cursor.load(tmp_path / "c.json").mark == Mark()
    assert Cursor.load(tmp_path / "missing.json").mark == Mark()
