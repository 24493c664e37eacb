"""One run: batches in, each record into its journals once, whatever is sent again or dies in between."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rankside import wire
from rankside.identity import Hello
from rankside.wire import Kind
from rankside_agent.attempts import Claim
from rankside_agent.journal import EntryType, segments
from rankside_agent.logfiles import LogFiles
from rankside_agent.runs import Gap

House = Any  # of conftest.py
MakeHello = Callable[..., Hello]
Logged = Callable[..., bytes]
Sealed = Callable[[int, Iterable[tuple[Kind, Any]]], bytes]
Until = Callable[..., None]

LOG = (Kind.LOG, (1.7e9, 20, "INFO", "train", 7, "x"))
METRICS = (Kind.METRICS, (1.7e9, 3, {"loss": 1.0}))
EVENT = (Kind.EVENT, (1.7e9, "checkpoint", {}))
MODULE = (Kind.MODULE, (1.7e9, "sft"))
CLOSE = (Kind.CLOSE, (1.7e9, "finished"))


def debug(house: House, module: str = "pretrain") -> list[str]:
    found: list[str] = house.lines(house.root / "exp" / "logs" / module / "rank-0" / "debug.log")
    return found


def notes(house: House, run: Any) -> list[str]:
    return [str(entry.value()) for entry in house.entries(run) if entry.type == EntryType.NOTE]


# -- what goes where ------------------------------------------------------------------------------------


def test_each_record_is_in_its_journal_and_an_event_in_both(house: House, hello: MakeHello, sealed: Sealed):
    run, channel = house.open(hello(0))
    assert run.accept(channel, sealed(1, [LOG, METRICS, EVENT, LOG])) == 4
    assert run.accept(channel, sealed(5, [METRICS])) == 5
    assert house.sequence(run) == [(1, Kind.LOG), (3, Kind.EVENT), (4, Kind.LOG)]
    assert house.sequence(run, "points") == [(2, Kind.METRICS), (3, Kind.EVENT), (5, Kind.METRICS)]
    assert channel.progress.counts == {"log": 2, "metrics": 2, "event": 1}
    assert channel.progress.step == 3


def test_what_a_forked_child_has_for_trackers_is_told_to_be_lost_on_them_once(
    house: House, hello: MakeHello, sealed: Sealed
):
    _, parent = house.open(hello(0))
    for number in (1, 2):
        run, child = house.open(hello(0, channel=f"child-{number}", parent=parent.hello.channel))
        run.accept(child, sealed(1, [METRICS, EVENT, METRICS]))
    (told,) = [text for text in notes(house, run) if "no tracker" in text]
    assert "metrics of a forked child" in told


def test_variables_of_trackers_that_are_not_used_are_told_with_what_is(house: House, hello: MakeHello):
    environ = {"WANDB_NAME": "mine", "WANDB_RUN_ID": "x", "MLFLOW_RUN_ID": "y"}
    run, _ = house.open(hello(7, config={"disable_wandb": False}, launch={"environ": environ}))
    (told,) = [text for text in notes(house, run) if "not used" in text]
    assert "WANDB_NAME (instead: the parameter wandb_exp_name" in told
    assert "WANDB_RUN_ID" in told
    assert "MLFLOW" not in told


def test_what_comes_again_is_not_stored_again_and_what_comes_too_early_is_a_gap(
    house: House, hello: MakeHello, logged: Logged
):
    run, channel = house.open(hello(0))
    assert run.accept(channel, logged(1, *"abc")) == 3
    assert run.accept(channel, logged(1, *"abc")) == 3
    assert run.accept(channel, logged(2, *"bcd")) == 4
    with pytest.raises(Gap):
        run.accept(channel, logged(6, "f"))
    assert run.accept(channel, logged(5, "e")) == 5
    assert [seq for seq, _ in house.sequence(run)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\0" * 100, wire.seal(1, 1, b"x") + b"y", wire.seal(1, 1, b"x")[:-1]]
)
def test_what_is_no_batch_changes_nothing(house: House, hello: MakeHello, data: bytes):
    run, channel = house.open(hello(0))
    with pytest.raises(wire.BadFrame):
        run.accept(channel, data)
    assert channel.last == 0
    assert house.sequence(run) == []


def test_frames_out_of_sequence_are_no_batch(house: House, hello: MakeHello, logged: Logged):
    run, channel = house.open(hello(0))
    for numbers in ([1, 3], [2, 1], [1, 1], [1, 3, 2, 4], [1, 2, 2, 4]):
        with pytest.raises(wire.BadFrame):
            run.accept(channel, b"".join(logged(number, "x") for number in numbers))
    assert channel.last == 0


@pytest.mark.parametrize("sizes", [[10], [1] * 10, [3, 4, 3], [6, 4]])
def test_a_module_divides_the_stream_where_it_stands_however_it_is_batched(
    house: House, hello: MakeHello, sealed: Sealed, sizes: list[int]
):
    run, channel = house.open(hello(0))
    records = [LOG, METRICS, LOG, MODULE, LOG, METRICS, MODULE, MODULE, LOG, METRICS]
    first = 1
    for size in sizes:
        run.accept(channel, sealed(first, records[first - 1 : first - 1 + size]))
        first += size
    assert channel.last == 10
    of = {
        which: [
            (seq, entry.info["module"])
            for entry in house.entries(run, which)
            if entry.records()
            for seq, _, _ in entry.frames()
        ]
        for which in ("logs", "points")
    }
    assert of["logs"] == [(1, "pretrain"), (3, "pretrain"), (5, "sft"), (9, "sft")]
    assert of["points"] == [(2, "pretrain"), (6, "sft"), (10, "sft")]
    assert run.facts["modules"] == ["pretrain", "sft"]


@pytest.mark.parametrize("body", [None, 5, [], [1.7e9], {}, [1.7e9, "m" * 100_000], [1.7e9, None]])
def test_a_module_or_a_goodbye_that_makes_no_sense_does_not_stop_the_stream(
    house: House, hello: MakeHello, sealed: Sealed, body: Any
):
    run, channel = house.open(hello(0))
    assert run.accept(channel, sealed(1, [LOG, (Kind.MODULE, body), LOG])) == 3
    assert len(run.facts["module"]) <= 4096
    assert run.accept(channel, sealed(4, [(Kind.CLOSE, body)])) == 4
    assert channel.ended


def test_bytes_that_are_no_message_do_not_stop_the_stream(house: House, hello: MakeHello):
    run, channel = house.open(hello(0))
    kinds = [kind for kind in Kind if kind != Kind.CLOSE] + [Kind.CLOSE]
    data = b"".join(wire.seal(seq, kind, b"\xc1\xff") for seq, kind in enumerate(kinds, 1))
    assert run.accept(channel, data) == len(kinds)
    assert channel.ended


@pytest.mark.parametrize("deep", [200, 500, 900])
def test_metrics_of_any_depth_or_form_are_counted_and_stop_nothing(
    house: House, hello: MakeHello, sealed: Sealed, deep: int
):
    value: Any = 1
    for _ in range(deep):
        value = {"x": value}
    run, channel = house.open(hello(0))
    bodies = [(1.7e9, 1, value), {}, {1: 2}, [], 5, (1.7e9, 1, [1]), (1.7e9, 2**63, {1: 2, None: 3})]
    run.accept(
        channel, sealed(1, [(kind, body) for body in bodies[1:] for kind in Kind if kind < Kind.MODULE])
    )
    try:
        frames = sealed(channel.last + 1, [(Kind.METRICS, bodies[0])])
    except ValueError:
        return  # cannot even be packed
    assert run.accept(channel, frames) == channel.last


# -- a goodbye ------------------------------------------------------------------------------------------


def test_a_goodbye_ends_the_channel_wherever_in_the_batch_it_stands(
    house: House, hello: MakeHello, sealed: Sealed
):
    run, channel = house.open(hello(0))
    run.accept(channel, sealed(1, [LOG, CLOSE, LOG]))  # another thread's last line
    assert (channel.ended, channel.status, channel.how) == (True, "finished", "clean")
    run.accept(channel, sealed(4, [LOG]))
    house.finish()
    assert debug(house) == ["x", "x", "x"]
    (path,) = (house.state / "done").glob("*/run.json")
    (attempt,) = json.loads(path.read_text())["attempts"]
    assert attempt["status"] == "finished"
    assert attempt["ended"] >= attempt["started"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (["finished", "finished"], "finished"),
        (["finished", "failed"], "failed"),
        (["killed", "finished"], "killed"),
        (["killed", "failed"], "failed"),
        (["finished", None], "killed"),
    ],
)
def test_an_attempts_status_is_the_worst_of_its_ranks(
    house: House, hello: MakeHello, sealed: Sealed, said: list[str | None], status: str
):
    opened = [house.open(hello(rank)) for rank in range(2)]
    for word, (run, channel) in zip(said, opened, strict=True):
        assert run.facts["attempts"][0]["status"] == "running"
        if word is None:
            run.end(channel, "vanished")
        else:
            run.accept(channel, sealed(1, [(Kind.CLOSE, (1.7e9, word))]))
    assert opened[0][0].facts["attempts"][0]["status"] == status


def test_a_rank_that_went_without_a_goodbye_has_a_warning_in_its_own_log(
    house: House, hello: MakeHello, sealed: Sealed
):
    run, channel = house.open(hello(0))
    run.accept(channel, sealed(1, [METRICS, LOG]))
    run.end(channel, "vanished")
    run.end(channel, "lost")
    house.finish()
    assert debug(house) == ["x", "rank 0 (pid 4000 on here) ended without a goodbye: vanished, last step 3"]


def test_a_rank_taken_for_lost_that_speaks_again_keeps_its_run_alive(
    house: House, hello: MakeHello, logged: Logged
):
    run, channel = house.open(hello(0))
    run.end(channel, "lost")
    run.revive(channel)
    for _ in range(5):
        house.tick()
    assert run.folder.name in house.registry.runs
    assert run.facts["attempts"][0]["status"] == "running"
    run.accept(channel, logged(1, "back"))
    run.end(channel, "clean")
    house.finish()
    assert debug(house)[-1] == "back"


def test_an_ended_channel_that_is_forgotten_is_in_no_later_header(
    house: House, hello: MakeHello, logged: Logged
):
    run, first = house.open(hello(0))
    _, second = house.open(hello(1))
    run.end(first, "clean")
    run.forget(first)
    for seq in range(1, 100):
        run.accept(second, logged(seq, "x" * 2000))
    assert len(segments(run.logs.folder)) > 2
    run.logs.drop_before(run.logs.end.segment)
    house.kill()
    house.start()
    assert house.registry.find("here-0-a") is None
    assert house.registry.find("here-1-a")[1].last == 99


# -- a kill between the two journals --------------------------------------------------------------------


class Killed(BaseException):
    """The agent is gone."""


@pytest.mark.parametrize("victim", ["points.batch", "logs.batch", "points.module", "logs.module"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("again", [1, 2, 7])
def test_killed_between_any_two_appends_nothing_is_lost_or_doubled(
    house: House, hello: MakeHello, sealed: Sealed, victim: str, when: str, nth: int, again: int
):
    records = [LOG, METRICS, EVENT, MODULE, METRICS, LOG, MODULE, EVENT, METRICS, LOG]
    run, channel = house.open(hello(0))
    which, _, method = victim.partition(".")
    journal = getattr(run, which)
    real, calls = getattr(journal, method), []

    def dying(*args: Any) -> None:
        calls.append(args)
        if len(calls) == nth and when == "before":
            raise Killed
        real(*args)
        if len(calls) == nth:
            raise Killed

    setattr(journal, method, dying)
    with suppress(Killed):
        run.accept(channel, sealed(1, records))
    house.kill()
    house.start()
    run, channel = house.registry.find("here-0-a")
    while channel.last < len(records):  # sent again from where the journal is, in other portions
        first = channel.last + 1
        run.accept(channel, sealed(first, records[first - 1 : first - 1 + again]))
    kinds = {seq: kind for seq, (kind, _) in enumerate(records, 1)}
    in_logs = [seq for seq, kind in kinds.items() if kind in (Kind.LOG, Kind.EVENT)]
    in_points = [seq for seq, kind in kinds.items() if kind in (Kind.METRICS, Kind.EVENT)]
    assert [seq for seq, _ in house.sequence(run)] == in_logs
    assert [seq for seq, _ in house.sequence(run, "points")] == in_points
    for which in ("logs", "points"):
        for entry in house.entries(run, which):
            if entry.records():
                for seq, _, _ in entry.frames():
                    assert entry.info["module"] == ("pretrain" if seq < 4 else "sft")


@pytest.mark.parametrize("victim", ["points", "logs"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_a_channel_is_opened_its_run_has_its_trackers_all_the_same(
    house: House, hello: MakeHello, victim: str, when: str
):
    run, _ = house.open(hello(0, world_size=2))
    journal = getattr(run, victim)
    real = journal.open_channel

    def dying(*args: Any) -> None:
        if when == "after":
            real(*args)
        raise Killed

    journal.open_channel = dying
    last = hello(1, world_size=2, config={"disable_tensorboard": False})
    with suppress(Killed):
        house.open(last)
    house.kill()
    house.start()
    run, channel = house.open(last)
    assert run.facts["sinks"] == ["tensorboard"]
    assert run.facts["attempts"][-1]["ranks"]["1"]["pid"] == last.pid
    assert channel.attempt == 1


def test_a_full_disk_while_a_channel_is_begun_costs_the_start_no_further_attempt(
    house: House, hello: MakeHello
):
    """Where the run's own folder is full as well, this node alone counts the attempts."""
    run, _ = house.open(hello(0))
    begin = run.logs.open_channel

    def full(*_args: Any) -> None:
        raise OSError(errno.ENOSPC, "no room")

    run.logs.open_channel = full
    for _ in range(2):
        with pytest.raises(OSError):
            run.open_channel(hello(1), Claim(0, problem="no room"), 1)
    run.logs.open_channel = begin
    assert run.open_channel(hello(1), Claim(0, problem="no room"), 1).attempt == 1
    again = run.open_channel(hello(1, pid=5000, channel="again"), Claim(0, problem="no room"), 1)
    assert again.attempt == 2


