"""Read scalars back with TensorBoard's own reader."""

from __future__ import annotations

import logging
from pathlib import Path

from rankside_agent.demo.account import Point


def read(root: Path, _last: int) -> dict[str, list[Point]]:
    """Every scalar in a run's event files, as TensorBoard would draw it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = root / "tensorboard"
    if not folder.is_dir():
        return {}
    # It warns of every attempt that goes back over steps, which is what it is told to do
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    everything = {"scalars": 0}  # the reader's default thins them out
    reader = EventAccumulator(str(folder), size_guidance=everything)
    reader.Reload()
    tags = reader.Tags()["scalars"]
    return {tag: [Point(event.step, event.value) for event in reader.Scalars(tag)] for tag in tags}
