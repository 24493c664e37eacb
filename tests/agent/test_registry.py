"""Runs on a node: opened, numbered, put away and taken back; the trouble of one is not that of another."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankside.identity import Hello
from rankside_agent import attempts, registry
from rankside_agent.catalog import all_runs, find_run
from rankside_agent.runs import run_id

House = Any  # of conftest.py
MakeHello = Callable[..., Hello]
Logged = Callable[..., bytes]
Until = Callable[..., None]


def facts(house: House, folder: str = "runs") -> dict[str, Any]:
    (path,) = (house.state / folder).glob("*/run.json")
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def log_path(house: House, root: str = "logs") -> Path:
    return house.root / "exp" / root / "pretrain" / "rank-0" / "debug.log"


# -- opening --------------------------------------------------------------------------------------------


def test_a_run_nobody_knew_is_begun_and_told_of(house: House, hello: MakeHello):
    run, channel = house.open(hello(0))
    assert (channel.attempt, channel.last, channel.index) == (1, 0, 1)
    told = facts(house)
    assert (told["exp_root"], told["exp_name"], told["module"]) == (
        str(house.root / "exp"),
        "exp",
        "pretrain",
    )
    (attempt,) = told["attempts"]
    assert (attempt["n"], attempt["status"], attempt["log_root"]) == (1, "running", "logs")
    assert attempt["ranks"] == {"0": {"pid": 4000, "host": "here"}}
    assert find_run(house.state, "exp").folder == run.folder


def test_ranks_of_one_start_share_its_run_and_attempt(house: House, hello: MakeHello):
    found = [house.open(hello(rank)) for rank in range(4)]
    assert len({id(run) for run, _ in found}) == 1
    assert [channel.attempt for _, channel in found] == [1] * 4
    assert sorted(facts(house)["attempts"][0]["ranks"]) == ["0", "1", "2", "3"]


def test_a_channel_that_is_known_is_found_at_once(house: House, hello: MakeHello):
    run, channel = house.open(hello(0))
    assert house.ask(hello(0)) == [(run, channel)]


def test_a_channel_whose_beginning_another_agent_took_starts_behind_it(
    house: House, hello: MakeHello, logged: Logged
):
    run, channel = house.open(hello(0), first=101)
    assert run.accept(channel, logged(101, "a", "b")) == 102


def test_the_latest_connection_of_a_waiting_channel_counts(house: House, hello: MakeHello, until: Until):
    first, second = house.ask(hello(0)), house.ask(hello(0))
    until(lambda: house.registry.settle() or second, "the second")
    assert first == []


def test_a_forked_child_belongs_to_its_parents_attempt(house: House, hello: MakeHello):
    house.open(hello(0))
    _, other = house.open(hello(0, job="job-2", channel="second"))
    assert other.attempt == 2
    (child,) = house.ask(hello(0, channel="child", parent="here-0-a", pid=5000))
    assert child[1].attempt == 1
    assert facts(house)["attempts"][0]["ranks"]["0"]["pid"] == 4000


@pytest.mark.parametrize("bad", ["relative/exp", "", "../exp", "/x/\ud800"])
def test_an_impossible_root_is_refused(house: House, hello: MakeHello, bad: str):
    with pytest.raises(ValueError, match="exp_root"):
        house.ask(hello(0, exp_root=bad))
    assert not house.registry.runs


def test_roots_that_differ_in_undecodable_bytes_only_are_different_runs(hello: MakeHello):
    assert run_id(hello(0, exp_root="/x/\udcff")) != run_id(hello(0, exp_root="/x/\udcfe"))
    assert run_id(hello(0, exp_root="/x/?")) != run_id(hello(0, exp_root="/x/\udcfe"))


@pytest.mark.parametrize(
    "name", ["../../etc", "/abs", "..", "", "a\nb", "x" * 4000, "\U0001f642" * 300, "\ud800"]
)
def test_a_run_of_any_name_stays_in_the_state_folder(house: House, hello: MakeHello, name: str):
    run, _ = house.open(hello(0, exp_name=name))
    assert run.folder.parent == house.state / "runs"
    assert [path.name for path in house.state.iterdir()] == ["runs"]
    assert [path.name for path in (house.state / "runs").iterdir()] == [run.folder.name]


# -- attempts at the same time --------------------------------------------------------------------------


def test_a_second_attempt_beside_a_living_first_writes_apart(house: House, hello: MakeHello, logged: Logged):
    run, first = house.open(hello(0))
    _, second = house.open(hello(0, job="job-2", channel="second"))
    run.accept(first, logged(1, "from the first"))
    run.accept(second, logged(1, "from the second"))
    run.end(first, "clean"), run.end(second, "clean")
    assert [attempt["log_root"] for attempt in facts(house)["attempts"]] == ["logs", "logs/attempt-2"]
    house.finish()
    assert house.lines(log_path(house)) == ["from the first"]
    assert house.lines(log_path(house, "logs/attempt-2"))[1:] == ["from the second"]
    assert [root.name for root in all_runs(house.state)[0].log_roots] == ["logs", "attempt-2"]


def test_a_second_attempt_after_the_first_goes_on_in_the_same_files(
    house: House, hello: MakeHello, logged: Logged
):
    run, first = house.open(hello(0))
    run.accept(first, logged(1, "from the first"))
    run.end(first, "clean")
    _, second = house.open(hello(0, job="job-2", channel="second"))
    run.accept(second, logged(1, "from the second"))
    run.end(second, "clean")
    house.finish()
    texts = house.lines(log_path(house))
    assert (texts[0], texts[-1]) == ("from the first", "from the second")
    assert "attempt 2" in texts[1]


def test_what_a_dead_attempt_left_is_looked_for_before_a_new_one_begins(house: House, hello: MakeHello):
    swept = []

    def sweep(run: Any) -> None:
        swept.append([channel.hello.channel for channel in run.living()])
        for channel in run.living():
            run.end(channel, "vanished")

    house.registry.before_opening = sweep
    house.open(hello(0))
    house.open(hello(0, job="job-2", channel="second"))
    assert swept == [[], ["here-0-a"]]
    assert [attempt["log_root"] for attempt in facts(house)["attempts"]] == ["logs", "logs"]


# -- the end of a run -----------------------------------------------------------------------------------


def test_a_finished_run_is_put_away_with_its_points_and_without_its_logs(
    house: House, hello: MakeHello, logged: Logged
):
    run, channel = house.open(hello(0))
    run.accept(channel, logged(1, "hello"))
    run.end(channel, "clean")
    house.finish()
    assert not list((house.state / "runs").iterdir())
    folder = house.state / "done" / run.folder.name
    assert (folder / "journal" / "points").is_dir()
    assert not (folder / "journal" / "logs").exists()
    assert not (folder / "cursors" / "logfiles.json").exists()
    assert facts(house, "done")["attempts"][0]["status"] == "finished" or channel.status == "killed"
    assert find_run(house.state, "exp").folder == folder


def test_a_run_is_not_put_away_while_a_rank_lives_or_files_wait_or_a_spool_is_left(
    house: House, hello: MakeHello, logged: Logged
):
    spool = house.root / "here-0-a"
    spool.mkdir()
    blocked = log_path(house)
    blocked.mkdir(parents=True)
    run, channel = house.open(hello(0, spool=str(spool)))
    run.accept(channel, logged(1, "hello"))
    for change in (lambda: run.end(channel, "clean"), blocked.rmdir, spool.rmdir):
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            house.tick()
            assert run.folder.exists(), change
            time.sleep(0.02)
        change()
    house.finish()
    assert house.lines(log_path(house)) == ["hello"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_new_attempt_takes_a_finished_run_back(
    house: House, hello: MakeHello, logged: Logged, killed: bool
):
    for turn in range(1, 4):
        run, channel = house.open(hello(0, job=f"job-{turn}", channel=f"c-{turn}"))
        assert channel.attempt == turn
        run.accept(channel, logged(1, f"turn {turn}"))
        run.end(channel, "clean")
        house.finish()
        if killed:
            house.kill()
            house.start()
    assert len(facts(house, "done")["attempts"]) == 3
    texts = house.lines(log_path(house))
    assert [text for text in texts if text.startswith("turn")] == ["turn 1", "turn 2", "turn 3"]


def test_a_dead_ranks_last_messages_do_not_bring_a_put_away_run_back(house: House, hello: MakeHello):
    run, channel = house.open(hello(0))
    run.end(channel, "clean")
    house.finish()
    assert house.ask(hello(0)) == []
    assert not house.registry.runs


def test_a_rank_that_was_only_lost_from_sight_is_taken_again(house: House, hello: MakeHello):
    run, channel = house.open(hello(0))
    run.end(channel, "lost")
    house.finish()
    again, channel = house.open(hello(0), first=5)
    assert (again.folder, channel.last, channel.attempt) == (run.folder, 4, 1)


def test_a_run_that_cannot_be_put_away_is_closed_and_served_again(
    house: House, hello: MakeHello, logged: Logged, monkeypatch: pytest.MonkeyPatch
):
    run, channel = house.open(hello(0))
    run.end(channel, "clean")
    (house.state / "done").write_text("a file in the way")
    house.finish()
    assert any("done" in report or "exists" in report for report in house.reports)
    (house.state / "done").unlink()
    again, channel = house.open(hello(0, job="job-2", channel="second"))
    assert again.accept(channel, logged(1, "on")) == 1


def test_the_trouble_of_one_run_is_not_that_of_the_others(
    house: House, hello: MakeHello, monkeypatch: pytest.MonkeyPatch
):
    bad, _ = house.open(hello(0, exp_name="bad", exp_root=str(house.root / "bad")))
    good, channel = house.open(hello(0, channel="good"))

    def broken(_now: float) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(bad, "tick", broken)
    good.end(channel, "clean")

    def put_away() -> bool:
        house.tick()
        return good.folder.name not in house.registry.runs

    deadline = time.monotonic() + 30
    while not put_away():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert f"run {bad.folder.name}: RuntimeError: broken" in house.reports


# -- a folder that hangs --------------------------------------------------------------------------------


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Claims in a folder named `hung` do not come back until told."""
    release, real = threading.Event(), attempts.claim

    def claim(root: Path, *more: Any) -> int:
        if root.name == "hung":
            release.wait(60)
        return real(root, *more)

    monkeypatch.setattr(attempts, "claim", claim)
    monkeypatch.setattr(registry, "CLAIM_DEADLINE", 0.3)
    yield release
    release.set()


