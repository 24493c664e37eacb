"""`rankside tail -n 100` on a run of gigabytes beside one of megabytes: it should read ends of files only."""

from __future__ import annotations

import shutil
from pathlib import Path

import logs
from command import Took, columns, rankside, timed
from figures import Section, median
from workplace import Workplace

_LINES = 100
_SMALL = 20_000_000
_START = "rankside --version, for its start"


def measure(place: Workplace, size: int, rounds: int) -> Section:
    """Whole commands, in turns; the folders are deleted again at once."""
    small, large = place.disk / "small", place.disk / "large"
    try:
        few = logs.write(small, _SMALL, rotation=1_000_000)
        many = logs.write(large, size)
        commands = _commands(small, f"{few / 1e6:,.0f} MB") | _commands(large, f"{many / 1e9:.2f} GB")
        commands[_START] = rankside("--version")
        took: dict[str, list[Took]] = {title: [] for title in commands}
        for number in range(rounds + 1):
            for title, command in commands.items():
                found = _once(place, command)
                if number:  # the first compiles
                    took[title].append(found)
    finally:
        shutil.rmtree(large, ignore_errors=True)
        shutil.rmtree(small, ignore_errors=True)
    return _section(took)


def _commands(folder: Path, size: str) -> dict[str, list[str]]:
    node = folder / "logs" / "pretrain" / "node-host.log"
    lines = ("tail", "-n", str(_LINES), str(folder))
    return {
        f"rankside tail, {size}": rankside(*lines),
        f"rankside tail --rank 3, {size}": rankside(*lines, "--rank", "3"),
        f"rankside tail --level WARNING, {size}": rankside(*lines, "--level", "WARNING"),
        f"tail of the node log, {size}": ["tail", "-n", str(_LINES), str(node)],
    }


def _once(place: Workplace, command: list[str]) -> Took:
    took, printed = timed(place, command)
    found = printed.count("\n")
    if found != _LINES and "--version" not in command:
        raise RuntimeError(f"{' '.join(command)} printed {found} lines, not {_LINES}")
    return took


def _section(took: dict[str, list[Took]]) -> Section:
    notes = [
        f"{logs.RANKS} ranks' debug and info logs and the node log in files of 10 MB, in the page cache",
        "each rank has a warning.log of some kilobytes beside them",
    ]
    section = Section(
        f"rankside tail -n {_LINES}", notes, ("command", "CPU x start", "ms", "CPU ms", "rounds ms")
    )
    for title, found in took.items():
        ratios = [mine.cpu / base.cpu for mine, base in zip(found, took[_START], strict=True)]
        section.rows.append({"command": title, "CPU x start": median(ratios), **columns(found)})
    return section
