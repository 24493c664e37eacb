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


def test_what_a_handler_or_a_signal_prints_beside_a_record_is_recorded(rank, printed):
    body = """
    class Uploads(logging.StreamHandler):
        def emit(self, record):
            print("upload of", len(record.getMessage()), "bytes failed")
            signal.raise_signal(signal.SIGUSR1)
            super().emit(record)
    signal.signal(signal.SIGUSR1, lambda *_: print("from", "a signal"))
    logging.getLogger("x").addHandler(Uploads(sys.stdout))
    logging.getLogger("x").error("said")
    print("LOG:", "printed")
    """
    _, out, _ = rank(body).end()
    assert out == "upload of 4 bytes failed\nfrom a signal\nsaid\nLOG: printed\n"
    assert [text for level, text in printed("LOG") if level == "INFO"] == [
        "upload of 4 bytes failed",
        "from a signal",
        "LOG: printed",
    ]


def test_a_record_that_a_handler_prints_by_pieces_is_recorded_once(rank, printed):
    body = """
    class Printing(logging.Handler):
        def emit(self, record):
            print("LOG:", record.getMessage(), "at", record.lineno)
    logging.getLogger("x").addHandler(Printing())
    logging.getLogger("x").error("said")
    print("printed")
    """
    _, out, _ = rank(body).end()
    assert out == "LOG: said at 13\nprinted\n"
    assert [text for level, text in printed("printed") if level == "INFO"] == ["printed"]


def test_a_program_that_begins_anew_with_exec_and_captures_again_is_recorded_once(rank, printed):
    body = """
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    print("first" if "AGAIN" not in os.environ else "second", flush=True)
    logging.error("logged")
    if "AGAIN" not in os.environ:
        os.environ["AGAIN"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    """
    status, out, _ = rank(body).end()
    assert (status, out) == (0, "first\nlogged\nsecond\nlogged\n")
    assert sorted(text for level, text in printed("second") if level == "INFO") == ["first", "second"]


def test_what_the_next_program_after_exec_prints_is_recorded_as_the_ranks(rank, printed):
    body = """
    print("first", flush=True)
    os.execv("/bin/sh", ["sh", "-c", "echo second; exit 5"])
    """
    status, out, _ = rank(body).end()
    assert (status, out) == (5, "first\nsecond\n")
    assert [text for _, text in printed("second")] == ["first", "second"]


def test_a_child_that_is_another_rank_is_heard_by_both(rank, printed, here):
    body = """
    child = "import rankside; rankside.init(exp_root='exp', rank=1, world_size=2, flush_seconds=0.2)" \\
        ".capture_logging(fds=True); print('of the child')"
    subprocess.run([sys.executable, "-c", child])
    """
    _, out, _ = rank(body).end()
    assert out == "of the child\n"
    assert [text for _, text in printed("child", 2) if "child" in text] == ["of the child"] * 2


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


def test_monitors_one_after_the_other_have_the_descriptors(rank, printed, every_spool):
    body = """
    print("first")
    mon.close()
    print("nobody's")
    mon = rankside.init(exp_root=Path.cwd() / "exp", rank=0, world_size=1, flush_seconds=0.5)
    mon.capture_logging(fds=True)
    print("second")
    mon.close()
    print(os.readlink("/proc/self/fd/1").startswith("pipe:"), vars(sys.stdout).keys() == {"mode"})
    """
    _, out, _ = rank(body, FLUSH="0.5").end()
    assert sorted(out.splitlines()) == ["True True", "first", "nobody's", "second"]
    assert (
        sorted(text for _, text in printed("second") + printed("first") if text != "first") == ["second"] * 2
    )
    assert [text for _, text in printed() if "nobody" in text or "True" in text] == []


