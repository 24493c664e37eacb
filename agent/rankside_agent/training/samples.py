"""The way of a throughput sample: taken in, joined to what is measured beside it, answered.

Separate from the run because it waits: a sample that asks for GPU memory is answered when that is there, or
after a while with what was known before. Samples are answered in their order, each once: the answer carries
the sample's sequence number, and what is needed to go on with the next.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from rankside import record
from rankside.wire import Kind
from rankside_agent.training.averages import ELAPSED, TFLOPS, TOKENS, Averages, tokens_per_second_per_gpu
from rankside_agent.training.lent import Known, Lent
from rankside_agent.training.line import training_line
from rankside_agent.training.memory import Memory, of_process
from rankside_agent.training.progress import progress_line, seconds_left
from rankside_agent.training.sample import Sample, whole
from rankside_agent.training.timers import timers_text, wanted
from rankside_agent.training.titan_line import titan_line

WAIT = 4.0  # seconds for memory and for the other ranks' timers; a poll itself has 3
_MOST_WAITING = 1000  # samples; the oldest is then answered without
_MOST_TIMERS = 200  # of one rank
# Under which name the number of iterations stands among the parameters: Megatron, TorchTitan, Hugging Face
_TRAIN_ITERS = ("train_iters", "training.steps", "max_steps", "train_steps", "total_steps", "steps")


class Answer(NamedTuple):
    """Texts for the rank's log, scalars for the trackers, and what a new `Samples` must know."""

    seq: int
    time: float
    step: int | None
    texts: list[str]
    values: dict[str, float]
    resume: dict[str, Any]


