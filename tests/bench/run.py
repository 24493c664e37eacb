"""All benchmarks: `python tests/bench/run.py [--quick] [--json bench.json]`. Figures, never a verdict.

Nothing here passes or fails: a machine with other work gives other figures. Every ratio is of two things
measured in turns in this run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import agent_side
import asking
import caller
import gpu_poll
import machine
import starts
import tailing
import training
from figures import Section
from rich.console import Console
from table import show, show_facts
from workplace import Agent, Workplace

_WIDTH = 160  # of the tables where the output is no terminal


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Measure rankside beside what people use.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, less data: under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file too")
    parser.add_argument("--only", choices=sorted(PARTS), action="append", help="this part; may be repeated")
    given = parser.parse_args()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    began = time.monotonic()
    facts = {**machine.facts(), "load before": machine.load(), "speed before": machine.speed()}
    show_facts(console, facts)
    found: list[Section] = []
    with Workplace() as place:
        for name in given.only or PARTS:
            for section in PARTS[name](place, given.quick):
                found.append(section)
                show(console, section)
    after = {
        "load after": machine.load(),
        "speed after": machine.speed(),
        "took": f"{time.monotonic() - began:.0f} s",
    }
    console.print()
    show_facts(console, after)
    if given.json is not None:
        value = {"machine": {**facts, **after}, "quick": given.quick, "sections": [asdict(s) for s in found]}
        given.json.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _caller(place: Workplace, quick: bool) -> Iterator[Section]:
    size = caller.Size(16, 240, 2, 100) if quick else caller.Size(80, 400, 6, 250)
    for found in caller.measure(place, size):
        if isinstance(found, Agent):
            yield asking.measure(place, found, 2 if quick else 11)
        else:
            yield found


def _agent(place: Workplace, quick: bool) -> Iterator[Section]:
    yield agent_side.measure(place, records=30_000 if quick else 200_000, rounds=1 if quick else 3)


def _starts(place: Workplace, quick: bool) -> Iterator[Section]:
    yield starts.measure(place, 5 if quick else 21)


def _tail(place: Workplace, quick: bool) -> Iterator[Section]:
    yield tailing.measure(place, 200_000_000 if quick else 2_000_000_000, 2 if quick else 7)


def _gpu(place: Workplace, quick: bool) -> Iterator[Section]:
    yield gpu_poll.measure(place, 3 if quick else 21)


def _training(place: Workplace, quick: bool) -> Iterator[Section]:
    yield from training.measure(place, 2 if quick else 10, 40 if quick else 100)


PARTS = {
    "caller": _caller,
    "training": _training,
    "agent": _agent,
    "import": _starts,
    "tail": _tail,
    "gpu": _gpu,
}


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
