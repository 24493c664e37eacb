"""The same text gives the same lines however it is cut, and nothing but states of bars is left out."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankside.bars import EVERY, bar_of
from rankside.printed_lines import LONGEST, PrintedLines

BAR_OF_100 = "\r".join(f"{n:3d}%|{'##' if n == 100 else '# '}| {n}/100" for n in range(1, 101)) + "\n"
TQDM = "\r{desc}: {p:3d}%|{bar:<10}| {n}/{total} [00:0{s}<00:01, 9.9it/s]"


def still() -> float:
    return 100.0


def lines_of(*pieces: str, calls: bool = False) -> list[str]:
    """All lines of a text in pieces, in no time."""
    lines = PrintedLines(still)
    take = lines.write if calls else lines.feed
    return [line for piece in pieces for line in take(piece)] + lines.finish()


def test_lines_end_as_they_do_anywhere():
    assert lines_of("a\nb\r\nc\r\r\n\n  d  \nend") == ["a", "b", "c", "", "  d  ", "end"]


def test_case_b07_to_the_byte():
    found = lines_of(BAR_OF_100, "100%|##| 100/100{'eval_loss': 0.61}\n")
    assert found[-1] == "{'eval_loss': 0.61}"
    assert found[0] == "  1%|# | 1/100"
    assert found[1].startswith("100%|")
    assert len(found) <= 4


def test_what_is_glued_behind_a_bar_is_a_line_of_its_own():
    assert lines_of("\r 50%|#  | 1/2 [00:01<00:01, 1it/s]\r100%|###| 2/2 [00:02<00:00, 1it/s]loss 0.5\n") == [
        " 50%|#  | 1/2 [00:01<00:01, 1it/s]",
        "100%|###| 2/2 [00:02<00:00, 1it/s]",
        "loss 0.5",
    ]


def test_text_after_the_last_return_is_a_line_of_its_own():
    assert lines_of("  1%|# | 1/100\r  2%|# | 2/100\reval loss 0.61\nmore\n") == [
        "  1%|# | 1/100",
        "eval loss 0.61",
        "more",
        "  2%|# | 2/100",
    ]


def test_one_call_does_not_go_on_with_the_bar_of_another():
    bar = "  1%|# | 1/100"
    assert lines_of("\r" + bar, "loss 0.5\n", calls=True) == [bar, "loss 0.5"]
    assert lines_of("\r" + bar, "\n", "loss 0.5\n", calls=True) == [bar, "loss 0.5"]
    assert lines_of("text ", "goes on\n", calls=True) == ["text goes on"]


def test_bars_one_below_the_other():
    text = ""
    for outer in range(3):
        text += TQDM.format(desc="outer", p=outer * 33, bar="#" * outer, n=outer, total=3, s=outer)
        for n in range(51):
            text += (
                "\n" + TQDM.format(desc="inner", p=n * 2, bar="#" * (n // 5), n=n, total=50, s=1) + "\x1b[A"
            )
        text += "\n\r" + " " * 40 + "\r\x1b[A"
    text += TQDM.format(desc="outer", p=100, bar="#" * 10, n=3, total=3, s=3) + "\n"
    found = lines_of(text + "done\n")
    assert len(found) <= 12
    assert sum(line.startswith("inner: 100%") for line in found) == 1
    assert any(line.startswith("outer: 100%") for line in found)
    assert "done" in found
    assert "" not in found


def test_a_bar_two_lines_below_another_leaves_no_blank_line():
    text = TQDM.format(desc="upper", p=1, bar="", n=1, total=100, s=1)
    for n in range(20):
        text += "\n\n" + TQDM.format(desc="lower", p=n, bar="", n=n, total=100, s=1) + "\x1b[A\x1b[A"
    assert "" not in lines_of(text + "\n")


def test_bars_of_rich():
    text = "\x1b[?25l"
    for n in range(0, 101, 5):
        bars = f"Task 1 ━━━━━━━━ {n:3d}% 0:00:01\nTask 2 ━━━━━━━━ {n // 2:3d}% 0:00:02"
        text += ("\r\x1b[2K\x1b[1A\x1b[2K" if n else "") + bars
        if n == 50:
            text += "\r\x1b[2K\x1b[1A\x1b[2Ka message between\n" + bars
    found = lines_of(text + "\n\x1b[?25hafter\n")
    assert len(found) <= 7
    assert "a message between" in found
    assert "after" in found
    assert "Task 1 ━━━━━━━━ 100% 0:00:01" in found
    assert "Task 2 ━━━━━━━━  50% 0:00:02" in found


def test_what_is_drawn_over_in_no_known_form_is_rare_too():
    found = lines_of("\r".join(f"downloading {n} of 500" for n in range(501)) + "\nnext\n")
    assert found == ["downloading 0 of 500", "downloading 500 of 500", "next"]


def test_a_line_that_ends_in_many_returns_is_no_state_of_anything():
    assert lines_of(*[f"line {n}\r\r\n" for n in range(20)]) == [f"line {n}" for n in range(20)]


def test_a_state_is_told_when_nothing_newer_comes():
    now = [100.0]
    lines = PrintedLines(lambda: now[0])
    assert lines.feed("\r  1%|# | 1/100\r  2%|# | 2/100\r  3%|# | 3/100") == ["  1%|# | 1/100"]
    assert lines.overdue() == []
    now[0] += EVERY
    assert lines.overdue() == ["  3%|# | 3/100"]
    assert lines.overdue() == []
    assert lines.finish() == []


def test_the_last_state_of_a_bar_of_tqdm_stands_once_where_its_line_ends():
    now = [100.0]
    lines, found = PrintedLines(lambda: now[0]), []
    for epoch in range(2):
        for text in (
            f"\repoch {epoch}:   0%|          | 0/10 [00:00<?, ?it/s]",
            f"\repoch {epoch}: 100%|##########| 10/10 [00:00<00:00, 47.41it/s]",
            f"\repoch {epoch}: 100%|##########| 10/10 [00:00<00:00, 46.38it/s]",
            "\n",
            f"validated {epoch}\n",
        ):
            found += lines.overdue() + lines.write(text)
    now[0] += EVERY
    found += lines.overdue() + lines.finish()
    assert found == [
        line
        for epoch in range(2)
        for line in (
            f"epoch {epoch}:   0%|          | 0/10 [00:00<?, ?it/s]",
            f"epoch {epoch}: 100%|##########| 10/10 [00:00<00:00, 46.38it/s]",
            f"validated {epoch}",
        )
    ]


def test_a_full_bar_that_is_wiped_away_is_told_there():
    full = "100%|##########| 10/10 [00:00<00:00, 47.41it/s]"
    assert lines_of(f"\r{full}", f"\r{' ' * 60}\r", "next\n", calls=True) == [full, "next"]


def test_a_line_beyond_reason_is_cut_says_so_and_takes_no_memory():
    whole = "x" * (3 * LONGEST)
    piecewise = lines_of(*["x" * 1000] * 200, "\nafter\n")
    (cut, after) = lines_of(whole + "\n", "after\n")
    assert cut == "x" * LONGEST + f" ... [rankside: cut here, {3 * LONGEST} characters in all]"
    assert piecewise == ["x" * LONGEST + " ... [rankside: cut here, 200000 characters in all]", after]
    lines = PrintedLines(still)
    for _ in range(1000):
        lines.feed("y" * 10_000)
    assert len(lines._head) + len(lines._pending) < LONGEST + 100


def test_what_was_begun_is_known():
    lines = PrintedLines(still)
    assert not lines.unfinished
    lines.feed("a")
    assert lines.unfinished
    lines.feed("\n")
    assert not lines.unfinished


BAR = st.integers(0, 100).map(lambda n: f"{n:3d}%|{'#' * (n // 10):<10}| {n}/100")
WORDS = st.text("ab {'}:\t\x1b[é", max_size=8)
END = st.sampled_from(["\n", "\r\n", "\r", "\n\r", "\x1b[A", "\x1b[1A", "\r\r\n", ""])
TEXT = st.lists(st.tuples(BAR | WORDS | st.just("\x1b[2K"), END), max_size=20).map(
    lambda parts: "".join(text + end for text, end in parts)
)


@given(TEXT, st.data())
@example("a\r\nb", None)
def test_the_same_text_in_any_cut_gives_the_same_lines(text, data):
    if data is None:
        cuts = list(range(1, len(text)))
    else:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert lines_of(*pieces) == lines_of(text)


@given(st.lists(st.tuples(st.text("abc{'} é%|/[", min_size=1, max_size=12), st.sampled_from(["\n", "\r\n"]))))
def test_nothing_that_ends_in_a_new_line_is_lost(parts):
    written = [text for text, _ in parts]
    assert lines_of("".join(text + end for text, end in parts)) == written


@given(st.lists(BAR | st.sampled_from(["loss 0.5", "saved", "{'eval_loss': 0.61}"]), max_size=30), st.data())
def test_nothing_but_states_of_bars_is_left_out(parts, data):
    ends = [data.draw(st.sampled_from(["\n", "\r"]) if bar_of(part) else st.just("\n")) for part in parts]
    found = lines_of(*(part + end for part, end in zip(parts, ends, strict=True)))
    assert [each for each in found if bar_of(each) is None] == [p for p in parts if bar_of(p) is None]
    states = [part for part in parts if bar_of(part)]
    if states:
        assert re.sub(r"\s", "", states[-1]) in [re.sub(r"\s", "", each) for each in found]


@pytest.mark.parametrize("end", ["\r", "", "\n"])
def test_the_last_state_is_kept_however_the_text_ends(end):
    assert lines_of("  1%|# | 1/100\r  2%|# | 2/100\r  7%|# | 7/100" + end)[-1] == "  7%|# | 7/100"