def test_a_full_disk_refuses_the_batch_and_takes_it_when_there_is_room(
    house: House, hello: MakeHello, sealed: Sealed, monkeypatch: pytest.MonkeyPatch
):
    run, channel = house.open(hello(0))
    real, room = run.logs.batch, [False]

    def full(*args: Any) -> None:
        if not room[0]:
            raise OSError(errno.ENOSPC, "no room")
        real(*args)

    run.logs.batch = full
    for _ in range(3):
        with pytest.raises(OSError):
            run.accept(channel, sealed(1, [LOG, METRICS]))
    room[0] = True
    assert run.accept(channel, sealed(1, [LOG, METRICS])) == 2
    assert house.sequence(run) == [(1, Kind.LOG)]
    assert house.sequence(run, "points") == [(2, Kind.METRICS)]


def test_what_a_lost_journal_held_is_told_and_the_stream_goes_on(
    house: House, hello: MakeHello, logged: Logged
):
    run, channel = house.open(hello(0))
    run.accept(channel, logged(1, *"abc"))
    run.miss(channel, 10)
    run.accept(channel, logged(11, "k"))
    run.end(channel, "clean")
    house.finish()
    assert debug(house) == ["a", "b", "c", "7 records are missing: the journal that held them is gone", "k"]


# -- the journal's limit --------------------------------------------------------------------------------


