"""What one poll of a node's GPUs costs, beside the start of a tool for each; and what an idle node pays.

Separate because it needs no agent and no GPU: the real `amdsmi` over a simulated library, and a tree of
/sys in memory. So these are our own costs, to which a real driver adds its own, for every way alike.
"""

from __future__ import annotations

import json
import sys

from command import Took, columns, timed
from figures import Section, Value, median
from workplace import HERE, Workplace, hear, say

sys.path.append(str(HERE.parent / "agent" / "gpu"))
import simulated
from trees import mi300x

_POLLS = 50  # in one round of a source
INTERVAL = 15.0  # seconds, the default of an idle node
_TOOL = "start of a tool like rocm-smi"
# What the tool imports before it opens its library; it then reads what the sources read
_SCRIPT = """
import argparse, ctypes, json, logging, multiprocessing, os, re, subprocess, sys
parser = argparse.ArgumentParser()
parser.add_argument("--json", action="store_true")
parser.parse_args(["--json"])
card = {"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "301989888"}
print(json.dumps({f"card{number}": card for number in range(8)}))
"""


def measure(place: Workplace, rounds: int) -> Section:
    """Rounds in turns."""
    notes = [
        f"8 GPUs; {rounds} rounds in turns, of {_POLLS} polls or one start; milliseconds of one",
        "amdsmi: the real package over a simulated library; sysfs: a tree of files in memory",
        "poller: the agent's thread and its child over amdsmi, with the host's values",
        f"idle node: CPU of one poll in {INTERVAL:.0f} s, in percent of one core; part: of the tool's CPU",
    ]
    section = Section("one poll of 8 GPUs", notes, ("by", "ms", "CPU ms", "rounds ms", "part", "idle node %"))
    took: dict[str, list[Took]] = {}
    workers = {name: place.start(*command, environment=more) for name, command, more in _workers(place)}
    for number in range(rounds + 1):
        for name, worker in workers.items():
            say(worker, str(_POLLS))
            told = json.loads(hear(worker))
            if number:  # the first one warms up
                each = Took(*(told[kind] * 1000 / _POLLS for kind in ("wall", "cpu")))
                took.setdefault(name, []).append(each)
        found, _ = timed(place, [sys.executable, "-c", _SCRIPT])
        if number:
            took.setdefault(_TOOL, []).append(found)
    place.end(*workers.values())
    section.rows += [_row(name, each, took[_TOOL]) for name, each in took.items()]
    return section


def _row(name: str, took: list[Took], tool: list[Took]) -> dict[str, Value]:
    share = median(mine.cpu / its.cpu for mine, its in zip(took, tool, strict=True))
    idle = median(each.cpu for each in took) / 1000 / INTERVAL * 100
    return {"by": name, **columns(took), "part": f"{share:.4f}", "idle node %": f"{idle:.4f}"}


def _workers(place: Workplace) -> list[tuple[str, tuple[str, ...], dict[str, str]]]:
    """Name, arguments and environment of each."""
    script = str(HERE / "gpu_worker.py")
    mi300x(place.memory / "sys")
    found = [("sysfs", (script, "sysfs", str(place.memory / "sys")), {})]
    if not simulated.missing():
        root = simulated.build(place.disk / "rocm")
        rules = place.disk / "gpus"
        rules.write_text("gpus - * 8\n")
        more = simulated.environment(root, rules, environ={})
        found += [(name, (script, name), more) for name in ("amdsmi", "poller")]
    return found
