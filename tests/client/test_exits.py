"""How a training ended is known at its exit, whatever hooks stand and whether or not anything is captured."""

from __future__ import annotations

import pytest

from rankside.wire import Kind

START = """
import sys, rankside
mon = rankside.init(exp_root={root!r}, rank=0, world_size=1, flush_seconds=0)
"""
CAPTURED = "mon.capture_logging()\n"
UNCAUGHT = "raise ValueError('boom')"


@pytest.fixture
def ended(here, script, records):
    """Runs the last lines of a training: (its exit status, what it said at its end, CRITICAL texts)."""

    def run(body):
        status, _, _ = script(START.format(root=str(here / "exp")) + body).end()
        critical = [fields[5] for fields in records(Kind.LOG) if fields[2] == "CRITICAL"]
        return status, records(Kind.CLOSE)[-1][1], critical

    return run


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("", 0, "finished"),
        ("sys.exit()", 0, "finished"),
        ("sys.exit(0)", 0, "finished"),
        ("sys.exit(3)", 3, "failed"),
        ("sys.exit('the config is bad')", 1, "failed"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--nope'])", 2, "failed"),
        (UNCAUGHT, 1, "failed"),
        ("raise KeyboardInterrupt", -2, "killed"),
        ("try:\n    sys.exit(1)\nexcept SystemExit:\n    sys.exit(0)", 0, "finished"),
        (
            "import threading\nt = threading.Thread(target=sys.exit, args=(1,))\nt.start(); t.join()",
            0,
            "finished",
        ),
        ("sys.last_value = ValueError('of a debugger'); sys.ps1 = '>>> '", 0, "finished"),
        (f"mon.close('finished')\n{UNCAUGHT}", 1, "finished"),
    ],
)
def test_the_end_is_told_as_it_was_without_any_capture(ended, body, status, said):
    assert ended(body) == (status, said, [])


@pytest.mark.parametrize(
    "hook",
    [
        "",
        "sys.excepthook = lambda *told: None\n",
        "sys.excepthook = sys.__excepthook__\n",
        "from rich import traceback; traceback.install()\n",
    ],
)
def test_an_exception_is_recorded_once_whoever_took_the_hook(ended, hook):
    if "rich" in hook:
        pytest.importorskip("rich")
    status, said, critical = ended(CAPTURED + hook + UNCAUGHT)
    assert (status, said, len(critical)) == (1, "failed", 1)
    assert critical[0].startswith("uncaught exception\nTraceback")
    assert critical[0].endswith("ValueError: boom")


def test_an_exception_from_before_the_first_monitor_says_nothing_of_it(here, script, records):
    before = "import sys\nsys.last_value = sys.last_exc = ValueError('of a notebook cell')\n"
    script(before + START.format(root=str(here / "exp"))).end()
    assert records(Kind.CLOSE)[-1][1] == "finished"


def test_sys_exit_is_as_it_was_for_its_callers(start):
    import sys

    start()
    for status in (None, 0, 5, "text"):
        with pytest.raises(SystemExit) as ended:
            sys.exit(status)
        assert ended.value.code == status
    with pytest.raises(TypeError):
        sys.exit(1, 2)
    with pytest.raises(SystemExit):
        sys.exit()
