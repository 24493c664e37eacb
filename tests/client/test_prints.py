"""What is printed is recorded, once, with its place, and printed as ever."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import sys
import threading
import traceback
from typing import Any

import pytest

from rankside import prints, stream_write
from rankside.wire import Kind


class Stream(io.StringIO):
    """A stdout in a test's hands."""


@pytest.fixture
def out() -> Stream:
    return Stream()


@pytest.fixture
def err() -> Stream:
    return Stream()


@pytest.fixture
def streams(out, err, monkeypatch) -> Any:
    """Put the two in place; in the test, for pytest puts its own there when the test begins."""

    def put() -> None:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        monkeypatch.setattr(logging.root, "handlers", [])

    return put


@pytest.fixture
def captured(start, streams) -> Any:
    """A monitor that captures what is printed to two streams of the test's."""
    made: list[Any] = []

    def begin() -> Any:
        streams()
        made.append(start(spool_bytes=64 << 20))
        made[-1].capture_logging(print=True)
        return made[-1]

    yield begin
    for mon in made:
        mon.close()


@pytest.fixture
def printed(records):
    """Level, place and text of what was recorded."""
    return lambda mon: [(fields[2], *fields[3:]) for fields in records(Kind.LOG, mon)]


def line() -> int:
    """The caller's line."""
    return sys._getframe(1).f_lineno


# -- print() -------------------------------------------------------------------------------------------


def test_what_is_printed_is_recorded_with_its_place_and_still_printed(captured, printed, out, err):
    mon = captured()
    print("loss", 0.5, {"a": 1})
    print("careful", file=sys.stderr)
    at = line()
    assert printed(mon) == [
        ("INFO", "test_prints", at - 2, "loss 0.5 {'a': 1}"),
        ("WARNING", "test_prints", at - 1, "careful"),
    ]
    assert (out.getvalue(), err.getvalue()) == ("loss 0.5 {'a': 1}\n", "careful\n")


def test_parts_of_a_line_are_one_record(captured, texts):
    mon = captured()
    for part in ("loading", ".", ".", "."):
        print(part, end="")
    assert texts(mon) == []
    print(" done")
    print("a\nb", "c", sep="\n")
    sys.stdout.write("d\ne")
    sys.stdout.writelines([" and", " more\n", "f\n"])
    print()
    assert texts(mon) == ["loading... done", "a", "b", "c", "d", "e and more", "f", ""]


def test_what_was_begun_is_recorded_at_the_end(start, streams, out, err, texts):
    streams()
    mon = start()
    mon.capture_logging(print=True)
    print("no end", end="")
    folder = mon._spool.folder
    mon.close()
    assert texts(folder) == ["no end"]


def test_a_bar_is_a_few_lines(captured, texts):
    mon = captured()
    for n in range(1000):
        print(f"\r{n // 10:3d}%|{'#' * (n // 100):<10}| {n}/1000 [00:01<00:01, 9it/s]", end="")
    print("{'loss': 0.5}")
    found = texts(mon)
    assert len(found) <= 4
    assert "{'loss': 0.5}" in found


def test_what_cannot_be_printed_raises_as_ever_and_is_not_recorded(captured, texts, out):
    mon = captured()

    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with pytest.raises(RuntimeError):
        print(Unprintable())
    with pytest.raises(TypeError):
        sys.stdout.write(5)
    out.close()
    with pytest.raises(ValueError, match="closed"):
        print("nobody hears this")
    assert texts(mon) == []


def test_an_object_that_prints_while_it_is_printed(captured, texts):
    mon = captured()

    class Chatty:
        def __str__(self) -> str:
            print("inner")
            return "outer"

    print(Chatty())
    print("x", Chatty(), "y")
    logging.getLogger("t.x").warning("%s", Chatty())
    assert texts(mon)[:4] == ["inner", "outer", "inner", "x outer y"]
    assert texts(mon)[4:] == ["inner", "outer", "inner"]  # made text for the record, and by the handler


def test_nothing_that_the_recording_meets_reaches_the_program(captured, out, monkeypatch):
    mon = captured()
    monkeypatch.setattr(type(mon), "_log", lambda *_, **__: 1 / 0)
    print("all the same")
    assert out.getvalue() == "all the same\n"


