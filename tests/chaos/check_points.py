"""The verdict on trackers: each value of the rank that speaks is there, and a step is shown once.

Separate from the logs' part. Imports nothing of rankside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.chaos import point_readers
from tests.chaos.check_logs import announced
from tests.chaos.log_pieces import Shelf, shelves
from tests.chaos.point_readers import Scalars
from tests.chaos.testimony import Account

_TAGS = {"metrics": "value", "throughput": "iteration-time"}


class Value(NamedTuple):
    """One value that the last rank of a start has given."""

    start: int
    step: int
    value: float
    sure: bool  # the call returned


def findings(
    exp: Path, kept: Path, told: list[Account], mlflow_uri: str, trackers: tuple[str, ...]
) -> list[str]:
    """All that is wrong, in words."""
    found = shelves(exp, kept)
    problems: list[str] = []
    firsts = _first_steps(told)
    for kind, tag in _TAGS.items():
        given = _given(told, kind)
        excused = _excused(found, told, kind)
        strange = _of_others(told, kind)
        problems += _in_tensorboard(exp, tag, given, firsts, _beside(found), excused, strange)
        if any(each.startswith("mlflow") for each in trackers):
            shown = point_readers.mlflow(mlflow_uri, tag)
            problems += _all_once("mlflow", tag, shown, given, excused, strange)
        if "wandb" in trackers:
            shown = point_readers.wandb(exp, tag)
            problems += _all_once("wandb", tag, shown, given, excused, strange)
    problems += _events(exp, told, _beside(found), _excused(found, told, "event"))
    return problems


def _last(account: Account) -> bool:
    return account.facts["rank"] == account.facts["world"] - 1 and not account.facts["child"]


def _given(told: list[Account], kind: str) -> list[Value]:
    """What the trackers should show."""
    return [
        Value(account.facts["start"], call.what["step"], call.what["value"], returned)
        for account in told
        if _last(account)
        for _, call, returned in account.calls(kind)
    ]


def _of_others(told: list[Account], kind: str) -> set[float]:
    """Values of other ranks, where the last one of their start had no time to say anything for sure."""
    spoke = _spoke(told)
    return {
        call.what["value"]
        for account in told
        if account.facts["start"] not in spoke
        for _, call, _ in account.calls(kind)
    }


def _spoke(told: list[Account]) -> set[int]:
    """Starts whose last rank has sent metrics for sure; in the others another one may speak in its place."""
    return {value.start for value in _given(told, "metrics") if value.sure}


def _excused(found: list[Shelf], told: list[Account], kind: str) -> int:
    """How many of the last ranks' records were announced as dropped, at most."""
    labels = {f"rank-{account.facts['rank']}" for account in told if _last(account)}
    return sum(announced(found, label)[1][kind] for label in labels)


def _beside(found: list[Shelf]) -> dict[int, str]:
    """By start, the folder of its own that it has because it began beside a living one."""
    roots: dict[int, str] = {}
    for shelf in found:
        for piece in [*shelf.seen, *shelf.kept]:
            for record in piece.records:
                roots[int(record.stream[1 : record.stream.index("r")])] = shelf.root
    return {start: root.partition("/")[2] for start, root in roots.items() if root != "logs"}


def _first_steps(told: list[Account]) -> dict[int, tuple[int, bool]]:
    """By start, where it went on, and whether surely: all tags' points from there on are replaced."""
    spoke = _spoke(told)
    found: dict[int, int] = {}
    for account in told:
        start = account.facts["start"]
        if _last(account) or start not in spoke:
            for _, call, _ in account.calls(*_TAGS):
                found[start] = min(call.what["step"], found.get(start, call.what["step"]))
    return {start: (step, start in spoke) for start, step in found.items()}


