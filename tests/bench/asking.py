"""How long a question to a living agent takes: the round trip, and the whole command as people type it."""

from __future__ import annotations

import time

from command import Took, columns, rankside, timed
from figures import Section, median, spread
from workplace import Agent, Workplace

from rankside_agent.ask import ask


def measure(place: Workplace, agent: Agent, rounds: int) -> Section:
    """Beside `rankside --version`, the start of the command alone."""
    notes = ["an agent with one living rank; round trip: connect, ask, answer, in a process that runs"]
    section = Section("rankside status", notes, ("what", "ms", "CPU ms", "rounds ms"))
    trips = [_trip(agent) for _ in range(10 * rounds)]
    whole: dict[str, list[Took]] = {"status": [], "--version": []}
    for number in range(rounds + 1):
        for command, took in whole.items():
            found, _ = timed(place, rankside(command), agent.environment)
            if number:  # the first compiles
                took.append(found)
    section.rows.append({"what": "round trip", "ms": median(trips), "rounds ms": spread(trips)})
    section.rows.append({"what": "rankside status, the whole command", **columns(whole["status"])})
    section.rows.append({"what": "rankside --version, for its start", **columns(whole["--version"])})
    return section


def _trip(agent: Agent) -> float:
    start = time.perf_counter()
    answer = ask(agent.endpoint, "status")
    took = (time.perf_counter() - start) * 1000
    if not answer["runs"]:
        raise RuntimeError("the agent knows no run: an empty answer is no measure")
    return took
