"""Who reads Primus' logs reads ours: the same records through both, and the same bytes in every file.

One side is Primus' logger, rebuilt from its public source (primus_rebuilt), the other rankside with a real
agent. Of what is compared only the times are taken out, and the process's number.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from rankside import identity

HERE = Path(__file__).parent / "primus_rebuilt"
SEED = int(os.environ.get("RANKSIDE_SEED", "1"))
COUNT = 700
WORLD = 2
LEVELS = ("debug", "info", "warning", "error")
_TIME = re.compile(rb"\[(?:\x1b\[32m)?\d{8} \d\d:\d\d:\d\d(?:\x1b\[0m)?\]")
_PID = re.compile(rb"pid=\d+")
_PLACE = re.compile(rb"\[-*\w+\.py:\d+\] : ")
# Python 3.11 shows in a traceback where in the line it was, and loguru does not
_CARETS = re.compile(rb"^ +[~^]+\n", re.MULTILINE)


@pytest.fixture
def told(node):
    """Runs the ranks of a side to their end; gives its files and what each rank showed on its stderr."""

    def of(
        side: str,
        kinds: str = "all",
        world: int = WORLD,
        terminal: bool = False,
        debug: bool = False,
        **env: str,
    ):
        exp = node.base / side
        consoles = {}
        for rank in range(world):
            environ = {
                **node.env,
                "PYTHONPATH": os.pathsep.join([str(HERE), node.env.get("PYTHONPATH", "")]),
                "PYTHONUNBUFFERED": "",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world),
                "EXP": str(exp),
                "THIS_NODE": identity.node_ip(),
                **env,
            }
            command = [sys.executable, str(HERE / "speaker.py"), side, kinds, str(SEED), str(COUNT)]
            command += ["--debug"] if debug else []
            consoles[rank] = (_shown_on_a_terminal if terminal else _shown)(command, environ)
        if node.agents and "primus" not in side.split("-"):
            node.until(node.all_delivered, "the run finished")
        return _files(exp / "logs"), {rank: _plain(shown) for rank, shown in consoles.items()}

    return of


def _shown(command, environ):
    done = subprocess.run(command, env=environ, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr.decode(errors="replace")[-3000:]
    return done.stderr


def _shown_on_a_terminal(command, environ):
    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST  # a line's end stays one byte
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    process = subprocess.Popen(command, env=environ, stderr=theirs)
    os.close(theirs)
    shown = b""
    while data := _read(ours):
        shown += data
    os.close(ours)
    assert process.wait(60) == 0, shown.decode(errors="replace")[-3000:]
    return shown


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def _files(logs):
    found = {str(path.relative_to(logs)): path.read_bytes() for path in logs.rglob("*.log")}
    return {name: _plain(data) for name, data in found.items() if "/node-" not in name and data}


def _plain(data):
    return _CARETS.sub(b"", _PID.sub(b"pid=PID", _TIME.sub(b"[TIME]", data)))


def names(modules=("pretrain", "sft"), world=WORLD, levels=LEVELS):
    return {
        f"{module}/rank-{rank}/{level}.log" for module in modules for rank in range(world) for level in levels
    }


def agree(ours, theirs):
    """The same bytes; of what differs, the first lines are shown."""
    assert ours.keys() == theirs.keys()
    for name in ours:
        if ours[name] != theirs[name]:
            pairs = zip(ours[name].split(b"\n"), theirs[name].split(b"\n"), strict=False)
            differing = [(number, *pair) for number, pair in enumerate(pairs) if pair[0] != pair[1]]
            sizes = (len(ours[name].split(b"\n")), len(theirs[name].split(b"\n")))
            raise AssertionError(f"{name}: {sizes} lines; {differing[:3]}")


@pytest.mark.parametrize("side", ["installed", "plain"])
def test_the_four_files_of_both_ranks_and_their_consoles_are_the_same_bytes(node, told, side):
    node.agent()
    kinds = "all" if side == "installed" else "plain"
    theirs, their_consoles = told("primus", kinds)
    ours, our_consoles = told(side, kinds)
    # sft began with file_sink_level INFO: no debug.log
    assert theirs.keys() == names() - {f"sft/rank-{rank}/debug.log" for rank in range(WORLD)}
    assert min(map(len, theirs.values())) > 5_000
    agree(ours, theirs)
    agree(our_consoles, their_consoles)


def test_the_launcher_s_files_and_console_are_the_same_bytes(node, told):
    node.agent()
    theirs, their_consoles = told("master-primus", "master", world=1)
    ours, our_consoles = told("master-rankside", "master", world=1)
    assert theirs.keys() == {f"master/master-{level}.log" for level in LEVELS}
    assert theirs["master/master-error.log"].startswith(b"(PrimusMaster  pid=PID, ip=")
    agree(ours, theirs)
    agree(our_consoles, their_consoles)


@pytest.mark.parametrize(
    "levels",
    [
        {"SINK_LEVEL": "WARNING"},
        {"FILE_SINK_LEVEL": "INFO", "STDERR_SINK_LEVEL": "ERROR"},
        {"FILE_SINK_LEVEL": "ERROR", "STDERR_SINK_LEVEL": "DEBUG"},
        {"SINK_LEVEL": "DEBUG", "STDERR_SINK_LEVEL": "ERROR", "PRIMUS_LOG_TIMESTAMP": "0"},
    ],
    ids=lambda levels: " ".join(f"{name}={value}" for name, value in levels.items()),
)
def test_levels_choose_the_same_files_and_lines_of_the_console(node, told, levels):
    node.agent()
    theirs, their_consoles = told("primus", "plain", world=1, **levels)
    ours, our_consoles = told("installed", "plain", world=1, **levels)
    agree(ours, theirs)
    agree(our_consoles, their_consoles)


def test_on_a_terminal_the_console_has_the_same_colours(node, told):
    node.agent()
    _, theirs = told("primus", "coloured", terminal=True, STDERR_SINK_LEVEL="DEBUG")
    _, ours = told("installed", "coloured", terminal=True, STDERR_SINK_LEVEL="DEBUG")
    assert theirs[0].count(b"\x1b[36m") > 100
    agree(ours, theirs)


# Variables of the launchers, of which Primus' own loggers know nothing: what they come to, in its parameters.
# The console needs no agent.
ALONE = {"FLUSH_SECONDS": "0"}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"PRIMUS_LOG_LEVEL": "DEBUG"}, {"STDERR_SINK_LEVEL": "DEBUG"}),
        ({"PRIMUS_LOG_LEVEL": "ERROR"}, {"STDERR_SINK_LEVEL": "INFO"}),
        ({"PRIMUS_LOG_LEVEL": "WARN", "STDERR_SINK_LEVEL": "ERROR"}, {"STDERR_SINK_LEVEL": "WARNING"}),
        ({"--debug": "", "STDERR_SINK_LEVEL": "ERROR"}, {"STDERR_SINK_LEVEL": "DEBUG"}),
        ({"PRIMUS_LOG_TIMESTAMP": "0"}, {"PRIMUS_LOG_TIMESTAMP": "0"}),
    ],
    ids=lambda variables: " ".join(f"{name}={value}" for name, value in variables.items()),
)
def test_the_launchers_variables_open_the_console_and_never_close_it(told, said, meant):
    _, theirs = told("primus", "plain", world=1, **meant)
    variables = {name: value for name, value in said.items() if name != "--debug"}
    _, ours = told("plain", "plain", world=1, debug="--debug" in said, **ALONE, **variables)
    agree(ours, theirs)


def test_without_colours_by_its_variable_a_terminal_shows_what_a_pipe_does(told):
    _, piped = told("primus", "coloured", world=1)
    _, shown = told("plain", "coloured", world=1, terminal=True, PRIMUS_LOG_COLOR="0", **ALONE)
    agree(shown, piped)


def test_today_s_block_of_names_and_values_is_the_same_text(told):
    """Its place apart: Primus' is that of its own file, rankside's that of who called."""
    _, theirs = told("primus", "blocks", world=1)
    _, ours = told("plain", "blocks", world=1, **ALONE)
    assert theirs[0].count(b"Config: (4 parameters)") > 10
    assert _PLACE.sub(b"", ours[0]) == _PLACE.sub(b"", theirs[0])
