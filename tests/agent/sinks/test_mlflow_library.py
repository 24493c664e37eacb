"""MLflow's library comes without the large ones that only its tables need, where it can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankside_agent.sinks.mlflow_library import LARGE


def told(script: str, *paths: Path) -> list[str]:
    """What a process of its own prints: this one may have any library already."""
    path = os.pathsep.join(map(str, paths))
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\nfrom rankside_agent.sinks import mlflow_library\n{script}"],
        env={**os.environ, "PYTHONPATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.fixture
def mlflow_of(tmp_path: Path):
    """Another MLflow, of one file."""

    def write(content: str) -> Path:
        (tmp_path / "mlflow.py").write_text(content)
        return tmp_path

    return write


def test_a_client_is_made_without_the_large_libraries_which_can_be_had_later():
    script = f"""
mlflow_library.load()
from mlflow import MlflowClient
MlflowClient(tracking_uri="http://127.0.0.1:1")
print([name for name in {LARGE} if name in sys.modules])
import pandas
print(pandas.DataFrame({{"a": [1, 2]}}).shape)
"""
    assert told(script) == ["[]", "(2,", "1)"]


def test_what_the_process_has_already_stays(mlflow_of):
    mlflow = mlflow_of("import numpy\n")
    script = "import numpy\nmlflow_library.load()\nimport mlflow\nprint(mlflow.numpy is numpy)"
    assert told(script, mlflow) == ["True"]


@pytest.mark.parametrize(
    "needs",
    [
        "import pandas as pd\n",
        "try:\n    import pandas as pd\nexcept ImportError:\n    pd = None\nFrame = pd.DataFrame\n",
    ],
)
def test_an_mlflow_that_needs_them_gets_them(mlflow_of, needs):
    script = "mlflow_library.load()\nimport mlflow\nprint(mlflow.pd.__name__)"
    assert told(script, mlflow_of(needs)) == ["pandas"]


def test_without_mlflow_its_name_is_told_and_nothing_stays_hidden(mlflow_of):
    script = f"""
try:
    mlflow_library.load()
except ImportError as error:
    print(error.name)
print([name for name in {LARGE} if name in sys.modules])
"""
    assert told(script, mlflow_of("raise ModuleNotFoundError('no', name='mlflow')\n")) == ["mlflow", "[]"]
