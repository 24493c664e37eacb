"""One rank of a chaos run: a real client that writes all kinds of records and says so to its witness.

Separate from the driver because it is what a training would be: it imports the client, nothing of the
agent and no torch, and may be killed or frozen anywhere. `python -m tests.chaos.rank '{...}'`
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.chaos import shifted
from tests.chaos.testimony import LEVELS, Call, Witness, text_of

STDLIB = ("INFO", "WARNING", "ERROR", "CRITICAL")
# more than ASCII, and what a careless formatter would take for its own
FILLERS = ("", "plain", "{0} {braces} %s %d <red>tags</red>", "héllo 世界 😀", "tab\tand \x1b[31mred\x1b[0m")


class Stream:
    """What one thread of one process does, number by number."""

    def __init__(self, told: dict[str, Any], name: str, witness: Witness, mon: Any) -> None:
        self.told, self.name, self._witness, self._mon = told, name, witness, mon
        self.chance = random.Random(f"{told['seed']} {name}")
        self._logger = logging.getLogger("train")
        self._number = 0
        self._step = int(told["first_step"]) - 1
        self._sampled = False
        self._pick = (
            ["log"] * 14 + ["event"] + (["metrics"] * 4 + ["throughput"] if name.endswith("m") else [])
        )

    def one(self) -> None:
        """One call, of a kind that the seed says; the first is metrics, so that the last rank speaks."""
        first = self._number == 0 and self.name.endswith("m")
        getattr(self, f"_{'metrics' if first else self.chance.choice(self._pick)}")()

    def _log(self) -> None:
        level = self.chance.choice(list(LEVELS))
        filler = self.chance.choice(FILLERS) + "x" * self.chance.choice((0, 0, 30, 200, self.told["longest"]))
        if self.chance.random() < 0.1:
            filler += "\nand a second line\n  and a third"
        call = self._call("log", level=level)
        text = text_of(self.name, call.number, filler)
        if level in STDLIB and self.chance.random() < 0.5:
            self._logger.log(LEVELS[level], "%s", text)
        else:
            self._mon.log(text, level=level)
        self._done(call)

    def _event(self) -> None:
        call = self._call("event")
        self._mon.event("chaos", stream=self.name, number=call.number)
        self._done(call)

    def _metrics(self) -> None:
        """A value of each call that float32 holds exactly: nothing else has it."""
        self._step, self._sampled = self._step + 1, False
        value = float(self.told["start"] * 2_000_000 + self.told["rank"] * 200_000 + self._number + 1)
        call = self._call("metrics", step=self._step, value=value)
        self._mon.metrics({"value": value}, step=self._step)
        self._done(call)

    def _throughput(self) -> None:
        if self._sampled:
            return
        self._sampled = True
        seconds = float(self._number + 1 + self.told["start"] * 2_000_000)
        call = self._call("throughput", step=self._step, value=seconds)
        self._mon.throughput(step=self._step, elapsed_s=seconds, global_batch_size=8, seq_length=128)
        self._done(call)

    def _call(self, kind: str, **what: Any) -> Call:
        self._number += 1
        call = Call(self._number, kind, what)
        self._witness.begun(self.name, call)
        return call

    def _done(self, call: Call) -> None:
        self._witness.returned(self.name, call.number)


def main() -> None:
    """To its planned end, unless somebody ends it before."""
    told = json.loads(sys.argv[1])
    shifted.shift(told["clock"])
    import rankside

    mon = rankside.init(
        exp_root=told["exp_root"],
        module_name="pretrain",
        config=told["config"],
        spool_bytes=told["spool_bytes"],
        flush_seconds=told["flush_seconds"],
    )
    mon.capture_logging()
    witness = _witness(told)
    streams = [
        Stream(told, f"k{told['start']}r{told['rank']}{name}", witness, mon) for name in told["threads"]
    ]
    Path(told["ready"]).touch()
    others = [threading.Thread(target=_work, args=(told, each, mon)) for each in streams[1:]]
    for each in others:
        each.start()
    _work(told, streams[0], mon)
    for each in others:
        each.join()
    _end(told["ending"], mon)


def _work(told: dict[str, Any], stream: Stream, mon: Any) -> None:
    main_thread = stream.name.endswith("m")
    for turn in range(told["turns"]):
        if turn == told["flood_at"]:
            for _ in range(told["flood"]):
                stream.one()
        if main_thread and turn == told["module_at"]:
            mon.set_module("sft")
        if main_thread and turn in told["fork_at"]:
            _fork(told, turn, mon)
        stream.one()
        time.sleep(stream.chance.random() * told["pause"])


def _fork(told: dict[str, Any], turn: int, mon: Any) -> None:
    """As a data loader's worker: it logs, and leaves in one way or another."""
    pid = os.fork()
    if pid:
        return
    witness = _witness(told, child=True)
    stream = Stream(told, f"k{told['start']}r{told['rank']}f{turn}", witness, mon)
    for _ in range(stream.chance.randrange(1, 30)):
        stream.one()
        time.sleep(0.005)
    if stream.chance.random() < 0.5:
        mon.close()
    os._exit(0)


def _witness(told: dict[str, Any], child: bool = False) -> Witness:
    names = ("start", "rank", "world", "ending")
    facts = {name: told[name] for name in names}
    return Witness(
        Path(told["oracle"]), {**facts, "child": child, "pid": os.getpid(), "born": time.monotonic()}
    )


def _end(how: str, mon: Any) -> None:
    if how == "close":
        mon.close()
    elif how == "_exit":
        os._exit(0)
    elif how == "raise":
        raise RuntimeError("as planned")


if __name__ == "__main__":
    main()
