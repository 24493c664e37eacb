"""One training of the demo's model, watched in one way: a block of steps at a time, when it is told to.

    python train_worker.py WAY FOLDER

A step is the model's forward, backward and update, then LINES log lines and SCALARS scalars given to whatever
watches. Separate processes, so that blocks of different ways alternate and yet share nothing. On stdin the
number of steps; on stdout the nanoseconds of each, whole and of the watching alone.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from time import perf_counter_ns

from samples import MANY_SCALARS, TEXT

LINES = 10
Watch = Callable[[int], None]
BATCH, LENGTH, WIDTH, LAYERS, HEADS = 8, 64, 64, 2, 4  # as the demo's


@contextmanager
def nothing(_folder: Path) -> Iterator[Watch]:
    """The training alone."""
    yield lambda step: None


@contextmanager
def in_process(folder: Path) -> Iterator[Watch]:
    """As the front end does it, in the step: loguru with four files, TensorBoard, MLflow's client."""
    import mlflow
    from setups import loguru_four
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))
    with loguru_four(folder) as calls, mlflow.start_run():
        log, _ = calls["log"]

        def watch(step: int) -> None:
            for _ in range(LINES):
                log(TEXT)
            for name, value in MANY_SCALARS.items():
                writer.add_scalar(name, value, step)
            with suppress(mlflow.MlflowException):  # it hangs, and MLFLOW_HTTP_REQUEST_TIMEOUT has passed
                mlflow.log_metrics(MANY_SCALARS, step=step)

        yield watch


@contextmanager
def rankside_watch(folder: Path) -> Iterator[Watch]:
    """The same calls through rankside, with the same trackers behind its agent."""
    import rankside

    mon = rankside.init(
        exp_root=folder, rank=0, world_size=1, disable_tensorboard=False, disable_mlflow=False
    )
    mon.capture_logging()
    log = logging.getLogger("train").info

    def watch(step: int) -> None:
        for _ in range(LINES):
            log(TEXT)
        mon.metrics(MANY_SCALARS, step=step)

    yield watch
    mon.close()


WAYS: dict[str, Callable[[Path], AbstractContextManager[Watch]]] = {
    "nothing": nothing,
    "in process": in_process,
    "rankside": rankside_watch,
}


def training() -> Callable[[], None]:
    """One step of the demo's model on one thread."""
    import torch

    from rankside_agent.demo import train

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = train.CharGPT(WIDTH, LAYERS, HEADS, LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.006)
    texts = torch.randint(len(train.ALPHABET), (BATCH, LENGTH + 1))

    def step() -> None:
        optimizer.zero_grad()
        model(texts).backward()
        optimizer.step()

    return step


def main(way: str, folder: Path) -> None:
    """Serve until stdin ends."""
    folder.mkdir(parents=True, exist_ok=True)
    step, number = training(), 0
    try:
        with WAYS[way](folder) as watch:
            print(json.dumps({"ready": True}), flush=True)
            for line in sys.stdin:
                whole, watching = [], []
                for _ in range(int(line)):
                    number += 1
                    began = perf_counter_ns()
                    step()
                    trained = perf_counter_ns()
                    watch(number)
                    ended = perf_counter_ns()
                    whole.append(ended - began)
                    watching.append(ended - trained)
                print(json.dumps({"whole": whole, "watching": watching}), flush=True)
    except ImportError as error:
        print(json.dumps({"ready": False, "why": f"{error.name} is not installed"}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
