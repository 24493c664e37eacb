"""Frameworks import triton for kernels that no CPU runs; torch, which is to find none, asks for it, too.

Separate because TorchTitan and Megatron both do.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

NAMES = ("triton", "triton.language")


def import_framework(name: str) -> None:
    """Import it with a triton that takes everything, of which torch is told nothing."""
    import_module("torch._inductor.compile_fx")  # the compiler asks when it is imported
    for each in NAMES:
        sys.modules[each] = MagicMock(__spec__=ModuleSpec(each, None), __version__="3.4.0")
    try:
        import_module(name)
    finally:
        for each in NAMES:
            del sys.modules[each]