def test_a_folder_that_hangs_delays_no_other_run_and_its_own_to_the_deadline(
    house: House, hello: MakeHello, logged: Logged, hanging: threading.Event, until: Until
):
    hung = [house.ask(hello(rank, exp_root=str(house.root / "hung"))) for rank in range(2)]
    _, channel = house.open(hello(0, channel="elsewhere"))
    assert channel.attempt == 1
    assert hung == [[], []]
    until(lambda: house.registry.settle() or all(hung), "the hung ones decided by this node")
    assert [found[0][1].attempt for found in hung] == [1, 1]
    assert any("did not answer in time" in report for report in house.reports)
    run, channel = hung[0][0]
    assert run.accept(channel, logged(1, "kept")) == 1
    hanging.set()
    again = house.open(hello(0, exp_root=str(house.root / "hung"), job="job-2", channel="next"))
    assert again[1].attempt > 1


def test_a_folder_that_cannot_be_written_is_numbered_by_this_node_and_told(house: House, hello: MakeHello):
    (house.root / "exp").write_text("a file")
    _, first = house.open(hello(0))
    _, same = house.open(hello(1))
    _, second = house.open(hello(0, job="job-2", channel="second"))
    assert (first.attempt, same.attempt, second.attempt) == (1, 1, 2)
    assert any("numbered by this node alone" in report for report in house.reports)


