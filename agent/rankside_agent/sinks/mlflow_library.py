"""MLflow's library, imported as its small package is: without the large ones that only tables need.

Separate because it is loaded in each run's sink, beside a training: numpy, pandas and pyarrow are a third of
its memory and of the seconds of its start, and no call of a client's needs them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = ("numpy", "pandas", "pyarrow")  # what mlflow has and mlflow-skinny has not, and imports where it is


def load() -> None:
    """Import it. Raises ImportError where it is not there; an MLflow that needs the large ones gets them."""
    try:
        with _hidden(LARGE):
            importlib.import_module("mlflow")
    except Exception:  # noqa: BLE001  foreign code, without what it may take for granted
        importlib.import_module("mlflow")


@contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """As if they were not installed; not those that this process has already."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # so says importlib's documentation
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
