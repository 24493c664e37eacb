"""What may import what, and what may lie where: the thin client stays thin."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "client" / "rankside"
AGENT = ROOT / "agent" / "rankside_agent"
FILES = sorted(CLIENT.rglob("*.py"))
# The top level is fixed; see the design
ALLOWED = {
    *("pyproject.toml", "agent", "client", "configs", "tests", "deploy", "README.md"),
    *("Makefile", "constraints.txt", "LICENSE", "CHANGELOG.md"),
}
DEPENDENCIES = {"zmq", "msgpack"}
# Taken where they are there, and only when asked for: a YAML file, loguru's records
OPTIONAL = {"config_file.py": {"tomllib"}, "config_yaml.py": {"yaml"}, "logs.py": {"loguru"}}
OPTIONAL |= {"loguru_guard.py": {"loguru"}, "loguru_sink.py": {"loguru"}}
INTEGRATIONS = "integrations"  # speak to frameworks, each imported by its user only


def imported(path: Path) -> set[str]:
    """The names of all modules a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CLIENT)))
def test_the_client_imports_nothing_of_the_agent_and_little_else(path):
    tops = {name.partition(".")[0] for name in imported(path)}
    assert "rankside_agent" not in tops
    if INTEGRATIONS not in path.parts:
        allowed = {*sys.stdlib_module_names, "rankside", *DEPENDENCIES, *OPTIONAL.get(path.name, ())}
        assert tops <= allowed, f"{path}: {sorted(tops - allowed)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CLIENT)))
def test_no_name_of_the_agent_is_imported_by_its_text(path):
    """endpoint.py may look whether it is installed, to start it as a process."""
    texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    if path.name != "endpoint.py":
        assert not any(isinstance(text, str) and text.startswith("rankside_agent") for text in texts)


def loaded_by(code: str) -> set[str]:
    """The top-level modules in a fresh process after `code`, apart from those of the bare interpreter."""
    found = "json.dumps(sorted(set(sys.modules) - before))"
    script = f"import json, sys; before = set(sys.modules); {code}; print({found})"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    names = {name.partition(".")[0] for name in json.loads(told)}
    ours = {name for name in names if name not in sys.stdlib_module_names and not name.startswith("_")}
    return ours - {"cython_runtime"}  # of msgpack and pyzmq, inside


def test_importing_the_client_brings_in_pyzmq_and_msgpack_alone():
    assert loaded_by("import rankside") == {"rankside", *DEPENDENCIES}


def test_monitoring_without_capture_brings_in_no_more(tmp_path):
    code = (
        "import os; os.environ.update(RANKSIDE_SPOOL_DIR={0!r}, RANKSIDE_ENDPOINT='ipc://' + {0!r} + '/a'); "
        "import rankside; m = rankside.init(exp_root={0!r}, rank=0, world_size=1, flush_seconds=0); "
        "m.metrics(dict(a=1)); m.params(dict(b=2)); m.log('x'); m.close()"
    ).format(str(tmp_path))
    assert loaded_by(code) == {"rankside", *DEPENDENCIES}


def test_the_clients_dependencies_are_the_two_it_declares():
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {text.partition(">")[0].strip() for text in project["dependencies"]}
    assert names == {"pyzmq", "msgpack"}


def test_every_module_says_what_it_is():
    for path in (*FILES, *sorted(AGENT.rglob("*.py"))):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_top_level_holds_only_what_it_may():
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    top = {name.partition("/")[0] for name in listed}
    assert {name for name in top if not name.startswith(".")} <= ALLOWED
    assert {"pyproject.toml", "agent", "client", "tests"} <= top
