"""How long a question to a living agent takes: the round trip, and the whole command as people type it."""

from __future__ import annotations

import subprocess
import sys
import time

from figures import Section, Value, median, spread
from workplace import Agent, Workplace

from rankside_agent.ask import ask


def measure(place: Workplace, agent: Agent, rounds: int) -> Section:
    """Beside `rankside --version`, the start of the command alone."""
    notes = ["an agent with one living rank; round trip: connect, ask, answer, in a process that runs"]
    section = Section("rankside status", notes, ("what", "ms", "rounds ms"))
    trips = [_trip(agent) for _ in range(10 * rounds)]
    whole: dict[str, list[float]] = {"--version": [], "status": []}
    for _ in range(rounds):
        for command, took in whole.items():
            took.append(_command(place, agent, command))
    section.rows.append(_row("round trip", trips))
    section.rows.append(_row("rankside status, the whole command", whole["status"]))
    section.rows.append(_row("rankside --version, for its start", whole["--version"]))
    return section


def _row(title: str, took: list[float]) -> dict[str, Value]:
    return {"what": title, "ms": median(took), "rounds ms": spread(took)}


def _trip(agent: Agent) -> float:
    start = time.perf_counter()
    answer = ask(agent.endpoint, "status")
    took = (time.perf_counter() - start) * 1000
    if not answer["runs"]:
        raise RuntimeError("the agent knows no run: an empty answer is no measure")
    return took


def _command(place: Workplace, agent: Agent, command: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "rankside_agent", command],
        stdout=subprocess.DEVNULL,
        check=True,
        env=place.environment(agent.environment),
        cwd=place.disk,
    )
    return (time.perf_counter() - start) * 1000
