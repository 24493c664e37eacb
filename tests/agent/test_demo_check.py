"""The demo's check of its own result: it passes what is whole and fails on every kind of thing missing."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tensorboard", reason="the demo's extra is not installed")

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from rankside.identity import host, safe_name
from rankside_agent.demo.account import Account, Line, Point, load_all
from rankside_agent.demo.check import LEVEL_FILES, Finding, check, records_before
from rankside_agent.demo.trackers import TRACKERS

NAMES = {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}
NODE_LOG = f"logs/pretrain/node-{safe_name(host())}.log"
LOSSES = {step: 5.0 - step / 10 for step in range(1, 21)}


class Result:
    """A whole result of two ranks on disk, and the ranks' accounts of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        lines = [Line(10, f"step {step}: 9 ms", False) for step in range(3)]
        lines += [Line(20, "loss 2.5", False), Line(30, "slow batch", False), Line(40, "broken sample", True)]
        points = {
            "lm loss": [Point(*item) for item in LOSSES.items()],
            "grad norm": [Point(step, 0.1 * step) for step in LOSSES],
        }
        self.accounts = [Account(rank, 2, str(root), list(lines), dict(points)) for rank in range(2)]

    def write(self) -> Result:
        for account in self.accounts:
            self.write_rank(account)
        node = [f"[20260102 03:04:05.000001]{_rest(a, line)}" for a in self.accounts for line in a.lines]
        self.put(NODE_LOG, "".join(node).replace("\n  ", "\n[20260102 03:04:05.000001]| "))
        self.write_scalars()
        return self

    def write_rank(self, account: Account) -> None:
        head = "[20260102 03:04:05][team/me][pretrain   ][ip-127.0.0.1]"
        for stem, level in LEVEL_FILES.items():
            kept = [f"{head}{_rest(account, line)}" for line in account.lines if line.level >= level]
            self.put(f"logs/pretrain/rank-{account.rank}/{stem}.log", "".join(kept).replace("\n  ", "\n"))

    def write_scalars(self, skip: int = 0, add: float = 0.0) -> None:
        for path in self.root.glob("tensorboard/*"):
            path.unlink()
        writer = EventFileWriter(str(self.root / "tensorboard"))
        for tag, points in self.accounts[-1].points.items():
            for step, value in points:
                if step != skip:
                    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value + add)])
                    writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        writer.close()

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def edit(self, name: str, change: Callable[[str], str]) -> None:
        path = self.root / name
        before = path.read_text()
        path.write_text(change(before))
        assert path.read_text() != before

    def problems(self) -> list[str]:
        return [each.problem for each in self.findings() if each.problem]

    def findings(self) -> list[Finding]:
        return check(self.accounts, 2, {})


def _rest(account: Account, line: Line) -> str:
    """From the rank on; the lines of a traceback are marked by two blanks."""
    trace = "  Traceback (most recent call last):\n  ValueError: x\n" if line.traceback else ""
    level = f"[{NAMES[line.level]}]"
    return f"[rank-{account.rank}/2]{level:<11}[-----------train.py:12] : {line.text}\n{trace}"


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return Result(tmp_path).write()


def test_a_whole_result_has_no_problem(result: Result) -> None:
    assert result.problems() == []
    assert [(each.what, each.said, each.found) for each in result.findings()] == [
        ("rank 0: debug/info/warning/error", "6/3/2/1", "6/3/2/1"),
        ("rank 1: debug/info/warning/error", "6/3/2/1", "6/3/2/1"),
        ("all ranks: node log", "12", "12"),
        ("TensorBoard: lm loss", "20", "20"),
        ("TensorBoard: grad norm", "20", "20"),
        ("TensorBoard: lm loss falls", "yes", "4.85 to 3.05"),
    ]


@pytest.mark.parametrize("stem", LEVEL_FILES)
def test_a_missing_line_is_found_in_each_level_file(result: Result, stem: str) -> None:
    name = f"logs/pretrain/rank-1/{stem}.log"
    result.edit(name, lambda text: "".join(text.partition("broken")[0].rpartition("\n")[:2]))
    assert result.problems() == [f"{stem}.log lacks 1, first 'broken sample'"]


def test_a_line_that_is_there_twice_is_found(result: Result) -> None:
    result.edit("logs/pretrain/rank-0/debug.log", lambda text: text.split("\n")[0] + "\n" + text)
    assert result.problems() == ["debug.log has too many: 1, first 'step 0: 9 ms'"]