def _in_tensorboard(
    exp: Path,
    tag: str,
    given: list[Value],
    firsts: dict[int, tuple[int, bool]],
    beside: dict[int, str],
    excused: int,
    strange: set[float],
) -> Iterator[str]:
    """What a later start trained again replaces what was there from its first step on."""
    for folder in {"", *beside.values()}:
        mine = [value for value in given if beside.get(value.start, "") == folder]
        shown = point_readers.tensorboard(exp / "tensorboard" / folder, tag)
        expected: list[Value] = []
        for start in sorted(firsts):
            if beside.get(start, "") == folder:
                expected = _replaced(expected, *firsts[start])
                expected += [value for value in mine if value.start == start]
        yield from _compared(f"tensorboard {folder}", tag, shown, expected, excused, strange)
        again = {step for step, _ in firsts.values()}
        starts = {value.value: value.start for value in mine}
        points = [(starts.get(value, 0), step) for step, value in shown if value not in strange]
        wrong = _out_of_order(points, again)
        if wrong:
            yield f"tensorboard {folder}: {tag}: steps twice or out of order: {wrong[:5]}"


def _replaced(before: list[Value], first: int, surely: bool = True) -> list[Value]:
    """What stays of earlier starts; a last step that is merely given again stays beside, or does not.

    Not `surely`: nobody knows whether another rank has spoken in the last one's place.
    """
    stays = [each for each in before if each.step < first]
    merely_again = all(each.step <= first for each in before)
    unsure = [each for each in before if each.step >= first] if merely_again or not surely else []
    return [*stays, *(each._replace(sure=False) for each in unsure)]


def _compared(
    place: str,
    tag: str,
    shown: Scalars,
    expected: list[Value],
    excused: int,
    strange: set[float],
) -> Iterator[str]:
    have = set(shown)
    lost = [each for each in expected if each.sure and (each.step, each.value) not in have]
    if len(lost) > excused:
        yield f"{place}: {tag}: {len(lost)} points lost, {excused} announced: {lost[:5]}"
    allowed = {(each.step, each.value) for each in expected}
    more = [point for point in shown if point not in allowed and point[1] not in strange]
    if more:
        yield f"{place}: {tag}: {len(more)} points that should not show: {more[:5]}"


def _all_once(
    place: str,
    tag: str,
    shown: Scalars,
    given: list[Value],
    excused: int,
    strange: set[float],
) -> Iterator[str]:
    yield from _compared(place, tag, shown, given, excused, strange)
    twice = [point for point, times in Counter(shown).items() if times > 1]
    if twice:
        yield f"{place}: {tag}: {len(twice)} points twice: {twice[:5]}"


def _out_of_order(points: list[tuple[int, int]], again: set[int]) -> list[tuple[int, int]]:
    """Of (start, step) as TensorBoard draws them: each start goes forward, and no step is there twice.

    Only a step at which a later start went on may be. Points of a start that came in when a later one had
    begun stand behind that one's: an event file only grows.
    """
    back = [
        (one, two)
        for (before, one), (start, two) in pairwise(points)
        if start >= before and (two < one or (start == before and two == one))
    ]
    times = Counter(step for _, step in points)
    return back + [(step, step) for step, seen in times.items() if seen > 1 and step not in again]


def _events(exp: Path, told: list[Account], beside: dict[int, str], excused: int) -> Iterator[str]:
    """Of the last rank; those of the last start are all there, whatever it replaced."""
    newest = max((account.facts["start"] for account in told), default=0)
    for folder in {"", *beside.values()}:
        shown = Counter(point_readers.tensorboard_events(exp / "tensorboard" / folder))
        twice = [key for key, times in shown.items() if times > 1]
        if twice:
            yield f"tensorboard {folder}: events twice: {twice[:5]}"
        wanted = [
            (stream, call.number)
            for account in told
            if _last(account) and account.facts["start"] == newest and beside.get(newest, "") == folder
            for stream, call, returned in account.calls("event")
            if returned
        ]
        lost = [key for key in wanted if key not in shown]
        if len(lost) > excused:
            yield f"tensorboard {folder}: {len(lost)} events lost, {excused} announced: {lost[:5]}"