@pytest.fixture
def limited(house: House) -> House:
    house.kill()
    house.settings = house.settings.model_copy(update={"journal_limit_bytes": 1 << 20})
    house.start()
    return house


def test_a_journal_beyond_its_limit_lets_the_oldest_go_and_counts_it(
    limited: House, hello: MakeHello, logged: Logged, until: Until
):
    house = limited
    (house.root / "exp").write_text("no folder can be made here")
    run, channel = house.open(hello(0))
    for seq in range(1, 3001):
        run.accept(channel, logged(seq, f"{seq} {'x' * 1000}"))
    until(lambda: house.tick() or len(segments(run.logs.folder)) <= 18, "the journal is at its limit")
    (house.root / "exp").unlink()
    run.end(channel, "clean")
    house.finish()
    texts = debug(house)
    assert run.writer.files.lost == 3000 - len(texts) > 1000
    assert texts[-1].split()[0] == "3000"
    assert any("the oldest are given up" in report for report in house.reports)


def test_a_writer_that_hangs_does_not_make_the_journal_grow_without_end_and_counts_what_it_missed(
    limited: House, hello: MakeHello, logged: Logged, until: Until, monkeypatch: pytest.MonkeyPatch
):
    house, hung, release = limited, threading.Event(), threading.Event()
    run, channel = house.open(hello(0))
    run.accept(channel, logged(1, "first"))
    path = house.root / "exp" / "logs" / "pretrain" / "rank-0" / "debug.log"
    until(lambda: house.lines(path) == ["first"], "the first line")
    real = LogFiles._make_ready

    def hang(files: LogFiles, *args: Any) -> Any:
        hung.set()
        release.wait(60)
        return real(files, *args)

    monkeypatch.setattr(LogFiles, "_make_ready", hang)
    run.accept(channel, logged(2, "second"))
    assert hung.wait(30)
    for seq in range(3, 6001):
        run.accept(channel, logged(seq, f"{seq} {'x' * 1000}"))
        if seq % 100 == 0:
            house.tick()
    until(lambda: house.tick() or len(segments(run.logs.folder)) < 35, "the journal let its oldest go")
    release.set()
    run.end(channel, "clean")
    house.finish()
    texts = debug(house)
    assert texts[:2] == ["first", "second"]
    assert texts[-1].split()[0] == "6000"
    assert run.writer.files.lost == 6000 - len(texts) > 1000


