"""What tests of GPUs share: a ROCm folder with a simulated library."""

from __future__ import annotations

import pytest
import simulated


@pytest.fixture(scope="session")
def rocm(tmp_path_factory):
    """May stand as $ROCM_PATH; see libamd_smi.c for the rules that it follows."""
    if why := simulated.missing():
        pytest.skip(f"amdsmi over a simulated library: {why}")
    return simulated.build(tmp_path_factory.mktemp("rocm"))
