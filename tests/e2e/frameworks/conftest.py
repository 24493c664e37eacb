"""Real frameworks, each in its own environment, on ranks of their own beside a real agent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("RANKSIDE_FRAMEWORKS") or HERE.parents[2] / ".frameworks")
PATIENCE = 175.0  # seconds for one training


class Trained:
    """What a training left behind, read as its users would."""

    def __init__(self, node) -> None:
        self._node = node
        self.output = node.log("training")

    def texts(self, rank: int) -> list[str]:
        return self._node.texts(rank)

    def scalars(self, name: str) -> dict[int, float]:
        """Those of a name in the agent's event files, by step."""
        return self.read()[name]

    def names(self) -> set[str]:
        return set(self.read())

    def read(self, folder: Path | None = None) -> dict[str, dict[int, float]]:
        reader = self._reader(folder)
        found = {tag: reader.Scalars(tag) for tag in reader.Tags()["scalars"]}
        for tag, events in found.items():
            steps = [event.step for event in events]
            if "validation" not in tag:  # of three data sets, which Megatron writes under one name
                assert len(steps) == len(set(steps)), f"{tag}: a step is there twice: {steps}"
        return {tag: {event.step: event.value for event in events} for tag, events in found.items()}

    def param(self, name: str) -> str:
        """From the table of parameters that the agent writes as a text."""
        (event, *_) = self._reader(None).Tensors("params")
        table = event.tensor_proto.string_val[0].decode().replace("\\", "")
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {name} |")]
        return row.split("|")[2].strip()

    def texts_shown(self) -> set[str]:
        """Tags of texts: parameters and events."""
        return set(self._reader(None).Tags()["tensors"])

    def _reader(self, folder: Path | None):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        everything = {"scalars": 0, "tensors": 0}
        return EventAccumulator(
            str(folder or self._node.exp / "tensorboard"), size_guidance=everything
        ).Reload()


@pytest.fixture
def train(node) -> Callable[..., Trained]:
    """Run a script of this folder under torchrun in a framework's environment, until all is delivered."""

    def run(framework: str, script: str, ranks: int = 2, **env: str) -> Trained:
        python = FOLDER / framework / "bin" / "python"
        if not (FOLDER / ".ready").exists():
            pytest.fail(
                f"{FOLDER}: no environments; make them with {HERE / 'setup.sh'}, or `make frameworks`"
            )
        node.agent()
        launcher = [str(python), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        env = {"OMP_NUM_THREADS": "1", "EXP_ROOT": str(node.exp), "TMPDIR": str(node.base), **env}
        training = node._start([*launcher, str(HERE / script)], "training", env)
        assert training.wait(PATIENCE) == 0, node.outputs()
        if "RANKSIDE_DISABLE" not in env:
            node.until(node.all_delivered, "the run put away", 120)
        return Trained(node)

    return run