def test_the_files_of_a_run_stay_below_the_allowed_roots_even_through_links_made_later(
    tmp_path: Path, hello: MakeHello, logged: Logged, until: Until, house: House
):
    house.kill()
    house.settings = house.settings.model_copy(update={"allowed_roots": (str(tmp_path / "exp"),)})
    house.start()
    outside = tmp_path / "outside"
    outside.mkdir()
    run, channel = house.open(hello(0))
    (tmp_path / "exp" / "logs" / "pretrain").symlink_to(outside)
    run.accept(channel, logged(1, "hello"))
    until(lambda: any("outside the allowed roots" in report for report in house.reports), "the refusal")
    assert not list(outside.iterdir())
    (tmp_path / "exp" / "logs" / "pretrain").unlink()
    run.end(channel, "clean")
    house.finish()
    assert debug(house) == ["hello"]


def test_a_module_may_have_another_level_for_its_files(house: House, hello: MakeHello, sealed: Sealed):
    run, channel = house.open(hello(0))
    below = (Kind.LOG, (1.7e9, 10, "DEBUG", "train", 7, "detail"))
    module = (Kind.MODULE, (1.7e9, "sft", 20))
    run.accept(channel, sealed(1, [below, module, below, LOG, (Kind.MODULE, (1.7e9, "rl", 10)), below]))
    run.end(channel, "clean")
    house.finish()
    assert debug(house)[0] == "detail"
    assert not (house.root / "exp/logs/sft/rank-0/debug.log").exists()
    assert house.lines(house.root / "exp/logs/sft/rank-0/info.log") == ["x"]
    assert debug(house, "rl")[0] == "detail"