def test_a_start_whose_first_rank_found_no_room_in_the_folder_stays_one_attempt_when_there_is_room(
    house: House, hello: MakeHello
):
    run, first = house.open(hello(0))
    run.end(first, "clean")
    snapshot = house.root / "exp" / "snapshot"
    away = snapshot.rename(house.root / "away")
    snapshot.write_text("no room")
    later = [house.open(hello(0, job="job-2", channel="0"))[1]]
    snapshot.unlink()
    away.rename(snapshot)
    later += [house.open(hello(rank, job="job-2", channel=str(rank)))[1] for rank in (1, 2)]
    assert [channel.attempt for channel in later] == [2, 2, 2]
    assert [attempt["log_root"] for attempt in run.facts["attempts"]] == ["logs", "logs"]
    assert house.open(hello(0, job="job-3", channel="next"))[1].attempt == 3


def test_outside_the_allowed_roots_nothing_is_opened_and_the_reason_is_kept(
    tmp_path: Path, hello: MakeHello, until: Until
):
    from rankside_agent.config import Settings

    reports: list[str] = []
    settings = Settings(allowed_roots=(str(tmp_path / "allowed"),), finish_after_seconds=0)
    made = registry.Registry(tmp_path / "state", settings, reports.append, lambda: None)
    made.open(hello(0), 1, lambda *_: pytest.fail("was opened"))
    until(lambda: made.settle() or made.refused, "the refusal")
    assert "outside the allowed roots" in made.refused["here-0-a"]
    assert not (tmp_path / "exp").exists()
    for number in range(3000):
        made._complete(*_refused_opening(made, hello(0, channel=f"c{number}")))
    assert len(made.refused) <= 1000
    made.close(0.0)


