"""The independent checker of a chaos run: what its user reads, against what its processes have testified.

It imports nothing of rankside and knows no deed. `python -m tests.chaos.check FOLDER` judges a kept folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos import check_logs, check_points
from tests.chaos.testimony import accounts


def findings(exp: Path, kept: Path, oracle: Path, mlflow_uri: str, trackers: tuple[str, ...]) -> list[str]:
    """All that is wrong, in words."""
    told = accounts(oracle)
    if not told:
        return []
    return [
        *check_logs.findings(exp, kept, told),
        *check_points.findings(exp, kept, told, mlflow_uri, trackers),
    ]


if __name__ == "__main__":
    base = Path(sys.argv[1])
    trackers = tuple(sys.argv[2].split(",")) if len(sys.argv) > 2 else ("tensorboard",)
    run, taken = base / "exp" / "run", base / "exp" / "kept"
    print("\n".join(findings(run, taken, base / "oracle", f"sqlite:///{run}/mlflow.db", trackers)) or "sound")