class Samples:
    """Those of one channel, the last rank's. Owned by the agent's loop; nothing here waits or raises.

    `ask(then)` starts a poll of the GPUs, after which `then` is called with the rank's Memory, or None.
    `ranks` gives the ranks of this node that are alive, `elsewhere` the fullest GPU of other nodes, `lent`
    the losses that other ranks have. `resume` is that of the last answer, or empty.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        world_size: int,
        ask: Callable[[Callable[[Memory | None], None]], None],
        ranks: Callable[[], set[str]],
        resume: Mapping[str, Any],
        elsewhere: Callable[[], Memory | None] = lambda: None,
        lent: Lent | None = None,
    ) -> None:
        self._config = config
        self._world_size = max(world_size, 1)
        self._ask = ask
        self._ranks = ranks
        self._elsewhere = elsewhere
        self.lent = lent or Lent("", 1, Known(), lambda: None, lambda *_: None)
        self._averages = Averages(
            int(config.get("log_avg_skip_iterations", 2)),
            int(config.get("log_avg_reset_interval", 10)),
            resume.get("averages", {}),
        )
        self._seen = int(resume.get("seq", 0))
        self._number = int(resume.get("number", 0))
        self._began = resume.get("began")
        self._train_iters: int | None = resume.get("train_iters")
        self._memory = Memory(*resume["memory"]) if resume.get("memory") else None
        self._metrics: tuple[Any, dict[str, float]] = (None, {})
        self._waiting: deque[_Waiting] = deque()
        self._timers: dict[Any, dict[str, dict[str, float]]] = {}  # by step, timer and rank
        self._reporters: set[str] = set()  # ranks that have timers at all

    @property
    def waiting(self) -> bool:
        """Whether a sample has no answer yet."""
        return bool(self._waiting)

    def take(self, seq: int, kind: int, fields: Any, place: Any) -> None:
        """One record of the channel, in its order; `place` in the journal is one from which to go on."""
        if seq > self._seen:
            self._seen = seq
            handle = _HANDLERS.get(kind)
            if handle is not None:
                handle(self, seq, fields, place)

    def take_timers(self, rank: str, step: Any, timers: Mapping[str, Any]) -> None:
        """What a rank of this node measured at a step."""
        numbers = floats(dict(list(timers.items())[:_MOST_TIMERS]))
        if self._shows(numbers):
            self._reporters.add(rank)
            while len(self._timers) >= _MOST_WAITING:
                del self._timers[next(iter(self._timers))]
            for name, seconds in numbers.items():
                self._timers.setdefault(step, {}).setdefault(name, {})[rank] = seconds

    def due(self, now: float, all_now: bool = False) -> Iterator[Answer]:
        """Answers that are ready; with `all_now` every one, with what is known."""
        while self._waiting:
            first = self._waiting[0]
            late = all_now or now >= first.deadline or len(self._waiting) > _MOST_WAITING
            if not late and (first.polling or self._lacks_timers(first.sample) or self._lacks_loss(first)):
                return
            first.answer = first.answer or self._answer(first)
            yield first.answer
            self._waiting.popleft()  # only now: whoever asks may fail to store it, and ask again

    # -- taking in -----------------------------------------------------------------------------------

    def _on_metrics(self, _seq: int, fields: Any, _place: Any) -> None:
        _, step, values = fields
        good = self.lent.own(whole(step), floats(values))
        before = self._metrics[1] if step is not None and self._metrics[0] == step else {}
        self._metrics = step, {**before, **good}

    def _on_params(self, _seq: int, fields: Any, _place: Any) -> None:
        found = (_nested(fields[1], name) for name in _TRAIN_ITERS)
        self._train_iters = next((n for n in map(whole, found) if n), self._train_iters)

    def _on_throughput(self, seq: int, fields: Any, place: Any) -> None:
        at, step, values = fields
        at = at if finite(at) else time.time()
        numbers = floats(values)
        self._number += 1
        self._began = at if self._began is None else self._began
        self._train_iters = whole(numbers.get("train_iters")) or self._train_iters
        step = whole(step)
        rates = {**numbers, TOKENS: tokens_per_second_per_gpu(numbers, self._world_size)}
        averages = self._averages.take(
            self._number if step is None else step, {n: v for n, v in rates.items() if v is not None}
        )
        same_step = self._metrics[0] == step or step is None
        sample = Sample(
            seq=seq,
            number=self._number,
            time=at,
            step=step,
            world_size=self._world_size,
            fields=numbers,
            averages=averages,
            metrics=self._metrics[1] if same_step else {},
            train_iters=self._train_iters,
            own=of_process(numbers),
        )
        waiting = _Waiting(sample, time.monotonic() + WAIT, self._resume(seq, place))
        self._waiting.append(waiting)
        if polls(self._config, self._number):
            waiting.polling = True
            self._ask(waiting.measured)

    def _resume(self, seq: int, place: Any) -> dict[str, Any]:
        return {
            "seq": seq,
            "number": self._number,
            "began": self._began,
            "train_iters": self._train_iters,
            "averages": self._averages.state(),
            "place": list(place),
        }

    # -- answering -----------------------------------------------------------------------------------

    def _answer(self, waiting: _Waiting) -> Answer:
        sample = waiting.sample
        if waiting.memory is not None:
            self._memory, sample.measured = waiting.memory, True
        sample.memory = self._memory and self._memory.beside(self._elsewhere())
        sample.timers = self._timers.pop(sample.step, {})
        if waiting.lacked_loss:
            self.lent.waited(sample.step, sample.metrics)
        sample.metrics = self.lent.filled(sample.step, sample.metrics)
        resume = {**waiting.resume, "memory": list(self._memory) if self._memory else None}
        texts = list(self._texts(sample)) if self._writes_line(sample) else []
        return Answer(sample.seq, sample.time, sample.step, texts, self._scalars(sample), resume)

    def _writes_line(self, sample: Sample) -> bool:
        if self._titan:
            return sample.iteration == 1 or sample.iteration % max(self._int("metrics.log_freq", 10), 1) == 0
        return sample.iteration % max(self._int("log_interval", 100), 1) == 0

    def _texts(self, sample: Sample) -> Iterator[str]:
        if self._titan:
            yield titan_line(sample, self._config.get("metrics.disable_color_printing") is not True)
        else:
            yield training_line(sample, self._config)
        if self._config.get("log_progress") is True:
            yield progress_line(sample, self._began if self._began is not None else sample.time)
        if text := timers_text(sample.timers, self._int("timing_log_level", 0), self._option):
            yield text

    def _scalars(self, sample: Sample) -> dict[str, float]:
        found = {
            title: sample.averages[name].value for name, title in _TITLES.items() if name in sample.averages
        }
        for name, title in {ELAPSED: "iteration-time", **_TITLES}.items():
            mean = sample.averages[name].mean if name in sample.averages else None
            if mean is not None:
                found[f"average/{title}"] = mean
        found.update(sample.own.scalars() if sample.own else {})
        found.update(sample.memory.scalars() if sample.memory and sample.measured else {})
        left = seconds_left(sample) if self._config.get("log_progress") is True else None
        if left is not None and sample.train_iters:
            found["progress/percent"] = 100.0 * sample.iteration / sample.train_iters
            found["progress/eta_s"] = left
        return found

    @property
    def _titan(self) -> bool:
        return self._config.get("framework") == "torchtitan"

    @property
    def _option(self) -> str:
        return str(self._config.get("timing_log_option", "minmax"))

    def _int(self, name: str, otherwise: int) -> int:
        value = whole(self._config.get(name))
        return otherwise if value is None else value

    def _shows(self, timers: Mapping[str, Any]) -> bool:
        return wanted(timers, self._int("timing_log_level", 0))

    def _lacks_timers(self, sample: Sample) -> bool:
        """Whether a rank of this node is still to report the timers of this step."""
        known = self._timers.get(sample.step)
        if not known or not self._writes_line(sample):
            return False
        said = {rank for ranks in known.values() for rank in ranks}
        return bool((self._ranks() & self._reporters) - said)

    def _lacks_loss(self, waiting: _Waiting) -> bool:
        """Whether the loss of the line may still come, from another rank of this node."""
        sample = waiting.sample
        lacks = self._writes_line(sample) and self.lent.lacks(sample.step, sample.metrics, self._ranks())
        waiting.lacked_loss |= lacks
        return lacks


class _Waiting:
    """A sample on its way to its answer."""

    def __init__(self, sample: Sample, deadline: float, resume: dict[str, Any]) -> None:
        self.sample = sample
        self.deadline = deadline
        self.resume = resume
        self.polling = False
        self.lacked_loss = False  # whether it has waited for one
        self.memory: Memory | None = None
        self.answer: Answer | None = None

    def measured(self, memory: Memory | None) -> None:
        """The poll's result."""
        self.memory, self.polling = memory, False


