"""Play the plan of a seed on a real node, then ask the checker: `python -m tests.chaos.drive --seed 7`.

Separate from the plan, the deeds and the checker; it knows time, order and the end. Exit status 1: a finding,
whose folder is kept and named.
"""

from __future__ import annotations

import argparse
import heapq
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count

from tests.chaos import check, deeds
from tests.chaos.plan import NEVER, Deed, Plan, plan
from tests.chaos.stage import Stage

_RANKS_END = 120.0  # seconds after the last deed
_DELIVERED = 180.0  # a sink that was killed again and again is started ever later
_AGENT_ENDS = 30.0


class Drive:
    """One run. What is due next lies in a heap by its time."""

    def __init__(self, plan: Plan, keep: bool = False) -> None:
        self._plan = plan
        self._keep = keep  # a sound run's folder, too
        self._stage = Stage(plan)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._began = 0.0
        self._begun = 0  # starts
        self._asked = False  # whether the next one is due
        self.findings: list[str] = []
        self.done: list[str] = []  # deeds, as they were done

    def run(self) -> list[str]:
        """All of it; what was found."""
        keep = True
        try:
            self._stage.start_trackers()
            self._play()
            self._settle()
            self.findings += self._stage.exits
            self.findings += check.findings(
                self._stage.exp,
                self._stage.kept,
                self._stage.oracle,
                self._stage.mlflow_uri,
                self._plan.trackers,
            )
            self.findings += _complaints(self._stage)
            keep = bool(self.findings) or self._keep
        finally:
            self._stage.close(keep)
        if self.findings:
            (self._stage.base / "findings.txt").write_text("\n".join([*self.done, *self.findings]))
        return self.findings

    @property
    def folder(self) -> str:
        """What is kept."""
        return str(self._stage.base)

    # -- time ----------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _at(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (seconds, next(self._serial), work))

    def _play(self) -> None:
        self._began = time.monotonic()
        if self._plan.late < NEVER:
            self._at(max(0.0, self._plan.late), self._stage.start_agent)
        self._at(max(0.0, -self._plan.late), self._next_start)
        offset = max(0.0, -self._plan.late)
        for deed in self._plan.deeds:
            self._at(deed.at + offset, lambda deed=deed: self._do(deed))  # type: ignore[misc]
        while self._due or self._stage.ranks or self._begun < len(self._plan.starts):
            self._step()

    def _next_start(self) -> None:
        self._stage.start_ranks(self._plan.starts[self._begun])
        self._begun += 1
        self._asked = False

    def _step(self) -> None:
        while self._due and self._due[0][0] <= self._now:
            heapq.heappop(self._due)[2]()
        if self._stage.agent_gone():
            self._at(self._now + 0.2, self._stage.start_agent)
        self._stage.reap()
        if 0 < self._begun < len(self._plan.starts) and not self._asked:
            following = self._plan.starts[self._begun]
            living = [key for key in self._stage.ranks if key[0] == self._begun]
            over = len(living) <= (self._plan.starts[self._begun - 1].world // 2 if following.gap < 0 else 0)
            if over:
                self._asked = True
                self._at(self._now + max(0.0, following.gap), self._next_start)
        if self._now > 600:
            raise TimeoutError("the plan does not come to its end")
        time.sleep(0.005)

    def _do(self, deed: Deed) -> None:
        self.done.append(f"{self._now:.3f} {deed}")
        undo = deeds.do(self._stage, deed.what, deed.how)
        if undo is not None:
            self._at(self._now + undo[0], undo[1])

    # -- the end -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        stage = self._stage
        stage.heal()
        self._until(stage.children_over, _RANKS_END, "forked children do not end")
        if not self._until(self._through, _DELIVERED, "not all is delivered"):
            self.findings.append(stage.status())
        stage.expected = True
        if stage.agent is not None:
            stage.agent.terminate()
        self._until(
            lambda: stage.agent is None or stage.agent.poll() is not None, _AGENT_ENDS, "the agent stays"
        )

    def _through(self) -> bool:
        """With an agent that is there, whoever sent the last one away."""
        if self._stage.agent_gone() or self._stage.agent is None:
            self._stage.start_agent()
        return self._stage.delivered()

    def _until(self, true: Callable[[], bool], seconds: float, otherwise: str) -> bool:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                self.findings.append(otherwise)
                return False
            time.sleep(0.05)
        return True


def _complaints(stage: Stage) -> list[str]:
    """What a process said that none should."""
    found = []
    for path in stage.base.glob("*.out"):
        text = path.read_text(errors="replace")
        if path.name == "agent.out":
            found += [
                f"agent: {line}" for line in text.splitlines() if "Traceback" in line or " ERROR " in line
            ]
        elif text.count("Traceback") > text.count("RuntimeError: as planned"):
            found.append(f"{path.name}: a traceback that is not planned")
    return found


def main() -> int:
    """Every seed that was asked for; 1 where one had a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=[0], nargs="+")
    parser.add_argument("--to", type=int, help="and all seeds from the first to this one")
    parser.add_argument(
        "--trackers", default="", help="tensorboard,mlflow,wandb,mlflow-server instead of those drawn"
    )
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="the folder of a sound run, too")
    parser.add_argument("--quiet", action="store_true", help="no plans")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it leaves no process behind
    os.nice(asked.nice)
    seeds = range(asked.seed[0], asked.to + 1) if asked.to else asked.seed
    return max([_one(seed, asked) for seed in seeds])


def _one(seed: int, asked: argparse.Namespace) -> int:
    made = plan(seed, asked.trackers)
    if not asked.quiet:
        print("\n".join(made.lines()), flush=True)
    drive = Drive(made, asked.keep)
    began = time.monotonic()
    try:
        findings = drive.run()
    except Exception as error:
        findings = [f"the driver itself: {type(error).__name__}: {error}"]
    seconds = time.monotonic() - began
    said = f"{len(findings)} findings" if findings else "sound"
    where = [f"see {drive.folder}"] if findings or asked.keep else []
    print("\n  ".join([f"seed {seed}: {said}, {seconds:.0f} s", *findings[:40], *where]), flush=True)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
