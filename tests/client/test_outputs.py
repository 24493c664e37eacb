"""What reaches the descriptors 1 and 2 is recorded once and shown as before, whoever dies of what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from rankside.output_folder import OutputFolder
from rankside.wire import Kind, unpack

HEAD = """
    import ctypes, faulthandler, logging, os, signal, subprocess, sys, time
    from pathlib import Path
    import rankside
    flush = float(os.environ.get("FLUSH", "0.2"))
    mon = rankside.init(exp_root=Path.cwd() / "exp", rank=0, world_size=1, flush_seconds=flush)
    mon.capture_logging(fds=os.environ.get("FDS", "1") == "1")
    """


@pytest.fixture
def rank(script, until, here):
    """Start a rank whose descriptors are captured; its folder is gone once its helper has ended."""

    def begin(body: str, **env: str):
        return script(dedent(HEAD) + dedent(body), RANKSIDE_ENDPOINT=f"ipc://{here}/none.sock", **env)

    yield begin
    until(lambda: not folders(here), "the helpers to end")


@pytest.fixture
def printed(every_spool, until):
    """(level, text) of what the helpers have recorded, once `last` is among it."""

    def find(last: str = "", count: int = 1) -> list[tuple[str, str]]:
        def look() -> list[tuple[str, str]]:
            found = []
            for folder, records in every_spool().items():
                if unpack((folder / "channel").read_bytes())["outputs"]:
                    found += [(fields[2], fields[5]) for _, kind, fields in records if kind == Kind.LOG]
            return [each for each in found if "no agent has answered" not in each[1]]

        until(lambda: sum(last in text for _, text in look()) >= count, f"{last!r}")
        return look()

    return find


def folders(here) -> list[OutputFolder]:
    return [OutputFolder(path) for path in (here / "spool").glob("*/*.outputs")]


def helper_of(here) -> int:
    """The pid of the process that reads the only captured output: the one whose folder is its own."""
    (folder,) = folders(here)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            here = os.readlink(process / "cwd") == str(folder.path)
            if here and b"output_tail" in (process / "cmdline").read_bytes():
                return int(process.name)
    return 0


def test_all_that_reaches_the_descriptors_is_recorded_once_and_shown_as_before(rank, printed):
    body = """
    print("printed")
    print("to stderr", file=sys.stderr)
    os.write(1, b"by number\\n")
    ctypes.CDLL(None).puts(b"by C")
    subprocess.run("echo of a child; echo its error >&2", shell=True)
    """
    status, out, err = rank(body).end()
    assert (status, out) == (0, "printed\nby number\nby C\nof a child\n")
    assert err.startswith("to stderr\nits error\n")
    found = printed("its error")
    assert [text for level, text in found if level == "INFO"] == [
        "printed",
        "by number",
        "by C",
        "of a child",
    ]
    assert [text for level, text in found if level == "WARNING"] == ["to stderr", "its error"]


def test_lines_of_both_streams_keep_their_order(rank, printed):
    body = """
    for number in range(200):
        print(number, file=sys.stderr if number % 3 else sys.stdout)
    """
    rank(body).end()
    assert [text for _, text in printed("199")] == [str(number) for number in range(200)]


def test_what_handlers_of_logging_show_is_recorded_as_their_record_alone(rank, printed, every_spool):
    body = """
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.info("by logging")
    from loguru import logger
    logger.info("by loguru")
    print("by print")
    """
    _, out, err = rank(body).end()
    assert out == "by logging\nby print\n"
    assert "by loguru" in err
    assert printed("by print") == [("INFO", "by print")]
    texts = [f[5] for records in every_spool().values() for _, kind, f in records if kind == Kind.LOG]
    assert sorted(text for text in texts if text.startswith("by ")) == ["by logging", "by loguru", "by print"]


def test_a_dump_of_faulthandler_arrives(rank, printed):
    status, _, err = rank("    faulthandler.enable()\n    ctypes.string_at(0)\n").end()
    assert status == -signal.SIGSEGV
    assert "Segmentation fault" in err
    assert ("WARNING", "Fatal Python error: Segmentation fault") in printed("string_at")


def test_a_line_that_sigkill_cuts_arrives_as_far_as_it_came(rank, printed):
    status, out, _ = rank(
        '    print("whole")\n    os.write(1, b"half a li")\n    os.kill(os.getpid(), 9)\n'
    ).end()
    assert (status, out) == (-9, "whole\nhalf a li")
    assert printed("half") == [("INFO", "whole"), ("INFO", "half a li")]


def test_what_an_interpreter_says_at_its_very_end_arrives(rank, printed):
    body = """
    class Last:
        def __del__(self):
            raise ValueError("in del")
    held = Last()
    """
    rank(body).end()
    assert ("WARNING", "ValueError: in del") in printed("ValueError")


def test_a_helper_that_is_killed_is_started_again_and_no_line_is_lost_or_twice(rank, printed, here, until):
    body = """
    for number in range(3000):
        print("line", number)
        if number % 100 == 0:
            time.sleep(0.05)
    print("written", file=sys.__stderr__)
    sys.stdin.readline()
    """
    started = rank(body)
    for count in (300, 1500):
        printed("line", count)
        os.kill(until(lambda: helper_of(here), "a helper"), signal.SIGKILL)
    printed("line 2999")
    _, out, _ = started.end()
    assert [text for level, text in printed() if level == "INFO"] == [f"line {n}" for n in range(3000)]
    shown = [int(line.split()[1]) for line in out.splitlines() if line.startswith("line ")]
    assert sorted(set(shown)) == list(range(3000))


def test_closing_gives_the_descriptors_back_and_waits_for_the_record(rank, printed):
    body = """
    print("before")
    mon.close()
    print("after", os.readlink("/proc/self/fd/1").startswith("pipe:"), sys.stdout.line_buffering)
    """
    _, out, _ = rank(body, PYTHONUNBUFFERED="", FLUSH="3").end()
    assert out == "before\nafter True False\n"
    assert printed("before") == [("INFO", "before")]


def test_a_reader_that_never_reads_stops_neither_the_rank_nor_the_record(rank, printed, here):
    body = """
    os.write(1, b"x" * 99 + b"\\n")
    os.write(1, (b"y" * 99 + b"\\n") * 20000)
    print("done")
    sys.stdin.readline()
    """
    started = rank(body)
    assert printed("done")[-1] == ("INFO", "done")
    assert started.process.poll() is None
    assert started.end()[1].count("y" * 99) == 20000


def test_a_closed_pipe_is_no_trouble(rank, printed):
    body = """
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing), os.close(reading)
    mon.capture_logging(fds=True)
    print("into nothing", flush=True)
    """
    started = rank(body, FDS="")
    assert started.end()[0] == 0
    assert printed("into nothing") == [("INFO", "into nothing")]


def test_bars_are_condensed(rank, printed):
    body = """
    for number in range(101):
        sys.stderr.write(f"\\r{number:3d}%|###| {number}/100 [00:01<00:00, 9.99it/s]")
    sys.stderr.write("\\n")
    print("loss 0.6")
    """
    _, _, err = rank(body).end()
    assert err.count("/100 [") == 101
    bars = [text for _, text in printed("loss") if "/100" in text]
    assert len(bars) <= 3
    assert bars[-1].startswith("100%")


def test_output_is_bytes_of_any_kind(rank, printed):
    body = """
    for byte in "gr\\u00fc\\u00df".encode() + b"\\n" + b"\\xff lone, and NUL \\x00\\n":
        os.write(1, bytes((byte,)))
        time.sleep(0.003)
    os.write(1, b"z" * (3 << 20) + b"\\nend\\n")
    """
    rank(body).end()
    texts = [text for _, text in printed("end")]
    assert texts[:2] == ["gr\u00fc\u00df", "\ufffd lone, and NUL \x00"]
    assert len(texts[2]) < 70_000
    assert str(3 << 20) in texts[2]
    assert texts[3] == "end"


def test_children_that_fork_write_as_their_parent_and_end_nothing(rank, printed):
    body = """
    pid = os.fork()
    if not pid:
        print("child")
        sys.exit(0)
    os.waitpid(pid, 0)
    print("parent", os.path.exists(os.readlink("/proc/self/fd/1")))
    """
    _, out, _ = rank(body).end()
    assert out == "child\nparent True\n"
    assert [text for _, text in printed("parent")] == ["child", "parent True"]


def test_the_next_module_holds_for_what_is_printed_from_there_on(rank, printed, every_spool):
    rank('    print("one")\n    mon.set_module("sft")\n    print("two")\n').end()
    printed("two")
    (records,) = [
        [
            (kind, fields[1] if kind == Kind.MODULE else fields[5])
            for _, kind, fields in records
            if kind != Kind.CLOSE and "no agent has answered" not in str(fields)
        ]
        for folder, records in every_spool().items()
        if unpack((folder / "channel").read_bytes())["outputs"]
    ]
    assert records == [(Kind.LOG, "one"), (Kind.MODULE, "sft"), (Kind.LOG, "two")]


@pytest.mark.parametrize("number", [1, 2])
def test_a_descriptor_that_is_closed_is_left_alone(here, until, number):
    code = (HEAD + '\n    print("said")\n    os.write(3 - int(sys.argv[1]), b"other\\n")\n').replace(
        "\n    ", "\n"
    )
    command = ["sh", "-c", f'exec "$0" "$@" {number}>&-', sys.executable, "-c", code, str(number)]
    env = {**os.environ, "RANKSIDE_ENDPOINT": f"ipc://{here}/none.sock"}
    done = subprocess.run(command, env=env, cwd=here, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "other\n" in done.stdout + done.stderr
    until(lambda: not folders(here), "the helper to end")


def test_where_no_folder_can_be_made_print_is_captured_instead_and_one_warning_says_so(
    script, every_spool, here
):
    body = HEAD.replace("mon.cap", 'os.environ["RANKSIDE_SPOOL_DIR"] = "/proc/none"\n    mon.cap')
    _, out, err = script(dedent(body) + 'print("printed")\n').end()
    assert out == "printed\n"
    assert err.count("print is captured instead") == 1
    (records,) = every_spool().values()
    assert "printed" in [fields[5] for _, kind, fields in records if kind == Kind.LOG]


def test_of_two_monitors_the_first_keeps_the_descriptors(rank, printed):
    body = """
    other = rankside.init(exp_root=Path.cwd() / "other", rank=1, world_size=2, flush_seconds=0)
    other.capture_logging(fds=True)
    mon.capture_logging(fds=True)
    os.write(1, b"raw\\n")
    """
    _, out, err = rank(body).end()
    assert out == "raw\n"
    assert err.count("another monitor of this process has the descriptors") == 1
    assert [text for _, text in printed("raw") if text == "raw"] == ["raw"]


def test_a_child_that_leads_its_descriptors_elsewhere_writes_no_mark_there(rank, here, printed):
    body = """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pid = os.fork()
    if not pid:
        fd = os.open("daemon.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(fd, 1), os.dup2(fd, 2)
        logging.info("of a daemon")
        print("printed", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print("parent")
    """
    rank(body).end()
    printed("parent")
    assert (here / "daemon.log").read_text() == "of a daemon\nprinted\n"
