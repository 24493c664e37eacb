"""What the figures were measured on. Separate because every figure is worth nothing without it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from samples import yardstick

PACKAGES = ("rankside", "pyzmq", "msgpack", "loguru", "torch", "tensorboard", "rich")


def facts() -> dict[str, str]:
    """CPU, cores, memory, kernel, Python, packages."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
    }


def load() -> str:
    """How busy the machine is now; other programs of the machine make every figure worse."""
    one, five, _ = os.getloadavg()
    return f"{one:.2f} over one minute, {five:.2f} over five"


def speed() -> str:
    """One packb of the benchmark's log record now, for comparing runs."""
    return f"{yardstick() * 1e6:.2f} us for one msgpack.packb of the log record"


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "?"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "?")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(absent)"