def _refused_opening(made: registry.Registry, hello: Hello) -> tuple[str, Any, attempts.Claim]:
    made._opening[hello.channel] = registry.Opening(hello, 1, lambda _: None)
    return hello.channel, made._opening[hello.channel], attempts.Claim(0, refused="no")


# -- after a kill of the agent --------------------------------------------------------------------------


def test_an_agent_started_again_goes_on_with_every_unfinished_run(
    house: House, hello: MakeHello, logged: Logged
):
    for name in ("a", "b", "c"):
        run, channel = house.open(hello(0, channel=name, exp_name=name, exp_root=str(house.root / name)))
        run.accept(channel, logged(1, *"xyz"))
        if name == "b":
            run.end(channel, "clean")
    house.kill()
    house.start()
    assert len(house.registry.runs) == 3
    for name in ("a", "b", "c"):
        run, channel = house.registry.find(name)
        assert (channel.last, channel.ended, channel.attempt) == (3, name == "b", 1)
        assert run.accept(channel, logged(2, *"yzw")) == 4
    assert not house.reports


def test_one_run_that_cannot_be_opened_is_left_as_it_is_and_costs_the_others_nothing(
    house: House, hello: MakeHello
):
    for name in ("a", "b", "c", "d"):
        house.open(hello(0, channel=name, exp_name=name, exp_root=str(house.root / name)))
    house.kill()
    broken = sorted((house.state / "runs").iterdir())
    (broken[0] / "run.json").write_text("")
    shutil.rmtree(broken[0] / "journal")
    (broken[1] / "run.json").unlink()
    (broken[1] / "run.json").mkdir()  # what even root cannot read
    shutil.rmtree(broken[2] / "journal" / "logs")
    (broken[2] / "journal" / "logs").write_text("a file")
    (house.state / "runs" / "stray").write_text("a file")
    house.start()
    assert list(house.registry.runs) == [broken[3].name]
    assert len([report for report in house.reports if "cannot be opened, left as it is" in report]) == 4
    assert all(folder.exists() for folder in broken)


def test_a_run_whose_facts_were_lost_with_the_power_is_taken_up_by_its_next_rank(
    house: House, hello: MakeHello, logged: Logged
):
    run, channel = house.open(hello(0))
    run.accept(channel, logged(1, *"xyz"))
    house.kill()
    (run.folder / "run.json").write_bytes(b"\0" * 500)
    house.start()
    run, channel = house.open(hello(0))
    assert channel.last == 3
    assert facts(house)["exp_name"] == "exp"


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"exp_name": "exp"}', None])
def test_a_run_whose_facts_are_lost_is_delivered_without_another_rank(
    house: House, hello: MakeHello, logged: Logged, content: str | None
):
    run, channel = house.open(hello(7, config={"disable_tensorboard": False}))
    run.accept(channel, logged(1, *"xyz"))
    before = facts(house)
    house.kill()
    (run.folder / "run.json").unlink()
    if content is not None:
        (run.folder / "run.json").write_text(content)
    house.start()
    (run,) = house.registry.runs.values()
    assert {key: facts(house)[key] for key in before if key not in ("updated", "started", "attempts")} == {
        key: before[key] for key in before if key not in ("updated", "started", "attempts")
    }
    (was,), (attempt,) = before["attempts"], facts(house)["attempts"]
    assert {**attempt, "started": 0} == {**was, "started": 0}
    assert run.facts["sinks"] == ["tensorboard"]
    run.facts["sinks"] = []  # no tracker is needed to see the rest
    (channel,) = run.living()
    run.end(channel, "vanished")
    house.finish()
    assert house.lines(house.root / "exp" / "logs" / "pretrain" / "rank-7" / "debug.log")[:3] == [*"xyz"]