# -- from anywhere -------------------------------------------------------------------------------------


def test_threads_print_whole_lines(captured, texts):
    mon = captured()

    def work(name: int) -> None:
        for number in range(300):
            print(name, number)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    found = [tuple(map(int, text.split())) for text in texts(mon)]
    for name in range(4):
        assert [number for each, number in found if each == name] == list(range(300))


def test_more_threads_than_are_remembered_lose_nothing(captured, texts, monkeypatch):
    mon, leave = captured(), threading.Event()
    monkeypatch.setattr(prints, "_MOST_THREADS", 4)

    def work(number: int) -> None:
        print("thread", number, end="")
        leave.wait(30)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for each in threads:
        each.start()
    leave.set()
    for each in threads:
        each.join(30)
    print("after them")  # this thread's first: those that have ended are let go
    assert sorted(texts(mon)) == sorted([*(f"thread {number}" for number in range(12)), "after them"])


def test_a_forked_child_prints_under_its_own_name_and_leaves_the_rest_to_its_parent(run, every_spool):
    run("""
        import os, threading
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(print=True)
        print("begun in the parent", end="", flush=True)
        child = os.fork()
        if child == 0:
            print("from the child")
            mon.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(", ended there")
        mon.close()
        """)
    found = [
        [fields[5] for _, kind, fields in records if kind == Kind.LOG] for records in every_spool().values()
    ]
    assert sorted(found) == [["begun in the parent, ended there"], ["from the child"]]


def test_a_signal_handler_prints_while_the_main_thread_prints(run, texts):
    run("""
        import itertools, os, signal, sys, time
        import rankside
        sys.stdout = open(os.devnull, "w")
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0, spool_bytes=256 << 20)
        mon.capture_logging(print=True)
        count, number = itertools.count(), 0
        signal.signal(signal.SIGALRM, lambda *_: print("signal", next(count), file=sys.stderr))
        deadline = time.monotonic() + 15
        while int(repr(count)[6:-1]) < 300 and time.monotonic() < deadline:
            signal.setitimer(signal.ITIMER_REAL, 0.00001 + number % 20 * 0.000005)
            print("main", number, file=sys.stderr)
            number += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        mon.close()
        """)
    found = texts()
    theirs = [text for text in found if text.startswith("signal")]
    assert sorted(theirs) == sorted(f"signal {number}" for number in range(len(theirs)))
    assert len(theirs) >= 300
    mine = " ".join(text for text in found if not text.startswith("signal"))
    assert mine == " ".join(f"main {number}" for number in range(mine.count("main")))


def test_a_call_that_is_under_way_twice_at_the_same_place_makes_two_lines(captured, texts):
    mon = captured()

    class Chatty:
        def __init__(self, depth: int) -> None:
            self.depth = depth

        def __str__(self) -> str:
            if self.depth:
                say(self.depth - 1)
            return f"at {self.depth}"

    def say(depth: int) -> None:
        print("signal", Chatty(depth), "end")

    say(3)
    assert texts(mon) == [f"signal at {depth} end" for depth in range(4)]


def test_a_signal_in_the_middle_of_a_recording_breaks_no_line(captured, texts, monkeypatch):
    mon = captured()
    log = mon._log

    def interrupted(*args: Any, **more: Any) -> None:
        if args[-1] == "main line":
            print("from a handler")
        log(*args, **more)

    monkeypatch.setattr(mon, "_log", interrupted)
    print("main line")
    assert sorted(texts(mon)) == ["from a handler", "main line"]


def test_what_an_object_prints_when_it_goes(captured, texts):
    mon = captured()

    class Last:
        def __del__(self) -> None:
            print("gone")

    print("before")
    Last()
    assert texts(mon) == ["before", "gone"]


def test_what_the_interpreter_prints_itself(run, records):
    run("""
        import sys
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(print=True)
        class Bad:
            def __del__(self): raise KeyError("in __del__")
        Bad()
        mon.close()
        """)
    found = [fields[5] for fields in records(Kind.LOG)]
    assert any("in __del__" in text for text in found)
    assert any(text.startswith("Exception ignored") for text in found)


