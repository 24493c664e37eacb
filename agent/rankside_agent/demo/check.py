"""Hold what rankside wrote against what the ranks say they logged: every line and every scalar, each once.

Separate from the command, so that tests can prove that it fails when something is missing. It reads the files
as a stranger would, with a pattern and the trackers' own readers, and shares no code with what wrote them.
"""

from __future__ import annotations

import gzip
import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from rankside.identity import host, safe_name
from rankside_agent.demo.account import Account, Point
from rankside_agent.demo.trackers import TRACKERS, reader

LEVEL_FILES = {"debug": 10, "info": 20, "warning": 30, "error": 40}
LOSS = "lm loss"
# Fits the level files and the node log: in both, rank, level and place come in this order.
_RECORD = re.compile(r"\[rank-(\d+)/\d+\]\[[^\]]+\] *\[-*train\.py:\d+\] : (.*)")
_TRACEBACK = re.compile(r"(^|\| )Traceback \(most recent call last\):")
_STAMP = re.compile(r"\.(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+)(?:\.(\d+))?\.log(?:\.gz)?$")
_CLOSE = 1e-6  # event files hold numbers of four bytes
Item = TypeVar("Item", bound=Hashable)


class Finding(NamedTuple):
    """One thing that was checked: what the ranks say, what the files hold, and how the two differ."""

    what: str
    said: str
    found: str
    problem: str = ""


class Record(NamedTuple):
    """What a log file shows of one record: whose it is, its first line, whether a traceback follows."""

    rank: int
    text: str
    traceback: bool


def records_before(exp_root: Path) -> dict[Path, int]:
    """How many records each log file holds already; they are of earlier attempts."""
    files = [*exp_root.glob("logs/*/rank-*/*.log"), *exp_root.glob("logs/*/node-*.log")]
    return {path: len(records(path)) for path in files if not _STAMP.search(path.name)}


def check(
    accounts: Sequence[Account],
    world_size: int,
    before: Mapping[Path, int],
    trackers: Sequence[str] = ("tensorboard",),
) -> list[Finding]:
    """Every finding, in the order in which they are shown."""
    absent = sorted(set(range(world_size)) - {account.rank for account in accounts})
    if absent:
        who = ", ".join(map(str, absent))
        return [Finding("accounts of the ranks", str(world_size), str(len(accounts)), f"none of rank {who}")]
    root = Path(accounts[0].exp_root)
    findings = [_level_files(account, root, before) for account in accounts]
    findings.append(_node_log(accounts, root, before))
    return [*findings, *(found for name in trackers for found in _scalars(accounts[-1], root, name))]


def records(path: Path) -> list[Record]:
    """The example's records in one log and what was rotated away from it, oldest first."""
    found: list[Record] = []
    for each in [*_rotated(path), path]:
        for line in _text(each).split("\n"):
            if match := _RECORD.search(line):
                found.append(Record(int(match[1]), match[2], traceback=False))
            elif found and _TRACEBACK.search(line):
                found[-1] = found[-1]._replace(traceback=True)
    return found


def _rotated(path: Path) -> list[Path]:
    """By their stamps, and by the count where two have the same."""
    stamps = ((_STAMP.search(each.name), each) for each in path.parent.glob(f"{path.stem}.*"))
    ordered = sorted((stamp[1], int(stamp[2] or 0), each) for stamp, each in stamps if stamp)
    return [each for _, _, each in ordered]


def _text(path: Path) -> str:
    if not path.exists():
        return ""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", "backslashreplace")


def _level_files(account: Account, root: Path, before: Mapping[Path, int]) -> Finding:
    """All four files of a rank: each holds the records of its level and above, in order."""
    said, found, problems = [], [], []
    for stem, level in LEVEL_FILES.items():
        wanted = _said(account, level)
        path = _only(root, f"logs/*/rank-{account.rank}/{stem}.log")
        held = records(path)[before.get(path, 0) :]
        said.append(str(len(wanted)))
        found.append(str(len(held)))
        problems.append(_difference(path.name, wanted, held))
    what = f"rank {account.rank}: {'/'.join(LEVEL_FILES)}"
    return Finding(what, "/".join(said), "/".join(found), next(filter(None, problems), ""))


def _node_log(accounts: Sequence[Account], root: Path, before: Mapping[Path, int]) -> Finding:
    """The aggregated log: the records of all ranks, those of each rank in its own order."""
    path = _only(root, f"logs/*/node-{safe_name(host())}.log")
    held = records(path)[before.get(path, 0) :]
    problems = [
        _difference(path.name, _said(account), [record for record in held if record.rank == account.rank])
        for account in accounts
    ]
    said = str(sum(len(account.lines) for account in accounts))
    return Finding("all ranks: node log", said, str(len(held)), next(filter(None, problems), ""))


def _said(account: Account, level: int = 0) -> list[Record]:
    return [Record(account.rank, line.text, line.traceback) for line in account.lines if line.level >= level]


def _only(root: Path, pattern: str) -> Path:
    """The file of that pattern; where there is none, one that does not exist."""
    return next(iter(sorted(root.glob(pattern))), root / pattern)


def _difference(where: str, wanted: Sequence[Item], held: Sequence[Item]) -> str:
    """How `held` is not `wanted`, in words; nothing where it is."""
    lacking, beyond = Counter(wanted) - Counter(held), Counter(held) - Counter(wanted)
    for items, verb in ((lacking, "lacks"), (beyond, "has too many:")):
        if items:
            return f"{where} {verb} {items.total()}, first {_shown(next(iter(items)))}"
    return "" if list(wanted) == list(held) else f"{where} is not in order"


def _shown(item: Hashable) -> str:
    return repr(item.text) if isinstance(item, Record) else repr(item)


def _scalars(account: Account, root: Path, name: str) -> list[Finding]:
    """What a tracker shows against the numbers of the last rank, whose they are; and that the loss fell."""
    title = TRACKERS[name].title
    last = max((point.step for points in account.points.values() for point in points), default=0)
    try:
        shown = reader(name)(root, last)
    except Exception as error:  # noqa: BLE001  foreign code on foreign files: all of its kinds mean the same
        return [Finding(f"{title}: its files", "", "", f"cannot be read: {type(error).__name__}: {error}")]
    findings = [_scalar(title, tag, points, shown.get(tag, [])) for tag, points in account.points.items()]
    return [*findings, _falling(title, shown.get(LOSS, []))]


def _scalar(title: str, tag: str, wanted: Sequence[Point], held: Sequence[Point]) -> Finding:
    problem = _difference(title, [point.step for point in wanted], [point.step for point in held])
    wrong = [said.step for said, shown in zip(wanted, held, strict=False) if not _same(said, shown)]
    if wrong and not problem:
        problem = f"{title} has {len(wrong)} other values, first at step {wrong[0]}"
    return Finding(f"{title}: {tag}", str(len(wanted)), str(len(held)), problem)


def _same(said: Point, shown: Point) -> bool:
    nan = math.isnan(said.value) and math.isnan(shown.value)
    return nan or math.isclose(said.value, shown.value, rel_tol=_CLOSE)


def _falling(title: str, points: Sequence[Point]) -> Finding:
    """Means of the first and last tenth: one step's loss is noisy."""
    if not points:
        return Finding(f"{title}: {LOSS} falls", "yes", "no points", "there is nothing to fall")
    tenth = max(1, len(points) // 10)
    first, last = (sum(value for _, value in part) / tenth for part in (points[:tenth], points[-tenth:]))
    problem = "" if last < first else "it does not fall"
    return Finding(f"{title}: {LOSS} falls", "yes", f"{first:.2f} to {last:.2f}", problem)