def test_facts_that_cannot_be_read_are_waited_for_told_and_never_overwritten(
    house: House, hello: MakeHello, monkeypatch: pytest.MonkeyPatch
):
    run, _ = house.open(hello(0))
    house.kill()
    path = run.folder / "run.json"
    aside = path.rename(house.root / "aside")
    path.mkdir()
    house.start()
    assert "IsADirectoryError" in house.registry.unopened[run.folder.name]
    with pytest.raises(IsADirectoryError):
        house.ask(hello(1))
    path.rmdir()
    aside.rename(path)
    monkeypatch.setattr(registry, "_TAKE_UP", 0.0)
    house.tick()
    assert not house.registry.unopened
    assert list(house.registry.runs) == [run.folder.name]


def test_a_state_folder_that_is_removed_under_a_living_run_costs_no_line(
    house: House, hello: MakeHello, logged: Logged, until: Callable[..., None]
):
    run, channel = house.open(hello(0))
    run.accept(channel, logged(1, "line 1"))
    until(lambda: log_path(house).exists() and house.lines(log_path(house)), "the first line")
    gone = house.state.rename(house.state.with_name("gone"))  # at once: the writer makes files in there
    shutil.rmtree(gone, ignore_errors=True)
    run.accept(channel, logged(2, "line 2"))  # into what nobody finds any more, until the next look
    house.tick()
    assert any(f"{run.folder}: was removed" in report for report in house.reports)
    run.accept(channel, logged(3, "line 3"))
    house.kill()
    house.start()
    run, channel = house.open(hello(0))
    assert channel.last == 3
    run.accept(channel, logged(4, "line 4"))
    run.end(channel, "clean")
    house.finish()
    assert house.lines(log_path(house)) == [f"line {number}" for number in range(1, 5)]


def test_a_thousand_finished_runs_are_not_read_at_start(house: House, hello: MakeHello):
    run, channel = house.open(hello(0))
    run.end(channel, "clean")
    house.finish()
    folder = house.state / "done" / run.folder.name
    for number in range(1000):
        copy = house.state / "done" / f"old-{number}"
        copy.mkdir()
        shutil.copy(folder / "run.json", copy / "run.json")
    house.open(hello(0, job="job-2", channel="second"))
    house.kill()
    before = _reads()
    house.start()
    assert _reads() - before < 60
    assert len(house.registry.runs) == 1


def _reads() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("syscr")))


@pytest.mark.parametrize("content", ['{"updated": %f}', '{"updated": null}', "", "[]"])
def test_old_finished_runs_go_and_what_cannot_be_read_goes_by_its_age(
    house: House, monkeypatch: pytest.MonkeyPatch, content: str
):
    import os

    long_ago = time.time() - 15 * 86400
    for name, when in (("old", long_ago), ("young", time.time())):
        folder = house.state / "done" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(content % when if "%" in content else content)
        os.utime(folder, (when, when))
    look_for_old_runs(house)
    look_for_old_runs(house)
    assert [path.name for path in (house.state / "done").iterdir()] == ["young"]


def look_for_old_runs(house: House) -> None:
    house.registry._pruned = -1e9
    house.tick()


def test_a_clock_that_is_years_ahead_for_a_while_costs_no_finished_run(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    folder = house.state / "done" / "young"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(f'{{"updated": {time.time()}}}')
    true = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: true() + 3.15e8)
        look_for_old_runs(house)
    for _ in range(3):
        look_for_old_runs(house)
    assert folder.exists()
