"""A record in any form is told from a text that only speaks of it."""

from __future__ import annotations

import json

import pytest

from rankside.wording import is_dressed, is_part, is_told

BESIDE = "train WARNING /x/train.py 215 fit 4711"
MESSAGE = "loss 0.5 is lower than it was at any step of the run before, by far"
FORMS = {
    "itself": MESSAGE,
    "formatted": f"2026-01-02 03:04:05,678 WARNING train.py:215 {MESSAGE}",
    "labelled": f"[rank 3][my own label] : {MESSAGE}",
    "coloured": f"\x1b[31m{MESSAGE}\x1b[0m",
    "JSON": json.dumps({"message": MESSAGE, "levelname": "WARNING", "taskName": None}),
    "wrapped by rich": "[01/02/26 03:04:05] WARNING  loss 0.5 is lower than it was at any   train.py:215\n"
    "                             step of the run before, by far\n",
}
OTHERS = {
    "spoken of": f"slack failed, 17 alerts dropped, the last of them was about this: {MESSAGE}",
    "another order": " ".join(reversed(MESSAGE.split())),
    "much longer": f"{MESSAGE} {' '.join(f'word{n}' for n in range(100))}",
    "half of it": MESSAGE[:30],
    "nothing": "",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_the_record_is_known(form):
    assert is_told(MESSAGE, FORMS[form], BESIDE)


@pytest.mark.parametrize("other", OTHERS)
def test_another_text_is_not_taken_for_it(other):
    assert not is_told(MESSAGE, OTHERS[other], BESIDE)
    assert not is_dressed(MESSAGE, OTHERS[other], BESIDE)


def test_a_traceback_may_come_behind_it():
    text = f"{MESSAGE}\nTraceback: a line and another of somebody's code, in a form of its own"
    assert is_told(MESSAGE, text, BESIDE, more=True)
    assert not is_told(MESSAGE, text, BESIDE)


@pytest.mark.parametrize("message", ["", "a", "5"])
def test_a_message_that_is_hardly_one_must_be_alone(message):
    assert is_dressed(message, f" {message}\n", BESIDE)
    assert is_dressed(message, f"[train.py:215] : {message}", BESIDE)
    assert not is_dressed(message, f"3 files, 17 records {message}", BESIDE)
    assert not is_dressed(message, f"line 17 {message}", BESIDE)


def test_a_part_has_the_records_words_alone_and_in_its_order():
    assert is_part(MESSAGE, "WARNING loss 0.5 is lower", BESIDE)
    assert is_part(MESSAGE, "step of the run before", BESIDE)
    assert not is_part(MESSAGE, "before the run", BESIDE)
    assert not is_part(MESSAGE, "loss dropped", BESIDE)
    assert not is_part(MESSAGE, "...", BESIDE)