# -- once ----------------------------------------------------------------------------------------------


def test_handlers_of_logging_print_what_is_recorded_already(captured, texts, out, err):
    mon = captured()
    plain, own = logging.StreamHandler(sys.stdout), logging.getLogger("t.own")
    logging.root.addHandler(plain)
    own.addHandler(logging.StreamHandler(sys.stderr))
    own.propagate = False
    try:
        logging.getLogger("t.x").warning("once")
        own.warning("and this")
        print("printed")
    finally:
        own.propagate, own.handlers = True, []
    assert texts(mon) == ["once", "and this", "printed"]
    assert (out.getvalue(), err.getvalue()) == ("once\nprinted\n", "and this\n")


def test_handlers_that_print_in_ways_of_their_own(captured, texts):
    mon = captured()

    class Printing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(self.format(record))

    logging.root.addHandler(Printing())
    logging.getLogger("t.x").warning("once")
    assert texts(mon) == ["once"]


@pytest.mark.parametrize(
    "say",
    [
        lambda text: print("LOG:", text),
        lambda text: print(text, "said"),
        lambda text: print(text, end="\n"),
        lambda text: sys.stderr.writelines([text, "\n"]),
        lambda text: print(f'{{"message": "{text}", "level": 30}}'),
        lambda text: print("\x1b[1m" + "\x1b[0m \x1b[1m".join(text.split()) + "\x1b[0m"),
        lambda text: [print(part) for part in text.split(", ")],
        lambda text: print(text, end=""),
    ],
)
def test_a_record_is_known_in_whatever_form_a_handler_prints_it(captured, texts, say):
    mon = captured()

    class Printing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    logging.root.addHandler(Printing())
    logging.getLogger("t.x").warning("once %s", "upon a time, in records")
    print("printed")
    assert texts(mon) == ["once upon a time, in records", "printed"]


@pytest.mark.parametrize("end", ["\n", ""])
def test_what_a_handler_prints_of_its_own_is_heard(captured, texts, end):
    mon = captured()

    class Uploads(logging.StreamHandler):
        def emit(self, record: logging.LogRecord) -> None:
            print("upload of", len(record.getMessage()), "bytes failed", end=end)
            super().emit(record)
            print("tried again")

    logging.root.addHandler(Uploads(sys.stderr))
    logging.getLogger("t.x").warning("said")
    mon._captures.end()
    want = ["upload of 4 bytes failed", "tried again"] if end else ["upload of 4 bytes failedtried again"]
    assert texts(mon) == ["said", *want]


def test_what_a_sink_of_loguru_prints_of_its_own_is_heard(captured, texts):
    mon = captured()
    loguru = pytest.importorskip("loguru")
    number = loguru.logger.add(lambda message: print("webhook: 500"))
    try:
        loguru.logger.info("said")
    finally:
        loguru.logger.remove(number)
    assert texts(mon) == ["said", "webhook: 500"]


def test_a_signal_handler_prints_in_the_middle_of_a_logging_handler(captured, texts):
    mon = captured()

    class Slow(logging.StreamHandler):
        def emit(self, record: logging.LogRecord) -> None:
            signal.raise_signal(signal.SIGUSR1)
            super().emit(record)

    before = signal.signal(signal.SIGUSR1, lambda *_: print("from", "a signal"))
    try:
        logging.root.addHandler(Slow(sys.stderr))
        logging.getLogger("t.x").warning("said")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert texts(mon) == ["said", "from a signal"]


def test_logging_s_last_resort(captured, texts, err, monkeypatch):
    mon = captured()
    logging.getLogger("t.x").warning("nobody handles this")
    assert texts(mon) == ["nobody handles this"]
    assert err.getvalue() == "nobody handles this\n"


def test_a_handler_that_fails_is_heard(captured, texts, err):
    mon = captured()

    class Broken(logging.StreamHandler):
        def format(self, record: logging.LogRecord) -> str:
            raise KeyError("broken handler")

    logging.root.addHandler(Broken(io.StringIO()))
    logging.getLogger("t.x").warning("said")
    found = texts(mon)
    assert found[0] == "said"
    assert "KeyError: 'broken handler'" in found
    assert "broken handler" in err.getvalue()


