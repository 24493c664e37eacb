"""stdlib logging, warnings and uncaught exceptions: everything lands, and consoles show what they did."""
# ruff: noqa: PLE1205  arguments that do not fit are what is tested; and loguru has a format of its own

from __future__ import annotations

import itertools
import logging
import re
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from rankside.wire import Kind


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """Logging as it was, whatever a test did to it."""
    root = logging.getLogger()
    before = root.level, sys.excepthook, threading.excepthook
    yield
    assert (root.level, sys.excepthook, threading.excepthook) == before
    assert "filter" not in vars(logging.Logger)
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("t."):
            logger.handlers, logger.level, logger.propagate = [], 0, True


@pytest.fixture
def captured(start, monkeypatch) -> Iterator[Any]:
    """A monitor that captures, on a root logger without pytest's handlers."""
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    monkeypatch.setattr(logging, "lastResort", None)

    def begin(level: Any = 1, **given: Any) -> Any:
        if not made:
            monkeypatch.setattr(logging.root, "handlers", [])
        mon = start(**given)
        mon.capture_logging(level)
        made.append(mon)
        return mon

    made: list[Any] = []
    yield begin
    for mon in reversed(made):
        mon.close()


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class TwoArg(Exception):
    """Cannot be pickled, and holds what cannot either."""

    def __init__(self, a: object, b: object) -> None:
        super().__init__(f"{a} and {b}")
        self.lock, self.function = threading.Lock(), lambda: a


# -- messages ------------------------------------------------------------------------------------------


def test_a_message_is_formatted_once_and_only_when_asked_for(captured, texts):
    mon, log = captured(), logging.getLogger("t.x")
    log.info("loss %.2f at %d", 1.234, 7)
    log.info("%s", {"a": "{b} %d <red>"})
    for text in ("100 % done", "%d %s", "{lr} {", "<red>x</red>", "\x1b[31mred\r\0", "\ud800 alone", ""):
        log.info(text)
    log.info({"an": "object"})
    log.info("%(a)s", {"a": 1})
    assert texts(mon) == [
        "loss 1.23 at 7",
        "{'a': '{b} %d <red>'}",
        *("100 % done", "%d %s", "{lr} {", "<red>x</red>", "\x1b[31mred\r\0", "\ud800 alone", ""),
        "{'an': 'object'}",
        "1",
    ]


def test_a_format_that_fails_falls_back_to_the_raw_text_and_the_arguments(captured, texts):
    mon, log = captured(), logging.getLogger("t.x")
    log.info("only %d", "text")
    log.info("one %s", 1, 2)
    log.info("no place", 3)
    log.info("%s", Unprintable())
    log.info(Unprintable())
    assert texts(mon) == [
        "only %d [unformatted, arguments: 'text']",
        "one %s [unformatted, arguments: 1, 2]",
        "no place [unformatted, arguments: 3]",
        "%s [unformatted, arguments: <Unprintable: RuntimeError>]",
        "<Unprintable: RuntimeError> [unformatted, arguments: ]",
    ]


def test_levels_keep_their_number_and_their_name(captured, records):
    mon, log = captured(), logging.getLogger("t.x")
    logging.addLevelName(25, "NOTICE")
    logging.addLevelName(60, "FATAL")
    try:
        for number in (5, 15, 25, 35, 60):
            log.log(number, "x")
    finally:
        del logging._levelToName[25], logging._levelToName[60], logging._nameToLevel["NOTICE"]
        logging._nameToLevel["FATAL"] = 50
    assert [(fields[1], fields[2]) for fields in records(Kind.LOG, mon)] == [
        (5, "Level 5"),
        (15, "Level 15"),
        (25, "NOTICE"),
        (35, "Level 35"),
        (60, "FATAL"),
    ]


