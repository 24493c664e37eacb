"""A bar is known by its form, and few of its states are worth a line."""

from __future__ import annotations

import pytest

from rankside.bars import EVERY, Bars, bar_of

STATES = {
    "tqdm": (" 42%|####2     | 42/100 [00:05<00:07, 8.24it/s]", "/100", 42.0, False),
    "tqdm with a name": ("Epoch 3:  42%|####2     | 42/100 [00:05<00:07]", "Epoch 3:/100", 42.0, False),
    "tqdm, nothing known": ("  0%|          | 0/100 [00:00<?, ?it/s]", "/100", 0.0, False),
    "tqdm at its end": ("100%|##########| 100/100 [00:12<00:00, 8.2it/s, loss=0.1]", "/100", 100.0, True),
    "tqdm in kilobytes": (
        "a.bin:  50%|█████     | 1.5k/3.0k [00:01<00:01, 1.5kB/s]",
        "a.bin:/3.0k",
        1500,
        False,
    ),
    "tqdm without a total": ("Reading: 500it [00:03, 152.1it/s]", "Reading:/", 500.0, False),
    "the bar of B07": ("  1%|# | 1/100", "/100", 1.0, False),
    "rich": ("Working... ━━━━━╸━━━━━━  40% 0:00:03", "Working.../", 40.0, False),
    "rich in colour": (
        "Task \x1b[38;5;237m━━━━━━━━\x1b[0m \x1b[35m  0%\x1b[0m \x1b[36m-:--:--\x1b[0m",
        "Task/",
        0,
        False,
    ),
    "pip": ("   ━━━━━━━━━━━━━━━━ 1.2/3.4 MB 5.6 MB/s eta 0:00:01", "/", 0.0, False),
}


@pytest.mark.parametrize("name", STATES)
def test_a_bar_is_known(name):
    text, bar, count, done = STATES[name]
    found = bar_of(text)
    assert found is not None
    assert (found.name, found.at, found.done, found.rest) == (bar, count, done, "")
    assert found.text == text


@pytest.mark.parametrize(
    "text",
    [
        "accuracy 50%| loss 3|",
        "a | b | c",
        "42 of 100 [info]",
        "━━━━━━━━━━━━━━━━━━━━━━━━",
        "━━━ Results ━━━",
        "┏━━━━━┳━━━━━━━━━┓",
        "┡━━━━━╇━━━ 50% ━┩",
        "[20260102 03:04:05] iteration 12/ 100 | loss 5",
        "",
        "took [00:05, quickly]",
    ],
)
def test_what_looks_like_a_bar_is_none(text):
    assert bar_of(text) is None


def test_what_is_glued_behind_a_bar_is_no_part_of_it():
    found = bar_of("100%|##| 100/100{'eval_loss': 0.61}")
    assert (found.text, found.rest) == ("100%|##| 100/100", "{'eval_loss': 0.61}")
    found = bar_of("100%|##| 9/9 [00:01<00:00, 9.0it/s] saved")
    assert found.rest == "saved"


def test_a_long_line_costs_little():
    assert bar_of("x%|" * 100_000) is None


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def drawn(bars: Bars, name: str, *counts: int, last: bool = False) -> list[str]:
    return [line for n in counts for line in bars.see(name, f"{name} {n}", n, last)]


def test_a_state_is_shown_every_few_seconds_and_the_last_one_is(clock):
    bars = Bars(clock)
    assert drawn(bars, "a", 1, 2, 3) == ["a 1"]
    clock.now += EVERY
    assert drawn(bars, "a", 4, 5) == ["a 4"]
    assert list(bars.rest()) == ["a 5"]
    assert list(bars.rest()) == []


def test_the_end_is_shown_at_once(clock):
    bars = Bars(clock)
    assert drawn(bars, "a", 1, 2) == ["a 1"]
    assert drawn(bars, "a", 3, last=True) == ["a 3"]
    assert list(bars.rest()) == []


def test_a_full_bar_is_shown_once_and_where_it_ends(clock):
    bars = Bars(clock)
    for _ in range(3):
        assert list(bars.see("a", "a 0", 0, False)) in (["a 0"], [])
        assert list(bars.see("a", "a 9 at 47/s", 9, False, True)) == []
        assert list(bars.see("a", "a 9 at 46/s", 9, True, True)) == ["a 9 at 46/s"]
    clock.now += EVERY
    assert list(bars.overdue()) == []
    assert list(bars.rest()) == []


def test_a_full_bar_that_never_ends_comes_when_it_has_waited(clock):
    bars = Bars(clock)
    clock.now += EVERY
    assert list(bars.see("a", "a 9", 9, False, True)) == []
    assert list(bars.overdue()) == []
    clock.now += EVERY
    assert list(bars.overdue()) == ["a 9"]
    assert list(bars.see("a", "a 9, redrawn", 9, True, True)) == []
    assert list(bars.rest()) == []
    assert list(bars.see("b", "b 9", 9, False, True)) == []
    assert list(bars.rest()) == ["b 9"]


def test_a_full_bar_that_is_wiped_away_ends_there(clock):
    bars = Bars(clock)
    assert list(bars.see("a", "a 9", 9, False, True)) == []
    assert list(bars.erased()) == ["a 9"]
    assert list(bars.erased()) == []
    assert list(bars.see("a", "a 9, redrawn", 9, True, True)) == []


def test_a_state_that_waits_is_overdue_once(clock):
    bars = Bars(clock)
    drawn(bars, "a", 1, 2)
    assert list(bars.overdue()) == []
    clock.now += EVERY
    assert list(bars.overdue()) == ["a 2"]
    assert list(bars.overdue()) == []


def test_a_bar_that_begins_anew_is_another_one(clock):
    bars = Bars(clock)
    drawn(bars, "a", 1, 8)
    assert drawn(bars, "a", 0) == ["a 8"]
    assert list(bars.rest()) == ["a 0"]


def test_bars_side_by_side_are_told_apart_by_their_numbers(clock):
    bars = Bars(clock)
    found = [line for n in range(50) for worker in range(3) for line in drawn(bars, f"worker {worker}", n)]
    assert found == ["worker 0 0", "worker 1 0", "worker 2 0"]
    assert list(bars.rest()) == ["worker 0 49", "worker 1 49", "worker 2 49"]


def test_a_number_that_changes_with_every_state_is_no_part_of_a_name(clock):
    bars = Bars(clock)
    found = [line for n in range(500) for line in drawn(bars, f"step {n}:", n % 7)]
    assert len(found) + len(list(bars.rest())) <= 10
    name = bar_of("loss 0.123: 3%|#  | 3/100").name
    assert name == bar_of("loss 4.5e-05: 4%|#  | 4/100").name


def test_more_bars_than_are_remembered_lose_no_last_state(clock):
    bars, names = Bars(clock), [chr(0x4E00 + n) for n in range(200)]
    found = [line for name in names for line in drawn(bars, name, 1, 2)]
    found += bars.rest()
    assert sorted(found) == sorted(f"{name} {n}" for name in names for n in (1, 2))