def test_rich(captured, texts, out):
    mon = captured()
    rich = pytest.importorskip("rich")
    from rich.console import Console
    from rich.logging import RichHandler

    logging.root.addHandler(RichHandler(console=Console(file=sys.stdout, width=100)))
    logging.getLogger("t.x").warning("through rich")
    Console(file=sys.stdout).print("[red]printed[/red] by rich")
    assert texts(mon) == ["through rich", "printed by rich"]
    assert "through rich" in out.getvalue()
    assert rich


def test_sinks_of_loguru(captured, texts, out):
    mon = captured()
    loguru = pytest.importorskip("loguru")
    numbers = [loguru.logger.add(sink, format="{message}") for sink in (sys.stdout, print, sys.stderr)]
    try:
        loguru.logger.info("through loguru")
        print("printed")

        class Chatty:
            def __format__(self, _spec: str) -> str:
                print("inner")
                return "outer"

        loguru.logger.info("{}", Chatty())  # noqa: PLE1205  loguru's own format
    finally:
        for number in numbers:
            loguru.logger.remove(number)
    assert texts(mon) == ["through loguru", "printed", "inner", "outer"]
    assert out.getvalue().count("through loguru") == 2


def test_warnings(run, texts):
    _, err = run("""
        import warnings
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(print=True)
        warnings.warn("careful", UserWarning)
        mon.close()
        """)
    assert texts() == ["UserWarning: careful"]
    assert err.count("UserWarning: careful") == 1


def test_a_traceback_that_is_printed(captured, printed):
    mon = captured()
    try:
        raise ValueError("printed by hand")
    except ValueError:
        traceback.print_exc()
    found = printed(mon)
    assert found[0][0] == "WARNING"
    assert found[0][3] == "Traceback (most recent call last):"
    assert found[-1][3] == "ValueError: printed by hand"


def test_an_uncaught_exception_is_one_record(script, texts):
    process = script("""
        import threading
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(print=True)
        def fail(): raise KeyError("in a thread")
        thread = threading.Thread(target=fail); thread.start(); thread.join()
        raise ValueError("at the end")
        """)
    status, _, err = process.end()
    assert status == 1
    assert err.count("ValueError: at the end") == 1
    assert [text.split("\n")[0].partition(" in ")[0] for text in texts()] == ["uncaught exception"] * 2
    assert sum("at the end" in text for text in texts()) == 1


def test_rankside_s_own_console_and_warnings(script, texts):
    process = script("""
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(console=True, print=True)
        mon.log("shown")
        print("printed")
        mon.metrics(5)
        mon.close()
        """)
    status, out, err = process.end()
    assert status == 0
    found = texts()
    assert found[:2] == ["shown", "printed"]
    assert len(found) == 3
    assert err.count("] : shown") == 1
    assert out == "printed\n"


# -- streams -------------------------------------------------------------------------------------------


def test_afterwards_everything_is_as_it_was(start, streams, out, err):
    streams()

    class Tee(Stream):
        def write(self, text: str) -> int:
            return super().write(text.upper())

    tee = Tee()
    tee.write = own = tee.write  # type: ignore[method-assign]
    sys.stderr = tee
    mon = start()
    mon.capture_logging(print=True)
    assert out.write.__qualname__ != Stream.write.__qualname__
    mon.close()
    assert vars(out) == {}
    assert tee.write is own
    print("later")
    assert out.getvalue() == "later\n"


def test_a_write_that_was_put_over_ours_stays_and_is_let_through(start, streams, out, err, texts):
    streams()
    mon = start()
    mon.capture_logging(print=True)
    ours = out.write
    out.write = lambda text: ours(text.upper())  # type: ignore[method-assign]
    print("heard")
    folder = mon._spool.folder
    mon.close()
    print("not heard")
    assert out.getvalue() == "HEARD\nNOT HEARD\n"
    assert texts(folder) == ["HEARD"]