def test_a_record_says_where_it_comes_from_and_when(captured, records):
    mon = captured()
    logging.getLogger("t.megatron.training").warning("x")
    line = sys._getframe().f_lineno - 1
    logging.warning("y")
    first, second = records(Kind.LOG, mon)
    assert first[2:5] == ["WARNING", "training", line]
    assert second[3] == "root"
    old = logging.makeLogRecord(
        {"msg": "z", "created": 12.5, "name": "a.b", "levelno": 20, "levelname": "INFO"}
    )
    logging.root.handle(old)
    assert records(Kind.LOG, mon)[2] == [12.5, 20, "INFO", "b", 0, "z"]


@pytest.mark.parametrize(
    "odd", [{}, {"name": "t", "created": "2026-01-02"}, {"name": 5}, {"name": "t", "created": None}]
)
def test_a_record_that_lacks_what_logging_gives_is_taken_with_the_rest(captured, records, odd):
    mon = captured()
    given = {"msg": "read in", "levelno": 30, "levelname": "WARNING", **odd}
    logging.root.handle(logging.makeLogRecord(given))
    logging.warning("after it")
    (at, number, level, *_, text), (after, *_) = records(Kind.LOG, mon)
    assert (number, level, text) == (30, "WARNING", "read in")
    assert after - 60 < at <= after


def test_a_record_beyond_reason_harms_nobody(captured, texts):
    mon = captured()
    for odd in ({"name": None}, {"created": "now"}, {"args": 5}, {"exc_info": 7}):
        logging.root.handle(logging.makeLogRecord({"msg": "odd", "levelno": 30, "name": "t", **odd}))
    logging.warning("fine")
    assert texts(mon)[-1] == "fine"


@pytest.mark.parametrize("level", ["info", "INFO", 20, None])
def test_the_lowest_level_taken_is_a_name_or_a_number(captured, texts, level):
    mon, log = captured(level), logging.getLogger("t.x")
    log.debug("too low")
    log.info("taken")
    assert texts(mon) == ["taken"]


def test_an_unknown_level_is_refused_with_the_choices(start):
    mon = start()
    with pytest.raises(ValueError, match="level 'loud' is unknown; choices: TRACE, DEBUG"):
        mon.capture_logging("loud")


# -- exceptions ----------------------------------------------------------------------------------------


def test_an_exception_becomes_text_with_its_whole_traceback_and_no_values_of_locals(captured, texts):
    mon = captured()

    def inner() -> None:
        secret = "hunter2"
        raise TwoArg(len(secret), lambda: None)

    try:
        try:
            inner()
        except TwoArg as error:
            raise ValueError("outer") from error
    except ValueError:
        logging.getLogger("t.x").exception("it failed")
    (text,) = texts(mon)
    first, *others = text.split("\n")
    assert first == "it failed"
    assert others[0] == "Traceback (most recent call last):"
    assert "in inner" in text
    assert "TwoArg: 7 and <function" in text
    assert "direct cause" in text
    assert others[-1] == "ValueError: outer"
    assert "hunter2" not in text.replace('"hunter2"', "")