@pytest.mark.parametrize("order", ["fds print", "print fds"])
@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_monitors_at_once_hear_both_whichever_leaves_first(rank, printed, every_spool, order, first_to_leave):
    body = """
    monitors = []
    for number, how in enumerate(os.environ["ORDER"].split()):
        monitors.append(rankside.init(exp_root=Path.cwd() / how, rank=0, world_size=1, flush_seconds=0.5))
        monitors[-1].capture_logging(**{how: True}, console=True)
    print("for", "both")
    logging.error("logged")
    monitors.pop(int(os.environ["FIRST"])).close()
    print("for one")
    monitors.pop().close()
    print("for nobody", vars(sys.stdout).keys() == {"mode"})
    """
    _, out, err = rank(body, FDS="0", ORDER=order, FIRST=str(first_to_leave)).end()
    assert sorted(out.splitlines()) == ["for both", "for nobody True", "for one"]
    assert err.count("logged") == 2  # each console has it
    last = order.split()[1 - first_to_leave]
    printed("for both")
    said = {}
    for folder, records in every_spool().items():
        hello = unpack((folder / "channel").read_bytes())
        texts = [fields[5] for _, kind, fields in records if kind == Kind.LOG]
        said.setdefault(Path(hello["exp_root"]).name, []).extend(text for text in texts if "for" in text)
    assert [text for text in said["fds"] if "answered" not in text] == [
        "for both",
        *["for one"] * (last == "fds"),
    ]
    assert said["print"] == ["for both", *["for one"] * (last == "print")]


def test_a_program_that_is_not_monitored_keeps_its_descriptors(rank, here):
    body = """
    print(os.readlink("/proc/self/fd/1").startswith("pipe:"), vars(sys.stdout).keys() == {"mode"})
    """
    assert rank(body, RANKSIDE_DISABLE="1").end()[1] == "True True\n"
    assert not (here / "spool").exists()


def on_a_small_disk(here, body: str, size: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a rank whose spools and captured output lie on a disk of their own."""
    disk = here / "spool"
    disk.mkdir()
    (here / "rank.py").write_text(dedent(HEAD) + dedent(body))
    mount = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        'mount -t tmpfs -o size=$0 t "$1" && shift && exec "$@"',
        size,
        str(disk),
    ]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    command = [*mount, sys.executable, str(here / "rank.py")]
    env = {**os.environ, "RANKSIDE_ENDPOINT": f"ipc://{here}/none.sock", **env}
    return subprocess.run(command, env=env, cwd=here, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("helper", ["lives", "is stopped"])
def test_a_disk_that_fills_up_neither_stops_the_program_nor_loses_what_it_prints(here, unbuffered, helper):
    body = """
    if os.environ["HELPER"] == "is stopped":
        time.sleep(0.5)
        for cwd in Path("/proc").glob("[0-9]*/cwd"):
            if os.path.exists(cwd) and os.readlink(cwd).endswith(".outputs"):
                stopped = int(cwd.parent.name)
                os.kill(stopped, signal.SIGSTOP)
    for number in range(300):
        print(number, "x" * 100, "y" * 100_000)
    logging.basicConfig(stream=sys.stdout)
    logging.error("said")
    print("last")
    if os.environ["HELPER"] == "is stopped":
        sys.stdout.flush()
        os.kill(stopped, signal.SIGCONT)
    """
    done = on_a_small_disk(here, body, "20m", PYTHONUNBUFFERED=unbuffered, HELPER=helper)
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert (shown.count("y"), shown.count("x" * 100)) == (30_000_000, 300)
    assert (shown.count("ERROR:root:said\n"), shown.count("last\n")) == (1, 1)
    if helper == "lives":
        assert [int(line.split()[0]) for line in shown.splitlines()[:-2]] == list(range(300))


def test_where_there_is_no_room_from_the_beginning_print_is_captured_instead(here):
    done = on_a_small_disk(here, 'print("printed")', "4m")
    assert (done.returncode, done.stdout) == (0, "printed\n")
    assert "print is captured instead" in done.stderr


def test_where_files_have_a_limit_print_is_captured_instead(script, here, texts):
    body = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (80 << 20, resource.RLIM_INFINITY))
    """
    end = "print('trained to the end')"
    status, out, err = script(dedent(body) + dedent(HEAD) + end, RANKSIDE_ENDPOINT=f"ipc://{here}/no").end()
    assert (status, out) == (0, "trained to the end\n")
    assert "ulimit -f" in err
    assert "trained to the end" in texts()


def test_a_limit_of_files_that_is_set_later_ends_the_capture_and_not_the_training(rank):
    status, out, err = rank("""
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, resource.RLIM_INFINITY))
    for number in range(1000):
        print(number, "x" * 10_000)
    print("trained to the end")
    """).end()
    assert status == 0, err
    assert out.count("x") > 999 * 10_000  # the line at the limit may be cut
    assert "trained to the end" in out
    assert err.count("is no longer captured") == 1
