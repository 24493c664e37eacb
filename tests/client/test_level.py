"""What a log call takes for a level, and what becomes of a record whose level is none."""

from __future__ import annotations

import enum
import logging
import sys

import pytest

from rankside import ranks
from rankside.level import NoLevel, of_call
from rankside.wire import Kind


class Grade(enum.IntEnum):
    HIGH = 40


class Number:
    """As numpy's integers are."""

    def __index__(self):
        return 30


class Unfit:
    def __index__(self):
        raise RuntimeError("out of order")

    __repr__ = __index__


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (" error ", (40, "ERROR")),
        ("\twarn\n", (30, "WARN")),
        ("Info", (20, "INFO")),
        ("fatal", (50, "FATAL")),
        (40, (40, "ERROR")),
        (30, (30, "WARNING")),
        (25, (25, "SUCCESS")),
        (5, (5, "TRACE")),
        (35, (35, "Level 35")),
        (0, (0, "NOTSET")),
        (1000, (1000, "Level 1000")),
        (Grade.HIGH, (40, "ERROR")),
        (Number(), (30, "WARNING")),
    ],
)
def test_names_and_numbers_are_levels(given, level):
    assert of_call(given) == level


BAD = [None, True, b"ERROR", 3.5, "", "errror", "40", -1, 10**30, object(), ["ERROR"], Unfit()]


@pytest.mark.parametrize("given", BAD, ids=lambda given: type(given).__name__)
def test_anything_else_is_none_and_the_choices_are_said(given):
    with pytest.raises(NoLevel, match=r"^level .* is unknown; choices: TRACE, .*, or a number from 0$"):
        of_call(given)


def test_a_name_that_the_program_gave_is_known(monkeypatch):
    monkeypatch.setattr(logging, "_nameToLevel", {**logging._nameToLevel, "NOTICE": 25, "Audit": 33})
    monkeypatch.setattr(logging, "_levelToName", {**logging._levelToName, 33: "Audit"})
    assert of_call("notice") == (25, "NOTICE")
    assert of_call("Audit") == of_call(33) == (33, "Audit")


def test_a_name_that_loguru_knows_is_known(monkeypatch):
    loguru = pytest.importorskip("loguru")
    loguru.logger.level("HEARD", no=33)  # loguru has no way to forget one
    assert of_call("heard") == (33, "HEARD")
    monkeypatch.delitem(sys.modules, "loguru")
    with pytest.raises(NoLevel):
        of_call("heard")


def test_a_record_of_a_bad_level_is_kept_as_info_and_the_level_told_once(start, records, capfd):
    mon = start()
    for given in BAD:
        mon.log("kept", level=given)
    ranks.log_once("kept, too", level=None)
    found = [(fields[1], fields[2], fields[5]) for fields in records(Kind.LOG, mon)]
    told = [text for number, _, text in found if number == 30]
    assert [text for text in told if "NoLevel" in text and "choices: TRACE" in text] == told != []
    assert len(told) == 1
    assert [(number, name) for number, name, text in found if text.startswith("kept")] == [(20, "INFO")] * (
        len(BAD) + 1
    )
    assert capfd.readouterr().err.count("is unknown") == 1