def test_lines_in_another_order_are_found(result: Result) -> None:
    result.edit(
        "logs/pretrain/rank-0/debug.log",
        lambda text: text.replace("p 0:", "p x:").replace("p 1:", "p 0:").replace("p x:", "p 1:"),
    )
    assert result.problems() == ["debug.log is not in order"]


def test_a_changed_text_is_found(result: Result) -> None:
    result.edit("logs/pretrain/rank-0/warning.log", lambda text: text.replace("slow batch", "slow catch"))
    assert result.problems() == ["warning.log lacks 1, first 'slow batch'"]


def test_a_missing_traceback_is_found(result: Result) -> None:
    result.edit("logs/pretrain/rank-1/error.log", lambda text: text.replace("Traceback", "Trace"))
    assert result.problems() == ["error.log lacks 1, first 'broken sample'"]


def test_a_missing_file_is_found(result: Result) -> None:
    (result.root / "logs/pretrain/rank-0/info.log").unlink()
    assert result.problems() == ["info.log lacks 3, first 'loss 2.5'"]


def test_a_rank_that_is_missing_from_the_node_log_is_found(result: Result) -> None:
    keep = [line for line in result.root.joinpath(NODE_LOG).read_text().split("\n") if "rank-1" not in line]
    result.put(NODE_LOG, "\n".join(keep))
    assert result.problems() == [f"{NODE_LOG.rpartition('/')[2]} lacks 6, first 'step 0: 9 ms'"]


def test_a_missing_scalar_is_found(result: Result) -> None:
    result.write_scalars(skip=7)
    assert result.problems() == ["TensorBoard lacks 1, first 7"] * 2


def test_a_scalar_of_another_value_is_found(result: Result) -> None:
    result.write_scalars(add=0.001)
    assert result.problems() == ["TensorBoard has 20 other values, first at step 1"] * 2


def test_no_event_file_at_all_is_found(result: Result) -> None:
    for path in result.root.glob("tensorboard/*"):
        path.unlink()
    assert result.problems() == ["TensorBoard lacks 20, first 1"] * 2 + ["there is nothing to fall"]


def test_each_tracker_is_checked_and_one_that_has_nothing_is_found(result: Result) -> None:
    found = check(result.accounts, 2, {}, list(TRACKERS))
    for name, tracker in TRACKERS.items():
        problems = [each.problem for each in found if each.what.startswith(f"{tracker.title}: ")]
        lacks = [f"{tracker.title} lacks 20, first 1"] * 2 + ["there is nothing to fall"]
        assert problems == (["", "", ""] if name == "tensorboard" else lacks)


def test_files_that_cannot_be_read_are_found(result: Result) -> None:
    (result.root / "mlflow.db").write_text("no database")
    (found,) = (each for each in check(result.accounts, 2, {}, ["mlflow"]) if each.what.startswith("MLflow"))
    assert found.problem.startswith("cannot be read: ")


def test_a_loss_that_rises_is_found(result: Result) -> None:
    last = result.accounts[-1]
    last.points["lm loss"] = [Point(step, -value) for step, value in last.points["lm loss"]]
    result.write_scalars()
    assert result.problems() == ["it does not fall"]


def test_a_rank_without_an_account_is_found(result: Result) -> None:
    assert [each.problem for each in check(result.accounts[:1], 2, {})] == ["none of rank 1"]


def test_what_earlier_attempts_wrote_is_not_counted(result: Result) -> None:
    before = records_before(result.root)
    for path in result.root.glob("logs/*/*/*.log"):
        path.write_text(2 * path.read_text())
    node = result.root / NODE_LOG
    node.write_text(2 * node.read_text())
    assert [each.problem for each in check(result.accounts, 2, before) if each.problem] == []
    assert len(result.problems()) == 3


def test_what_was_rotated_away_is_counted(result: Result) -> None:
    live = result.root / "logs/pretrain/rank-0/debug.log"
    lines = live.read_text().split("\n")
    for number, end in enumerate(("1.log", "1.1.log.gz", "2.log")):
        part = f"{lines[number]}\n".encode()
        path = live.with_name(f"debug.2026-12-02_07-18-53_15974{end}")
        path.write_bytes(gzip.compress(part) if end.endswith("gz") else part)
    live.write_text("\n".join(lines[3:]))
    assert result.problems() == []


def test_an_account_survives_its_file(result: Result, tmp_path: Path) -> None:
    for account in result.accounts:
        account.save(tmp_path / "accounts")
    assert load_all(tmp_path / "accounts") == result.accounts
