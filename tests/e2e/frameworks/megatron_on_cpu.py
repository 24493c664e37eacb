"""What megatron-core 0.19.2 needs to train where there is no GPU: `torch.cuda` that is the CPU.

Every line here is about the missing GPU, or about Python below 3.12, and none about rankside.
"""

from __future__ import annotations

import contextlib
import typing
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
import without_triton
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


def cpu_device() -> None:
    """Before Megatron is imported, which this does."""
    if not hasattr(typing, "override"):  # its wheel is for Python 3.12
        typing.override = lambda method: method
    import torch._inductor.compile_fx  # the compiler looks at every name of torch.cuda

    torch.compile = lambda model=None, **_: model or (lambda inner: inner)
    cuda = torch.cuda
    nothing = lambda *_, **__: None  # noqa: E731
    for name in (
        "synchronize",
        "set_device",
        "empty_cache",
        "reset_peak_memory_stats",
        "nvtx",
        "manual_seed",
    ):
        setattr(cuda, name, nothing)
    cuda.nvtx = MagicMock()
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 2
    cuda.current_device = lambda: CPU
    cuda.current_stream = cuda.default_stream = lambda *_: MagicMock()
    cuda.stream = lambda *_: contextlib.nullcontext()
    cuda.Stream = cuda.Event = MagicMock
    for place in (cuda, cuda.random):
        place.get_rng_state = lambda *_, **__: torch.get_rng_state()
        place.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.memory_stats = lambda *_: {}
    cuda.memory_allocated = cuda.max_memory_allocated = lambda *_: 2**20
    cuda.memory_reserved = cuda.max_memory_reserved = lambda *_: 2**20
    cuda.get_device_capability = lambda *_: (8, 0)
    cuda.get_device_name = lambda *_: "CPU"
    cuda.get_device_properties = lambda *_: SimpleNamespace(
        total_memory=2**34, major=8, minor=0, multi_processor_count=1, name="CPU"
    )
    cuda.mem_get_info = lambda *_: (2**33, 2**34)
    cuda.is_initialized = lambda: False
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    kind_of = torch.Tensor.type
    torch.Tensor.type = lambda self, *to, **how: (
        kind_of(self, *to, **how) if to or how else f"torch.cuda.{kind_of(self).rpartition('.')[2]}"
    )
    for kind in ("Float", "Int", "Long", "Byte", "Double", "Half", "BFloat16"):
        setattr(cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    without_triton.import_framework("megatron.training")
    from megatron.core.datasets import utils

    utils.compile_helpers = nothing  # for data sets on disk
    _OnCpu().__enter__()


class _OnCpu(TorchFunctionMode):
    """Every tensor that is to be made on the GPU is made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device")) or isinstance(kwargs.get("device"), int):
            kwargs["device"] = CPU
        args = tuple(CPU if isinstance(arg, torch.device) and arg.type == "cuda" else arg for arg in args)
        return func(*args, **kwargs)