def test_what_is_redirected_is_the_program_s_own(captured, texts):
    mon = captured()
    elsewhere = io.StringIO()
    with contextlib.redirect_stdout(elsewhere):
        print("kept for later")
    print("printed")
    assert elsewhere.getvalue() == "kept for later\n"
    assert texts(mon) == ["printed"]


def test_a_stream_that_passes_on_what_it_gets_is_heard_once(captured, texts, out):
    mon = captured()

    class Tee:
        def __init__(self, first: Any) -> None:
            self.first, self.copy = first, io.StringIO()

        def write(self, text: str) -> int:
            self.copy.write(text)
            return self.first.write(text)

        def flush(self) -> None: ...

    sys.stdout = Tee(out)
    print("through a tee")
    assert texts(mon) == ["through a tee"]


def test_pytest_s_capsys_hears_what_it_heard(start, capsys, texts):
    mon = start()
    mon.capture_logging(print=True)
    print("for both")
    folder = mon._spool.folder
    mon.close()
    assert capsys.readouterr().out == "for both\n"
    assert texts(folder) == ["for both"]


def test_bytes_past_the_stream_are_not_heard(run, texts):
    run("""
        import os, sys
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(print=True)
        sys.stdout.buffer.write(b"by its buffer\\n")
        os.write(1, b"by the descriptor\\n")
        print("by the stream")
        mon.close()
        """)
    assert texts() == ["by the stream"]


@pytest.mark.parametrize("odd", ["None", "Fixed()", "closed()", "sys.stderr"])
def test_an_odd_stdout_is_left_alone(run, texts, odd):
    _, err = run(f"""
        import sys
        import rankside
        class Fixed:
            __slots__ = ()
            def write(self, text): return len(text)
            def flush(self): pass
        def closed():
            stream = open("/dev/null", "w"); stream.close(); return stream
        sys.stdout = {odd}
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(print=True)
        print("on stderr", file=sys.stderr)
        try: print("on stdout")
        except ValueError: pass
        mon.close()
        sys.stdout = None
        """)
    found = [text for text in texts() if "fixed" not in text and "capture_logging" not in text]
    assert found == (["on stderr", "on stdout"] if odd == "sys.stderr" else ["on stderr"])
    assert err.count("on stderr") == 1


def test_only_what_can_be_replaced_is(out, streams):
    streams()
    assert list(stream_write.standard(("stdout", "nothing"))) == [("stdout", out)]
    with pytest.raises(AttributeError):
        stream_write.replaced(object(), lambda write: write)  # type: ignore[arg-type]


# -- more than once ------------------------------------------------------------------------------------


def test_a_second_call_adds_to_the_first(start, streams, out, err, texts):
    streams()
    mon = start()
    mon.capture_logging("ERROR")
    print("too early")
    logging.getLogger("t.x").info("too low")
    mon.capture_logging(print=True)
    print("printed")
    logging.getLogger("t.x").info("too low still")
    mon.capture_logging("INFO", print=True)
    print("printed once")
    logging.getLogger("t.x").info("low enough")
    mon.capture_logging()
    logging.getLogger("t.x").info("as before")
    with pytest.raises(ValueError, match="choices"):
        mon.capture_logging("loud")
    folder = mon._spool.folder
    mon.close()
    print("too late")
    assert texts(folder) == ["printed", "printed once", "low enough", "as before"]


def test_without_print_nothing_printed_is_recorded(start, streams, out, texts):
    streams()
    mon = start()
    mon.capture_logging()
    print("printed")
    assert texts(mon) == []
    assert vars(out) == {}


def test_two_monitors_both_hear(start, streams, out, err, texts):
    streams()
    one, two = start(exp_name="one"), start(exp_name="two")
    for mon in (one, two):
        mon.capture_logging(print=True)
    print("for both")
    folders = [mon._spool.folder for mon in (one, two)]
    one.close()
    print("for the second")
    two.close()
    print("for nobody")
    assert texts(folders[0]) == ["for both"]
    assert texts(folders[1]) == ["for both", "for the second"]
    assert out.getvalue() == "for both\nfor the second\nfor nobody\n"
