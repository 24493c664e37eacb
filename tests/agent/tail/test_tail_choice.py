"""Each rule of the table holds where its reason does, and a run's logs are found wherever one points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankside_agent.tail.choice import RULES, Question, choose
from rankside_agent.tail.filters import parse_ranks
from rankside_agent.tail.folder import FLOORS, Folder, level_file, look
from rankside_agent.tail.tree import Tree

BOTH = Folder(Path("pretrain"), "pretrain", nodes=("node-a",), ranks=("0", "1"), has_node=True)


@pytest.mark.parametrize(
    ("folder", "asked", "rule"),
    [
        (BOTH, Question(some_ranks=True), 0),
        (BOTH, Question(level=30), 1),
        (BOTH, Question(level=40), 1),
        (BOTH, Question(), 2),
        (BOTH, Question(level=20), 2),
        (BOTH._replace(ranks=()), Question(level=40, some_ranks=True), 2),
        (BOTH._replace(has_node=False), Question(), 3),
        (BOTH._replace(has_node=False, ranks=()), Question(), 4),
    ],
)
def test_each_rule_has_its_question(folder: Folder, asked: Question, rule: int) -> None:
    assert choose(folder, asked) is RULES[rule]
    assert RULES[rule].why


@pytest.mark.parametrize(
    ("present", "level", "lazy", "expected"),
    [
        ("debug info warning error", 0, False, "debug"),
        ("debug info warning error", 25, False, "info"),
        ("debug info warning error", 30, False, "warning"),
        ("debug info warning error", 50, False, "error"),
        ("info warning error", 10, False, "info"),
        ("debug info", 30, False, None),
        ("debug", 30, False, "debug"),
        ("debug", 30, True, None),
        ("info", 40, True, None),
        ("", 30, False, None),
    ],
)
def test_the_file_with_all_of_a_level_and_the_least_else_is_taken(
    present: str, level: int, lazy: bool, expected: str | None
) -> None:
    assert level_file(set(present.split()), level, lazy=lazy) == expected


def found(place: Path, **asked: Any) -> list[str]:
    """The logs below the run's logs folder, without their suffix."""
    logs = Tree([place], lambda text: None, **asked).scan()
    return ["/".join(log.path.with_suffix("").parts[-2:]) for log in logs]


@pytest.fixture
def started(run: Any) -> Any:
    for rank in (0, 1, 10):
        run.say(rank, "x", level="ERROR")
    return run


@pytest.mark.parametrize("where", ["", "logs", "logs/pretrain"])
def test_a_run_its_logs_or_a_module_may_be_given(started: Any, where: str) -> None:
    assert found(started.root / where) == ["pretrain/node-a"]


def test_the_node_logs_of_all_hosts_are_read(started: Any) -> None:
    started.say(11, "x", host="b.example.org")
    assert found(started.root) == ["pretrain/node-a", "pretrain/node-b.example.org"]


def test_rare_levels_and_single_ranks_are_read_from_the_ranks_own_files(started: Any) -> None:
    assert found(started.root, level=40) == ["rank-0/error", "rank-1/error", "rank-10/error"]
    assert found(started.root, ranks=parse_ranks("1,10")) == ["rank-1/debug", "rank-10/debug"]


def test_all_ranks_by_number_are_no_single_ranks(started: Any) -> None:
    assert found(started.root, ranks=parse_ranks("0-1023")) == ["pretrain/node-a"]


def test_a_folder_as_primus_writes_it_is_read_from_its_ranks(started: Any) -> None:
    started.node().unlink()
    assert found(started.root) == ["rank-0/debug", "rank-1/debug", "rank-10/debug"]


def test_an_emptied_node_log_does_not_hide_the_ranks(started: Any) -> None:
    started.node().write_text("")
    assert found(started.root) == ["rank-0/debug", "rank-1/debug", "rank-10/debug"]


