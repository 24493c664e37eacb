"""Import the `amdsmi` package that fits the ROCm of this node, whatever its import prints, raises or leaves.

Separate because the package loads the library while it is imported. ROCm's own copy of the package comes
first: one of another version than the library finds no symbols, or, worse, reads structures of another shape.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rankside_agent.gpu.source import Unavailable

_NAME = "amdsmi"


def load(environ: Mapping[str, str] = os.environ) -> ModuleType:
    """ROCm's own, or the one installed beside us. Raises Unavailable with the reasons of all."""
    rocm = environ.get("ROCM_HOME") or environ.get("ROCM_PATH") or "/opt/rocm"
    own = Path(rocm) / "share" / "amd_smi"  # where ROCm puts it since 5.7, without installing it
    reasons = []
    for folder in ([own] if (own / _NAME / "__init__.py").is_file() else []) + [None]:
        with contextlib.redirect_stdout(io.StringIO()) as printed, _first(folder):
            try:
                return import_module(_NAME)
            except Exception as error:  # noqa: BLE001  KeyError, AttributeError and OSError have been seen
                reasons.append(_reason(error, printed.getvalue()))
                _forget()
    raise Unavailable("; ".join(dict.fromkeys(reasons)))


@contextlib.contextmanager
def _first(folder: Path | None) -> Iterator[None]:
    """That folder before all others while the package is imported."""
    before = list(sys.path)
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


def _reason(error: Exception, printed: str) -> str:
    """Of its own words only the printed ones say what is missing; the exception is a later consequence."""
    if isinstance(error, ModuleNotFoundError) and error.name == _NAME:
        return "the Python package amdsmi is not installed"
    said = " ".join(printed.split()) or f"{type(error).__name__}: {error}"
    return f"the package amdsmi cannot be imported: {said}"


def _forget() -> None:
    """A half-imported package would be taken for a whole one."""
    for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
        del sys.modules[name]
