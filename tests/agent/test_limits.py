"""What a rank's `ulimit` leaves to the agent it starts: soft limits go, a hard one is told and lived with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankside_agent import limits
from rankside_agent.journal import Journal, Reader, segments

LIFT = """
import json, resource, sys
from rankside_agent import limits
which, soft, hard = (int(word) for word in sys.argv[1:])
resource.setrlimit(which, (soft, resource.getrlimit(which)[1] if hard < 0 else hard))
said = []
limits.lift(said.append)
print(json.dumps([resource.getrlimit(which), resource.getrlimit(which)[1], said, limits.file_bytes()]))
"""


def lifted(which: int, soft: int, hard: int = -1) -> Any:
    command = [sys.executable, "-c", LIFT, str(which), str(soft), str(hard)]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.parametrize("which", limits._RAISED)
def test_a_soft_limit_is_raised_to_the_hard_one_without_a_word(which: int):
    found, hard, said, _ = lifted(which, 1 << 33)
    assert found == [hard, hard]
    assert not [text for text in said if str(1 << 33) in text]


def test_a_hard_limit_of_file_sizes_is_named():
    _, _, (said,), most = lifted(limits.resource.RLIMIT_FSIZE, 1 << 20, 5 << 20)
    assert most == 5 << 20
    assert "larger than 5242880 bytes (the hard limit of `ulimit -f`" in said


def test_a_journal_goes_on_in_another_segment_before_a_file_is_too_large(
    tmp_path: Path, info: Callable[..., Any], logged: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "file_bytes", lambda: 10_000)
    journal = Journal(tmp_path / "journal")
    journal.open_channel(1, info())
    for number in range(1, 101):
        journal.batch(1, number, number, 1, logged(number, f"line {number} " + "x" * 500))
    sizes = [path.stat().st_size for path in (tmp_path / "journal").iterdir()]
    assert len(segments(tmp_path / "journal")) == len(sizes) > 5
    assert max(sizes) <= 10_000
    reader = Reader(tmp_path / "journal")
    while reader.read():
        pass
    assert reader.state.records == 100
    assert not reader.skipped
