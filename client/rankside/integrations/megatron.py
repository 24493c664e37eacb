"""Megatron-LM: writers where it keeps its own, its training line and its timers as throughput samples.

    from rankside.integrations import megatron

    rankside.init(exp_name="llama3-8b")
    megatron.install()  # before or after Megatron has read its arguments
    pretrain(...)

Separate from the writers because this file knows where Megatron keeps things, they what it does with them.
Nothing of Megatron's files changes: module variables in memory are set. Megatron's own writers, where it has
some, go on getting every call.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rankside import Monitor
from rankside.integrations import timers_log, training_log
from rankside.integrations.care import active, chosen, harmless, tell
from rankside.integrations.megatron_writers import Run, writer_class
from rankside.integrations.scalars import Scalars

# Newest first; before the split into core and training everything lay one level higher
_GLOBALS = ("megatron.training.global_vars", "megatron.global_vars")
_LOOPS = ("megatron.training.training", "megatron.training")
_TIMERS = ("megatron.core.timers", "megatron.timers")
_TIME = "iteration-time"
_TENSORBOARD, _WANDB = "_GLOBAL_TENSORBOARD_WRITER", "_GLOBAL_WANDB_WRITER"


def install(monitor: Monitor | None = None) -> bool:
    """Watch this process's training, whichever version of Megatron-LM is there. Says whether it does.

    The last rank, which alone has writers in Megatron, gets them; every rank's training line is a sample.
    """
    found = chosen(monitor)
    return bool(active(found) and _install(found))


@harmless
def _install(monitor: Monitor) -> bool:
    kept = _first(_GLOBALS)
    if kept is None:
        tell("megatron.install(): no megatron.training can be imported", ", ".join(_GLOBALS))
        return False
    if getattr(kept, "_rankside", None) is not None:  # again, from a model provider that is called twice
        return True
    watch = Watch(monitor, kept)
    kept._rankside = watch
    watch.hear(_first(_LOOPS))
    _after(kept, "_set_tensorboard_writer", watch.take_board)
    _after(kept, "_set_wandb_writer", watch.take_run)
    watch.take_board()
    watch.take_run()
    atexit.register(watch.release)  # before the monitor closes: that was registered earlier
    logging.getLogger(_TIMERS[0]).addHandler(_TimersHandler(watch))
    return True


class Watch:
    """What rankside holds of one Megatron training; `kept` is the module of Megatron's global variables."""

    def __init__(self, monitor: Monitor, kept: Any) -> None:
        self._monitor = monitor
        self._kept = kept
        self._scalars = Scalars(monitor)
        self._held: tuple[int, dict[str, Any]] | None = None
        self._waits = True
        self._told = False

    def hear(self, loop: Any) -> None:
        """Read what Megatron's training loop prints. The time of an iteration is then told by the samples."""
        if _before(loop, "print_rank_last", self.printed):
            self._scalars = Scalars(self._monitor, aside=(_TIME,))

    @harmless
    def take_board(self) -> None:
        """Put the TensorBoard writer in, as soon as there are arguments that say which rank this is."""
        args = self._args
        if args is not None and not self._told:
            self._told = True
            self._monitor.params(vars(args))
        board = getattr(self._kept, _TENSORBOARD, None)
        if self._last and not getattr(board, "rankside", False):
            setattr(self._kept, _TENSORBOARD, self._writer(board))

    @harmless
    def take_run(self) -> None:
        """The same for W&B's; apart, because Megatron insists that a variable is empty before it sets it."""
        run = getattr(self._kept, _WANDB, None)
        if self._last and not getattr(run, "rankside", False):
            setattr(self._kept, _WANDB, Run(self._scalars, run))

    def _writer(self, inner: Any) -> Any:
        """One that `Timers.write` takes for a SummaryWriter. Where torch has none, Megatron's name for that
        class is empty, and its `isinstance` would raise: it becomes ours."""
        timers = _first(_TIMERS)
        made = writer_class(getattr(timers, "SummaryWriter", None))
        if timers is not None and getattr(timers, "SummaryWriter", made) is None:
            timers.SummaryWriter = made
        return made(self._scalars, inner, vars(self._args))

    @harmless
    def printed(self, message: Any, *_: Any, **__: Any) -> None:
        """What Megatron prints on its last rank, and makes on every one."""
        line = training_log.parse(str(message))
        if line is None:
            return
        self._waits = self._waits and self._held is None  # one that nothing followed was the last to wait
        self.release()
        sample = {**line.sample, **self._shape()}
        exact = self._scalars.kept(_TIME, line.iteration)
        if exact is not None:  # the line has it to a tenth of a millisecond
            sample["elapsed_s"] = exact
        metrics = {
            name: value
            for name, value in line.metrics.items()
            if name != training_log.TOKENS or "seq_length" not in sample
        }
        self._scalars.fill(metrics, line.iteration)
        self._held = line.iteration, sample
        if not self._timers_follow():
            self.release()

    @harmless
    def timed(self, text: str) -> None:
        """Megatron's record of its timers, which follows the line that it belongs to."""
        timers = timers_log.parse(text, getattr(self._args, "rank", 0))
        if timers and self._held is not None:
            step, sample = self._held
            self._held = step, {**sample, "timers": timers}
            self.release()

    def release(self) -> None:
        """Send the sample that waits for its timers."""
        held, self._held = self._held, None
        if held is not None:
            self._monitor.throughput(step=held[0], **held[1])

    @property
    def _args(self) -> Any:
        return getattr(self._kept, "_GLOBAL_ARGS", None)

    @property
    def _last(self) -> bool:
        args = self._args
        return args is not None and getattr(args, "rank", 0) == getattr(args, "world_size", 1) - 1

    def _shape(self) -> dict[str, Any]:
        length = getattr(self._args, "seq_length", None)
        return {"seq_length": length} if isinstance(length, int) else {}

    def _timers_follow(self) -> bool:
        """On the last rank, where Megatron measures more than the iteration and its logger is heard."""
        heard = logging.getLogger(_TIMERS[0]).isEnabledFor(logging.INFO)
        measured = int(getattr(self._args, "timing_log_level", 0) or 0) > 0
        return self._waits and self._last and heard and measured


class _TimersHandler(logging.Handler):
    """Gives the timers' record on. Takes no lock: what it calls has none of its own either."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(logging.INFO)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
        self._watch.timed(str(record.msg))  # Megatron gives a finished text


def _first(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return sys.modules.get(name) or import_module(name)
        except ImportError:
            continue
    return None


def _before(module: Any, name: str, ours: Callable[..., object]) -> bool:
    """Let `ours` see every call of a module's function, first; whether there is one."""
    theirs = getattr(module, name, None)
    if theirs is None:
        return False

    def both(*args: Any, **kwargs: Any) -> Any:
        ours(*args, **kwargs)
        return theirs(*args, **kwargs)

    setattr(module, name, both)
    return True


def _after(module: Any, name: str, ours: Callable[..., object]) -> None:
    """The same, last."""
    theirs = getattr(module, name, None)
    if theirs is None:
        return

    def both(*args: Any, **kwargs: Any) -> Any:
        result = theirs(*args, **kwargs)
        ours()
        return result

    setattr(module, name, both)
