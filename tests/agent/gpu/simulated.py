"""A ROCm folder with a simulated libamd_smi.so, built with the C compiler for the installed `amdsmi`.

Separate from the tests because the benchmark drives the real package over it, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "fixtures" / "gpu" / "libamd_smi.c"
_SYMBOL = re.compile(r"_libraries\['(?:libamd_smi\.so|FIXME_STUB)'\]\.(\w+)")
# How a version's structures look, by what stands in its Python form
_SHAPES = {
    "SOCKET_POWER": re.compile(r"power_info_t\._fields_ = \[\s*\('socket_power', ctypes\.c_uint64\)"),
    "LONG_SERIAL": re.compile(r"'asic_serial', ctypes\.c_char \* 256"),
}


def missing() -> str:
    """Why it cannot be built here; empty where it can."""
    if compiler() is None:
        return "there is no C compiler"
    return "" if wrapper() else "the package amdsmi is not installed"


def compiler() -> str | None:
    """The first there is."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def wrapper() -> Path | None:
    """The package's list of symbols; importing it would need the library."""
    spec = find_spec("amdsmi")
    found = Path(spec.origin).with_name("amdsmi_wrapper.py") if spec and spec.origin else None
    return found if found and found.is_file() else None


def knows(function: str) -> bool:
    """Whether this version has a call of that name."""
    return f".{function}\n" in wrapper().read_text()


def build(root: Path) -> Path:
    """Build it in `root`, which may then stand as $ROCM_PATH."""
    text = wrapper().read_text()
    stubs = root / "stubs.c"
    root.mkdir(parents=True, exist_ok=True)
    stubs.write_text(
        "".join(
            f"int __attribute__((weak)) {name}(void) {{ return 2; }}\n"
            for name in sorted(set(_SYMBOL.findall(text)) - {"amdsmi_free_name_value_pairs"})
        )
    )
    library = root / "lib" / "libamd_smi.so"
    library.parent.mkdir(exist_ok=True)
    shapes = [f"-D{name}" for name, shape in _SHAPES.items() if shape.search(text)]
    command = [compiler(), "-shared", "-fPIC", "-O1", *shapes, "-o", library, SOURCE, stubs]
    subprocess.run(command, check=True, timeout=120)
    return root


def environment(root: Path, rules: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """For a process whose amdsmi is to find the library and its rules."""
    kept = {name: value for name, value in environ.items() if name not in ("ROCM_HOME", "LD_LIBRARY_PATH")}
    return {**kept, "ROCM_PATH": str(root), "FAKE_AMD_SMI": str(rules)}
