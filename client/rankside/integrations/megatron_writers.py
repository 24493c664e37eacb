"""Writers with the calls that Megatron makes of TensorBoard's and W&B's.

Separate from where they are put, so that Primus, or a training with writers of its own, can use them alone.
Each hands its calls on to the writer that was there before, if there was one, and does not catch what that
raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rankside.integrations.care import harmless, tell
from rankside.integrations.scalars import Scalars


class BoardCalls:
    """The calls of a SummaryWriter: scalars become metrics, texts parameters. `known` were told already."""

    rankside = True  # how install() knows its own

    def __init__(self, scalars: Scalars, inner: Any = None, known: Mapping[str, Any] | None = None) -> None:
        """Unlike a SummaryWriter's, opens no file and starts no thread."""
        self._scalars = scalars
        self._inner = inner
        self._known = frozenset(known or ())
        self.log_dir = getattr(inner, "log_dir", None) or os.path.join(
            scalars.monitor.exp_root, "tensorboard"
        )

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, *more: Any, **named: Any
    ) -> None:
        """Megatron gives all three by position; a number, a tensor or an array of one."""
        self._scalar({tag: scalar_value}, global_step)
        self._pass("add_scalar", tag, scalar_value, global_step, *more, **named)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], *more: Any, **named: Any
    ) -> None:
        """Several below one name."""
        step = more[0] if more else named.get("global_step")
        self._scalar({f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, step)
        self._pass("add_scalars", main_tag, tag_scalar_dict, *more, **named)

    def add_text(self, tag: str, text_string: str, *more: Any, **named: Any) -> None:
        """Megatron writes its some 700 arguments so."""
        if tag not in self._known:
            self._scalars.monitor.params({tag: text_string})
        self._pass("add_text", tag, text_string, *more, **named)

    def add_hparams(self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], *more: Any) -> None:
        """Parameters; their metrics have no step."""
        self._scalars.monitor.params(hparam_dict)
        self._scalar(metric_dict, None)
        self._pass("add_hparams", hparam_dict, metric_dict, *more)

    def get_logdir(self) -> str:
        """Where the agent's event files lie."""
        return str(self.log_dir)

    def flush(self) -> None:
        """What was told is safe already."""
        self._pass("flush")

    def close(self) -> None:
        """The monitor stays open: it outlives a writer."""
        self._pass("close")

    @harmless
    def _scalar(self, values: Mapping[str, Any], step: Any) -> None:
        self._scalars.send(values, step)

    def _pass(self, name: str, *args: Any, **kwargs: Any) -> None:
        if self._inner is not None:
            getattr(self._inner, name)(*args, **kwargs)


@lru_cache(maxsize=4)
def writer_class(base: type | None) -> Any:
    """The class of the writer: a real subclass of `base`, torch's SummaryWriter, if there is one.

    Megatron's timers test `isinstance(writer, SummaryWriter)` and silently write nothing to anything else. A
    subclass passes, and no file of Megatron or torch is changed; its parent's constructor is not called.
    """
    if base is None:
        return type("RanksideWriter", (BoardCalls,), {})
    pictures = {name: _picture(name) for name in dir(base) if name.startswith("add_") and name not in _OURS}
    return type("RanksideWriter", (BoardCalls, base), pictures)


_OURS = frozenset(vars(BoardCalls))


def _picture(name: str) -> Callable[..., None]:
    """A call for what is no number (histograms, images): only a writer that was there before draws it."""

    def call(self: BoardCalls, *args: Any, **kwargs: Any) -> None:
        if self._inner is None:
            tell(f"{name} is not drawn", "only numbers and texts are")
        self._pass(name, *args, **kwargs)

    call.__name__, call.__doc__ = name, "Handed on."
    return call