def test_a_node_log_with_rotated_files_only_counts(started: Any) -> None:
    started.rotate(started.node(), 1, packed=True)
    assert look(started.logs / "pretrain", "pretrain").has_node


def test_modules_attempts_and_the_launcher_are_found(started: Any) -> None:
    started.say(0, "x", module="sft")
    started.say(0, "x", module="attempt-2/pretrain")
    started.append(started.logs / "master" / "master-debug.log", "x\n")
    started.append(started.logs / "master" / "master-info.log", "x\n")
    started.append(started.logs / "tensorboard" / "events.out", "x\n")
    logs = Tree([started.root], lambda text: None).scan()
    assert [(log.kind.source.label, log.stem) for log in logs] == [
        ("attempt-2/pretrain", "node-a"),
        ("master", "master-debug"),
        ("pretrain", "node-a"),
        ("sft", "node-a"),
    ]
    assert [log.kind.source.module for log in logs] == ["pretrain", "master", "pretrain", "sft"]


def test_one_module_may_be_chosen(started: Any) -> None:
    started.say(0, "x", module="sft")
    assert found(started.root, modules=frozenset({"sft"})) == ["sft/node-a"]


def test_a_log_is_found_once_and_new_ones_when_they_come(started: Any) -> None:
    tree = Tree([started.root], lambda text: None)
    tree.scan()
    started.say(8, "x", host="b")
    started.say(0, "x", module="sft")
    assert [log.path.relative_to(started.logs) for log in tree.scan()] == [
        Path("pretrain/node-b.log"),
        Path("sft/node-a.log"),
    ]
    assert tree.scan() == []


def test_a_module_that_starts_may_show_its_ranks_before_its_node_log(started: Any, node_text: Any) -> None:
    tree = Tree([started.root], lambda text: None)
    tree.scan()
    started.append(started.level(0, module="sft"), "x\n")
    assert tree.scan() == []
    started.append(started.node(module="sft"), "x\n")
    assert [log.stem for log in tree.scan()] == ["node-a"]


def test_a_source_once_chosen_stays(started: Any) -> None:
    started.node().unlink()
    tree = Tree([started.root], lambda text: None)
    assert len(tree.scan()) == 3
    started.say(0, "x")
    assert tree.scan() == []


def test_a_rank_that_writes_its_first_warning_is_found_then(started: Any) -> None:
    started.say(2, "x", level="INFO")
    tree = Tree([started.root], lambda text: None, level=30)
    assert len(tree.scan()) == 3
    started.say(2, "x", level="WARNING")
    assert [log.folder.name for log in tree.scan()] == ["rank-2"]


def test_a_link_in_a_circle_ends_and_doubles_nothing(started: Any) -> None:
    (started.logs / "attempt-3").symlink_to(started.logs)
    assert found(started.root) == ["pretrain/node-a"]


def test_a_listing_that_fails_for_a_moment_is_tried_again(started: Any) -> None:
    failures = [OSError(116, "Stale file handle"), OSError(5, "Input/output error")]

    def flaky(path: Path, label: str) -> Folder:
        if failures and path.name == "pretrain":
            raise failures.pop()
        return look(path, label)

    assert found(started.root, look=flaky) == ["pretrain/node-a"]


def test_a_listing_that_goes_on_failing_is_told_and_hides_nothing_else(started: Any) -> None:
    started.say(0, "x", module="sft")

    def failing(path: Path, label: str) -> Folder:
        if path.name == "pretrain":
            raise OSError(5, "Input/output error")
        return look(path, label)

    told: list[str] = []
    assert [log.stem for log in Tree([started.root], told.append, look=failing).scan()] == ["node-a"]
    assert told == [f"{started.logs / 'pretrain'} cannot be listed: Input/output error"]


def test_there_is_a_floor_for_each_level_file() -> None:
    assert FLOORS == {"debug": 10, "info": 20, "warning": 30, "error": 40}