def test_exceptions_that_cannot_be_printed_are_named(captured, texts):
    class NoText(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class NoTrace(Exception):
        @property
        def __cause__(self) -> Any:
            raise RuntimeError("no cause")

    mon = captured()
    for kind in (NoText, NoTrace):
        try:
            raise kind
        except kind:
            logging.getLogger("t.x").exception("failed")
    first, second = texts(mon)
    assert "NoText" in first
    assert "NoTrace" in second


def test_stack_and_text_of_an_exception_that_are_given_are_kept(captured, texts):
    mon = captured()
    logging.getLogger("t.x").warning("where", stack_info=True)
    logging.root.handle(
        logging.makeLogRecord({"msg": "m", "exc_text": "as text", "levelno": 30, "name": "x"})
    )
    logging.getLogger("t.x").warning("none", exc_info=True)
    first, second, third = texts(mon)
    assert first.startswith("where\nStack (most recent call last):\n")
    assert second == "m\nas text"
    assert third == "none"


def test_an_uncaught_exception_lands_and_is_reported_as_ever(run, records, here):
    _, err = run("""
        import sys, threading
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging()
        def work(): raise ValueError("in a thread")
        thread = threading.Thread(target=work, name="loader")
        thread.start()
        thread.join()
        def leaves(): sys.exit(3)  # no exception of anybody's interest
        thread = threading.Thread(target=leaves); thread.start(); thread.join()
        try: raise KeyError("main")
        except KeyError: sys.excepthook(*sys.exc_info())
        """)
    first, second = records(Kind.LOG)
    assert first[1:5] == [50, "CRITICAL", "script-0", 6]
    assert first[5].startswith("uncaught exception in thread loader\nTraceback (most recent call last):\n")
    assert first[5].endswith("ValueError: in a thread")
    assert second[1:5] == [50, "CRITICAL", "script-0", 12]
    assert err.count("ValueError: in a thread") == 1
    assert err.count("KeyError: 'main'") == 1
    assert records(Kind.CLOSE)[0][1] == "failed"


# -- warnings ------------------------------------------------------------------------------------------


def test_warnings_land_and_are_shown_as_ever(captured, records, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    before = warnings.showwarning
    mon = captured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = vars(warnings)["showwarning"]
        warnings.warn("lr_scheduler.step() first", UserWarning, stacklevel=1)
    line = sys._getframe().f_lineno - 1
    assert shown == ["lr_scheduler.step() first"]
    (fields,) = records(Kind.LOG, mon)
    assert fields[1:] == [30, "WARNING", "test_logs", line, "UserWarning: lr_scheduler.step() first"]
    mon.close()
    assert warnings.showwarning is before


# -- what consoles show --------------------------------------------------------------------------------

CONSOLES = {
    "nothing configured": "",
    "basicConfig": "logging.basicConfig()",
    "basicConfig at debug": "logging.basicConfig(level=logging.DEBUG)",
    "a handler at debug below a root at warning": """
        handler = logging.StreamHandler()
        handler.setLevel(logging.DEBUG)
        logging.getLogger().addHandler(handler)
        """,
    "a root at error": "logging.getLogger().setLevel(logging.ERROR)",
    "a root at error with a handler": "logging.basicConfig(level=logging.ERROR)",
    "a library with a handler of its own": """
        logging.getLogger('lib').addHandler(logging.StreamHandler(sys.stdout))
        """,
    "a library that speaks more than the root": """
        logging.basicConfig()
        logging.getLogger('lib').setLevel(logging.DEBUG)
        """,
    "a part of a library with a level and a handler": """
        logging.getLogger('lib').addHandler(logging.StreamHandler(sys.stdout))
        logging.getLogger('lib.part').setLevel(logging.INFO)
        """,
    "a library that keeps to itself": """
        lib = logging.getLogger('lib'); lib.propagate = False
        lib.addHandler(logging.StreamHandler(sys.stdout)); lib.setLevel(logging.INFO)
        """,
    "a library that keeps to itself without a handler": "logging.getLogger('lib').propagate = False",
    "a null handler": "logging.getLogger('lib').addHandler(logging.NullHandler())",
    "warnings in the log": "logging.captureWarnings(True)",
    "warnings in the log of a root at debug": "logging.basicConfig(level=10); logging.captureWarnings(True)",
    "all disabled up to info": "logging.basicConfig(level=10); logging.disable(logging.INFO)",
    "loguru": "",
    "loguru at info in a form of its own": """
        logger.remove()
        logger.add(sys.stdout, level='INFO', format='{level} {line} {message} {extra}')
        """,
    "stdlib passed on to loguru": """
        logger.remove(); logger.add(sys.stdout, format='{level} {message}')
        class Intercept(logging.Handler):
            def emit(self, record):
                try: level = logger.level(record.levelname).name
                except ValueError: level = record.levelno
                logger.opt(depth=6, exception=record.exc_info).log(level, record.getMessage())
        logging.basicConfig(handlers=[Intercept()], level=0)
        """,
}
SPEAK = """
    def speak():
        for name in (None, "lib", "lib.part", "other"):
            log = logging.getLogger(name)
            for number in (5, 10, 20, 30, 40):
                log.log(number, "%s at %d {x} <y>", name, number)
        try: 1 / 0
        except ZeroDivisionError: logging.getLogger("lib").exception("caught")
        warnings.warn("careful", UserWarning)
        if "loguru" in sys.argv[2]:
            for level in ("TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR"):
                logger.bind(a=1).log(level, "loguru {} {x}", 1, x=level)
            logger.opt(colors=True).info("<red>red</red> {}", 1)
    """


@pytest.mark.parametrize("name", CONSOLES)
def test_capturing_changes_nothing_of_what_consoles_show(script, here, name):
    if "loguru" in name:
        pytest.importorskip("loguru")
    setup = textwrap.dedent(CONSOLES[name])
    program = here / "program.py"
    program.write_text(
        "import logging, sys, warnings\nimport rankside\n"
        + ("from loguru import logger\n" if "loguru" in name else "")
        + f"setup = {setup!r}\nexec(setup)\n"
        + textwrap.dedent(SPEAK)
        + textwrap.dedent("""
            mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
            if sys.argv[1] == "captured":
                mon.capture_logging(0)
            speak()
            mon.close()
            print("-- after", flush=True); print("-- after", file=sys.stderr, flush=True)
            speak()
            """)
    )
    outputs = []
    for how in ("captured", "bare"):
        process = script(f"import sys, runpy\nrunpy.run_path({str(program)!r})", how, name)
        status, out, err = process.end()
        assert status == 0, err
        outputs.append(without_times(out) + without_times(err))
    assert outputs[0] == outputs[1]


def without_times(text: str) -> list[str]:
    """Lines without loguru's stamps and the scripts' numbers."""
    return [re.sub(r"^\d{4}-\d\d-\d\d [\d:.]+|script-\d|0x\w+", "", line) for line in text.splitlines()]


def test_what_is_captured_does_not_depend_on_what_consoles_show(run, texts):
    run("""
        import logging
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        logging.basicConfig(level=logging.ERROR)
        logging.getLogger("lib").setLevel(logging.DEBUG)
        mon.capture_logging()
        for name in ("lib", "other"):
            for level in (10, 20, 30): logging.getLogger(name).log(level, f"{name} {level}")
        """)
    assert texts() == ["lib 10", "lib 20", "lib 30", "other 20", "other 30"]


def test_undoing_restores_what_was_there(start):
    root, console = logging.getLogger(), logging.StreamHandler()
    logging.getLogger("t.lib").addHandler(console)
    before = (root.level, root.handlers[:], warnings.showwarning, sys.excepthook, threading.excepthook)
    filters = [handler.filters[:] for handler in (*root.handlers, console)]
    mon = start()
    mon.capture_logging(0)
    logging.getLogger("t.lib").info("taken")
    mon.close()
    after = (root.level, root.handlers[:], warnings.showwarning, sys.excepthook, threading.excepthook)
    assert after == before
    assert [handler.filters for handler in (*root.handlers, console)] == filters


def test_what_the_program_changed_meanwhile_is_left_to_it(start, monkeypatch):
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    hooks = sys.excepthook, threading.excepthook, warnings.showwarning
    mon, extra = start(), logging.NullHandler()
    mon.capture_logging(0)
    logging.root.setLevel(logging.ERROR)
    logging.root.addHandler(extra)
    sys.excepthook = mine = lambda *_: None
    mon.close()
    assert logging.root.level == logging.ERROR
    assert extra in logging.root.handlers
    assert sys.excepthook is mine
    logging.root.removeHandler(extra)
    sys.excepthook, threading.excepthook, warnings.showwarning = hooks
    logging.root.setLevel(logging.WARNING)


def test_capturing_twice_is_capturing_once(captured, texts):
    mon = captured()
    mon.capture_logging(1)
    logging.getLogger("t.x").info("once")
    assert texts(mon) == ["once"]


def test_two_monitors_both_get_every_line(captured, texts):
    one, two = captured(exp_name="one"), captured(exp_name="two")
    logging.getLogger("t.x").info("both")
    assert texts(one) == texts(two) == ["both"]


# -- being called from anywhere ------------------------------------------------------------------------


def test_a_log_call_inside_a_log_call(captured, texts):
    log = logging.getLogger("t.x")

    class Chatty:
        def __str__(self) -> str:
            log.info("inner")
            return "outer"

    class Rounds(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg != "again":
                log.info("again")

    mon = captured()
    logging.root.addHandler(Rounds())
    logging.root.setLevel(1)
    log.info("%s", Chatty())
    logging.root.setLevel(logging.WARNING)
    assert texts(mon) == ["inner", "again", "outer", "again"]


def test_threads_log_at_once(captured, texts):
    mon = captured()

    def work(name: int) -> None:
        for number in range(2000):
            logging.getLogger(f"t.{name}").info("%d %d", name, number)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    found = [tuple(map(int, text.split())) for text in texts(mon)]
    for name in range(4):
        assert [number for each, number in found if each == name] == list(range(2000))


def test_a_signal_handler_logs_while_the_main_thread_logs(run, texts):
    run("""
        import itertools, logging, signal, time
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0, spool_bytes=256 << 20)
        mon.capture_logging()
        log, count, number = logging.getLogger("x"), itertools.count(), 0
        signal.signal(signal.SIGALRM, lambda *_: log.info("signal %d", next(count)))
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
        deadline = time.monotonic() + 15
        while repr(count) < "count(2000)" or len(repr(count)) < 11:
            if time.monotonic() > deadline: break
            log.info("main %d", number)
            number += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        log.info("main %d", number)
        """)
    found = texts()
    mine = [int(text.split()[1]) for text in found if text.startswith("main")]
    theirs = sorted(int(text.split()[1]) for text in found if text.startswith("signal"))
    assert mine == list(range(len(mine)))
    assert theirs == list(range(len(theirs)))
    assert len(theirs) > 500


def test_handlers_of_third_parties_see_the_same_records(captured, texts):
    seen: list[logging.LogRecord] = []

    class Theirs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    mon = captured()
    logging.root.addHandler(Theirs())
    logging.getLogger("t.lib").warning("%s", "x", extra={"more": 1})
    assert texts(mon) == ["x"]
    assert (seen[0].msg, seen[0].args, seen[0].more) == ("%s", ("x",), 1)
    assert seen[0].exc_text is None


def test_a_filter_of_a_logger_is_obeyed_and_asked_once(captured, texts):
    mon, log, asked = captured(), logging.getLogger("t.filtered"), []

    def lets_through(record: logging.LogRecord) -> bool:
        asked.append(record.getMessage())
        return "secret" not in record.getMessage()

    log.addFilter(lets_through)
    log.info("open")
    log.info("secret")
    log.removeFilter(lets_through)
    assert texts(mon) == ["open"]
    assert asked == ["open", "secret"]


def test_a_monitor_that_is_closed_takes_no_more(captured, texts):
    mon = captured()
    folder = mon._spool.folder
    logging.getLogger("t.x").warning("in time")
    mon.close()
    logging.getLogger("t.x").warning("late")
    assert texts(folder) == ["in time"]


def test_order_and_count_are_those_of_the_calls(captured, texts):
    mon, count = captured(), itertools.count()
    for _ in range(1000):
        logging.getLogger("t.x").info("line %d", next(count))
    assert texts(mon) == [f"line {number}" for number in range(1000)]