# As Primus names them. The time itself is a scalar of the record, which the trackers take from there
_TITLES = {TFLOPS: "throughput(tflops/sec/gpu)", TOKENS: "token_throughput(tokens/sec/gpu)"}
_HANDLERS: dict[int, Callable[[Samples, int, Any, Any], None]] = {
    int(Kind.METRICS): Samples._on_metrics,
    int(Kind.PARAMS): Samples._on_params,
    int(Kind.THROUGHPUT): Samples._on_throughput,
}


def polls(config: Mapping[str, Any], number: int) -> bool:
    """Whether the sample of this number, counted from 1, asks for the node's GPUs.

    With `use_rocm_mem_info` every one does; else those of the numbers in `use_rocm_mem_info_iters`.
    """
    if config.get("log_throughput") is not True:
        return False
    return config.get("use_rocm_mem_info") is True or number in (config.get("use_rocm_mem_info_iters") or ())


def finite(value: Any) -> bool:
    """Whether it is a plain number."""
    return isinstance(value, int | float) and math.isfinite(value)


def floats(values: Any) -> dict[str, float]:
    """The numbers among unpacked values; what fits into no float is none."""
    found: dict[str, float] = {}
    for name, value in record.numbers(values)[0].items():
        with suppress(OverflowError):
            found[name] = float(value)
    return found


def _nested(values: Any, name: str) -> Any:
    """A parameter by its full name, or below its group."""
    if not isinstance(values, Mapping):
        return None
    group, _, rest = name.partition(".")
    return values.get(name, _nested(values.get(group), rest) if rest else None)
