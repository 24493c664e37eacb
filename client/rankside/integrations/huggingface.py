"""Hugging Face `Trainer`: a callback.

    from rankside.integrations import huggingface

    rankside.init(exp_name="finetune")
    Trainer(..., callbacks=[huggingface.callback()])

Separate from the others because it knows what a Trainer tells and when: on every rank, and the agent chooses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from rankside import Monitor
from rankside.integrations.care import chosen, harmless
from rankside.integrations.scalars import Scalars


def callback(monitor: Monitor | None = None, files: Sequence[str] = ()) -> Any:
    """A TrainerCallback. `files` of each checkpoint's folder go to the trackers as artifacts."""
    base = import_module("transformers").TrainerCallback
    made = type("RanksideCallback", (TrainerCalls, base), {})
    return made(monitor, files)


class TrainerCalls:
    """The events of a Trainer that matter here; a TrainerCallback has the rest."""

    def __init__(self, monitor: Monitor | None = None, files: Sequence[str] = ()) -> None:
        self._given = monitor
        self._scalars: Scalars | None = None
        self._files = tuple(files)
        self._mark = 0.0
        self._spent = 0.0  # seconds of steps since the last sample, without evaluations and saves
        self._steps = 0
        self._flos = 0.0

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The arguments are parameters, and the model's configuration below `model`."""
        told = dict(args.to_dict())
        config: Any = getattr(more.get("model"), "config", None)
        if hasattr(config, "to_dict"):
            told["model"] = config.to_dict()
        self._monitor.params(told)
        self._spent, self._steps = 0.0, 0
        self._flos = float(getattr(state, "total_flos", 0.0) or 0.0)
        self._mark = time.perf_counter()

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """One optimizer step."""
        now = time.perf_counter()
        self._spent += now - self._mark
        self._steps += 1
        self._mark = now

    @harmless
    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """A Trainer's names, unchanged; a sample with those of a training step."""
        logs = logs or {}
        values = {name: each for name, each in logs.items() if each is not None and not isinstance(each, str)}
        if self._scalars is None or self._scalars.monitor is not self._monitor:
            self._scalars = Scalars(self._monitor)
        self._scalars.send(values, state.global_step)
        if "loss" in logs and self._steps:
            self._monitor.throughput(step=state.global_step, **self._sample(args, state))

    @harmless
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Its time is no step's."""
        self._mark = time.perf_counter()

    @harmless
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An event `checkpoint`, and the artifacts."""
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self._monitor.event("checkpoint", path=path, step=state.global_step)
        for name in self._files:
            self._monitor.artifact(os.path.join(path, name))
        self._mark = time.perf_counter()

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An event; the monitor stays open, for an evaluation or a further training."""
        self._monitor.event("training end", step=state.global_step, epoch=state.epoch)

    @property
    def _monitor(self) -> Monitor:
        return chosen(self._given)

    def _sample(self, args: Any, state: Any) -> dict[str, Any]:
        world = int(getattr(args, "world_size", 1) or 1)
        elapsed, steps = self._spent / self._steps, self._steps
        batch = int(args.train_batch_size) * int(args.gradient_accumulation_steps) * world
        found = {"elapsed_s": elapsed, "global_batch_size": batch, "train_iters": state.max_steps}
        flos = float(getattr(state, "total_flos", 0.0) or 0.0)
        if flos > self._flos and elapsed > 0:  # a Trainer sums them over all ranks
            found["tflops"] = (flos - self._flos) / steps / elapsed / world / 1e12
        self._spent, self._steps, self._flos = 0.0, 0, flos
        return found