class Run:
    """The calls of the module `wandb`, which is what Megatron keeps in its variable, and of a W&B run.

    It says that it equals the module, because `Timers.write` asks that. What the TensorBoard writer has told
    is not told again.
    """

    rankside = True

    def __init__(self, scalars: Scalars, inner: Any = None) -> None:
        self._scalars = scalars
        self._inner = inner
        self.config = Config(scalars, getattr(inner, "config", None))

    def log(self, data: Mapping[str, Any], step: Any = None, *more: Any, **named: Any) -> None:
        """`log({name: value}, iteration)` and `log(metrics, step=iteration)`; nested ones by a slash."""
        self._log(data, step)
        if self._inner is not None:
            self._inner.log(data, step, *more, **named)

    @harmless
    def _log(self, data: Mapping[str, Any], step: Any) -> None:
        self._scalars.send(dict(_flat(data)), step)

    def finish(self, *args: Any, **kwargs: Any) -> None:
        """The monitor stays open: it says at the exit how the training ended."""
        if self._inner is not None:
            self._inner.finish(*args, **kwargs)

    @property
    def run(self) -> Any:
        """`wandb.run`: itself."""
        return self if self._inner is None else self._inner.run

    @property
    def project(self) -> str:
        """The experiment's folder names it."""
        return os.path.basename(self._scalars.monitor.exp_root) or "rankside"

    @property
    def entity(self) -> str:
        """Megatron notes it beside a checkpoint."""
        return "rankside"

    @property
    def Artifact(self) -> Any:
        """The class of what `log_artifact` takes."""
        return Artifact if self._inner is None else self._inner.Artifact

    def log_artifact(self, artifact: Any, *args: Any, **kwargs: Any) -> Any:
        """A saved checkpoint: an event that names it."""
        self._artifact(artifact)
        return None if self._inner is None else self._inner.log_artifact(artifact, *args, **kwargs)

    @harmless
    def _artifact(self, artifact: Any) -> None:
        plain = vars(artifact) if isinstance(artifact, Artifact) else {"title": getattr(artifact, "name", "")}
        self._scalars.monitor.event("artifact", **plain)

    def __eq__(self, other: object) -> bool:
        return other is self or getattr(other, "__name__", None) == "wandb" or self._is_inner(other)

    def __hash__(self) -> int:
        return id(self)

    def _is_inner(self, other: object) -> bool:
        return other is not None and other is self._inner

    def __getattr__(self, name: str) -> Any:
        """Everything else that W&B has: of the real one, or a call that does nothing."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self._inner is not None:
            return getattr(self._inner, name)
        tell(f"wandb.{name} does nothing here", "only log, config, finish and artifacts do")
        return _nothing


class Config:
    """W&B's run configuration: parameters."""

    def __init__(self, scalars: Scalars, inner: Any = None) -> None:
        self._scalars = scalars
        self._inner = inner

    def update(self, values: Any, *more: Any, **named: Any) -> None:
        """A dict or a namespace."""
        self._params(values)
        if self._inner is not None:
            self._inner.update(values, *more, **named)

    def __setitem__(self, name: str, value: Any) -> None:
        self._params({name: value})
        if self._inner is not None:
            self._inner[name] = value

    @harmless
    def _params(self, values: Any) -> None:
        self._scalars.monitor.params(values if isinstance(values, Mapping) else vars(values))


class Artifact:
    """What Megatron makes of a checkpoint for W&B: a name and what belongs to it."""

    def __init__(self, name: str, type: str = "", metadata: Any = None, **_: Any) -> None:
        self.title = name
        self.type = type
        self.metadata = metadata
        self.references: list[str] = []

    def add_reference(self, uri: Any, *_: Any, **__: Any) -> None:
        """A checkpoint's address."""
        self.references.append(str(uri))

    def add_file(self, local_path: Any, *_: Any, **__: Any) -> None:
        """A file of it."""
        self.references.append(str(local_path))

    add_dir = add_file


def _flat(values: Mapping[str, Any], above: str = "") -> Any:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def _nothing(*_: Any, **__: Any) -> None:
    """Takes anything."""
