"""configs/agent.yaml is what the agent does without it, and the deploy files name what exists."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankside_agent.config import Settings, SettingsError, load

ROOT = Path(__file__).parents[2]


def test_the_example_file_holds_every_key_with_its_default():
    written = yaml.safe_load((ROOT / "configs/agent.yaml").read_text())
    assert list(written) == list(Settings.model_fields)
    assert load(str(ROOT / "configs/agent.yaml")) == Settings()


def test_every_key_of_the_example_file_has_a_comment_above_it():
    blocks = (ROOT / "configs/agent.yaml").read_text().split("\n\n")
    assert all(block.startswith("#") for block in blocks)
    assert len(blocks) == len(Settings.model_fields) + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rotation_byte: 1", "unknown key 'rotation_byte'; known: endpoint, state_dir"),
        ("rotation_bytes: soon", "rotation_bytes: 'soon': Input should be a valid integer"),
        ("- a list", "holds a list; keys and values are wanted"),
        ("a: [", "while parsing"),
    ],
)
def test_a_bad_file_is_refused_with_place_key_and_choices(tmp_path, text, said):
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(str(path))) as caught:
        load(str(path))
    assert said in str(caught.value)


def test_the_service_unit_starts_an_agent_with_options_that_exist():
    unit = (ROOT / "deploy/rankside.service").read_text()
    command = re.search(r"^ExecStart=\S+ (.*)$", unit, re.M)
    assert command is not None
    words = command[1].split()
    assert words[0] == "agent"
    text = subprocess.run(
        [sys.executable, "-m", "rankside_agent", "agent", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    ).stdout
    for option in [word for word in words if word.startswith("--")]:
        assert option in text


def test_the_slurm_script_is_valid_and_executable():
    script = ROOT / "deploy/slurm.sh"
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    assert script.stat().st_mode & stat.S_IXUSR
