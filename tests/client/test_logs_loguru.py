"""loguru: calls never raise while a monitor captures, and nothing else about them changes."""
# ruff: noqa: PLE1205  arguments that do not fit are what is tested; and loguru has a format of its own

from __future__ import annotations

import copy
import functools
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rankside import loguru_guard
from rankside.wire import Kind

loguru = pytest.importorskip("loguru")
logger = loguru.logger


@pytest.fixture(autouse=True)
def tidy() -> Iterator[None]:
    """loguru without sinks, and unwrapped again at the end."""
    original = type(logger)._log
    logger.remove()
    yield
    logger.remove()
    logger.configure(patcher=lambda _: None, extra={})
    assert type(logger)._log is original


@pytest.fixture
def captured(start) -> Iterator[Any]:
    """A monitor that captures."""
    made: list[Any] = []

    def begin(level: Any = None, **given: Any) -> Any:
        made.append(start(**given))
        made[-1].capture_logging(level)
        return made[-1]

    yield begin
    for mon in reversed(made):
        mon.close()


@pytest.fixture
def seen() -> list[Any]:
    """What a sink of the program's own gets."""
    found: list[Any] = []
    logger.add(lambda message: found.append(message.record), level=0)
    return found


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __format__ = lambda self, *_: str(self)


class Counted:
    def __init__(self) -> None:
        self.asked = 0

    def __str__(self) -> str:
        self.asked += 1
        return "counted"


def here() -> int:
    """The caller's line."""
    return sys._getframe(1).f_lineno


# -- messages ------------------------------------------------------------------------------------------


def test_braces_with_arguments_do_not_raise_and_lose_nothing(captured, texts, seen):
    mon = captured()
    logger.info("cfg {'lr': 0.1} and a lone {", step=3)
    logger.info("{'lr': 0.1}", 1, 2)
    logger.info("{} {}", 1)
    logger.info("{missing}", there=1)
    logger.info("{0!x}", 1)
    logger.info("{0.nothing}", 1)
    logger.info("{}", Unprintable())
    assert texts(mon) == [
        "cfg {'lr': 0.1} and a lone { [unformatted, arguments: step=3]",
        "{'lr': 0.1} [unformatted, arguments: 1, 2]",
        "{} {} [unformatted, arguments: 1]",
        "{missing} [unformatted, arguments: there=1]",
        "{0!x} [unformatted, arguments: 1]",
        "{0.nothing} [unformatted, arguments: 1]",
        "{} [unformatted, arguments: <Unprintable: RuntimeError>]",
    ]
    assert [record["message"] for record in seen] == texts(mon)
    assert seen[0]["extra"] == {"step": 3}


def test_without_arguments_a_message_arrives_as_it_is(captured, texts):
    mon = captured()
    plain = ["{lr} {", "{0.__class__}", "<red>x</red>", "\x1b[31m\r\0", "\ud800 alone", "%d %s", ""]
    for text in plain:
        logger.info(text)
    logger.info({"an": "object"})
    logger.info(None)
    logger.info(Unprintable())
    assert texts(mon) == [*plain, "{'an': 'object'}", "None", "<Unprintable: RuntimeError>"]


def test_with_arguments_that_fit_it_is_formatted_once(captured, texts, seen):
    mon = captured()
    logger.info("{} and {name:>5}", 1, name="x")
    logger.info("{}", "{lr} <red>")
    logger.info("{{}} {}", 2)
    logger.info("plain", unused=1)
    logger.info(7, 8)
    logger.info({"a": 1}, 8)
    assert texts(mon) == [
        "1 and     x",
        "{lr} <red>",
        "{} 2",
        "plain",
        "7",
        "{'a': 1} [unformatted, arguments: 8]",
    ]
    assert [record["message"] for record in seen] == texts(mon)


def test_a_message_is_a_plain_text_for_everybody(captured, seen):
    captured()
    logger.info("{}", 1)
    logger.info(Counted())
    logger.info("{ {}", 1)
    assert [type(record["message"]) for record in seen] == [str, str, str]


def test_what_nobody_wants_is_not_made_a_text(captured):
    captured("ERROR")
    message, argument, called = Counted(), Counted(), []
    logger.info(message)
    logger.info("{}", argument)
    logger.opt(lazy=True).info("{}", lambda: called.append(1))
    assert (message.asked, argument.asked, called) == (0, 0, [])


def test_lazy_arguments_are_called_once_and_may_not_fit_either(captured, texts):
    mon, called = captured(), []

    def value() -> int:
        called.append(1)
        return 7

    logger.opt(lazy=True).info("{} {x}", value, x=value)
    logger.opt(lazy=True).info("{'a': {", value)
    assert texts(mon) == ["7 7", "{'a': { [unformatted, arguments: 7]"]
    assert len(called) == 3


def test_the_record_option(captured, texts):
    mon = captured()
    line = here() + 1
    logger.opt(record=True).info("{record[level].name} at {record[line]} {x}", x=1)
    logger.opt(record=True).info("{record[nothing]} {x}", x=1)
    assert texts(mon) == [f"INFO at {line} 1", "{record[nothing]} {x} [unformatted, arguments: x=1]"]


def test_colours_are_for_the_console_and_a_stray_tag_is_no_error(captured, texts):
    shown: list[str] = []
    logger.add(shown.append, format="{message}", colorize=True)
    mon = captured()
    logger.opt(colors=True).info("<red>red</red> {}", 1)
    logger.opt(colors=True).info("<red>bare</red>")
    logger.opt(colors=True).info("a <nonsense> tag")
    logger.opt(colors=True).info("</red> closes nothing {}", 2)
    logger.opt(colors=True).info("<red>{</red>", 3)
    assert texts(mon) == [
        "red 1",
        "bare",
        "a <nonsense> tag",
        "</red> closes nothing 2",
        "<red>{</red> [unformatted, arguments: 3]",
    ]
    assert shown[0] == "\x1b[31mred\x1b[0m 1\n"
    assert shown[2] == "a <nonsense> tag\n"


def test_a_raw_message(captured, texts):
    shown: list[str] = []
    logger.add(shown.append)
    mon = captured()
    logger.opt(raw=True).info("no end {}", 1)
    assert (shown, texts(mon)) == (["no end 1"], ["no end 1"])


# -- what stands beside the message --------------------------------------------------------------------


def test_file_and_line_are_the_callers(captured, records, seen):
    mon, lines = captured(), []

    def helper() -> None:
        logger.opt(depth=1).info("one up")

    logger.info("direct")
    lines.append(here() - 1)
    helper()
    lines.append(here() - 1)
    logger.bind(a=1).info("bound {}", 1)
    lines.append(here() - 1)
    logger.log("INFO", "by level")
    lines.append(here() - 1)
    logger.patch(lambda record: None).info("patched")
    lines.append(here() - 1)
    with logger.contextualize(b=2):
        logger.info("in context")
        lines.append(here() - 1)
    assert [fields[3:5] for fields in records(Kind.LOG, mon)] == [
        ["test_logs_loguru", line] for line in lines
    ]
    assert [(record["file"].name, record["line"]) for record in seen] == [
        ("test_logs_loguru.py", line) for line in lines
    ]
    assert {record["function"] for record in seen} == {"test_file_and_line_are_the_callers"}


def test_what_is_bound_reaches_the_programs_own_sinks(captured, seen):
    captured()
    logger.configure(extra={"team": "amd"}, patcher=lambda record: record["extra"].update(patched=True))
    with logger.contextualize(context=1):
        logger.bind(rank=7).info("{x}", x=2)
    assert seen[0]["extra"] == {"team": "amd", "context": 1, "rank": 7, "x": 2, "patched": True}


def test_levels_keep_their_number_and_their_name(captured, records):
    mon = captured()
    logger.level("RSNOTICE", no=25)
    for level in ("TRACE", "SUCCESS", "RSNOTICE", 15, 35, 60):
        logger.log(level, "x")
    assert [(fields[1], fields[2]) for fields in records(Kind.LOG, mon)] == [
        (5, "TRACE"),
        (25, "SUCCESS"),
        (25, "RSNOTICE"),
        (15, "Level 15"),
        (35, "Level 35"),
        (60, "Level 60"),
    ]


def test_a_level_that_loguru_was_never_told_of_is_no_error(captured, records):
    mon = captured()
    logger.log("WARN", "as elsewhere")
    logger.log("FATAL", "as in logging")
    logger.log("NONSENSE", "as INFO")
    assert [fields[1] for fields in records(Kind.LOG, mon)] == [30, 50, 20]


def test_the_lowest_level_is_obeyed_and_is_everything_where_none_is_given(captured, texts):
    everything, some = captured(exp_name="all"), captured("WARNING", exp_name="some")
    logger.trace("trace")
    logger.warning("warning")
    assert texts(everything) == ["trace", "warning"]
    assert texts(some) == ["warning"]


def test_a_part_that_is_switched_off_stays_so(captured, texts):
    mon = captured()
    logger.disable(__name__)
    try:
        logger.info("{", 1)
    finally:
        logger.enable(__name__)
    logger.info("on")
    assert texts(mon) == ["on"]


# -- exceptions ----------------------------------------------------------------------------------------


class TwoArg(Exception):
    def __init__(self, a: object, b: object) -> None:
        super().__init__(f"{a} and {b}")
        self.lock, self.function = threading.Lock(), lambda: a


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_exceptions_become_text_whatever_they_hold(captured, texts, capfd):
    mon = captured()
    secret = "hunter" + "2"
    for error in (TwoArg(1, lambda: secret), NoText("x")):
        try:
            raise error
        except Exception:
            logger.exception("it {} failed", "surely")
    logger.opt(exception=ValueError("given")).info("given")
    logger.opt(exception=True).info("none there")
    first, second, third, fourth = texts(mon)
    assert first.startswith("it surely failed\nTraceback (most recent call last):\n")
    assert "TwoArg: 1 and <function" in first
    assert "hunter2" not in first
    assert "NoText" in second
    assert third == "given\nValueError: given"
    assert fourth == "none there"
    assert capfd.readouterr().err == ""


def test_the_catch_decorator(captured, texts, records):
    mon = captured()

    @logger.catch
    def fails() -> None:
        raise ValueError("caught by loguru")

    fails()
    (text,) = texts(mon)
    assert "An error has been caught in function" in text
    assert text.endswith("ValueError: caught by loguru")
    assert records(Kind.LOG, mon)[0][3] == "test_logs_loguru"


def test_a_sink_that_may_raise_still_does_and_the_record_is_taken_once(captured, texts):
    def strict(_message: object) -> None:
        raise KeyError("from the sink")

    mon = captured()
    logger.add(strict, catch=False)
    with pytest.raises(KeyError, match="from the sink"):
        logger.info("{}", 1)
    with pytest.raises(KeyError, match="from the sink"):
        logger.info("{'a'", 1)
    assert texts(mon) == ["1", "{'a' [unformatted, arguments: 1]"]


# -- in company ----------------------------------------------------------------------------------------


class Intercept(logging.Handler):
    """As loguru's documentation and Primus have it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level: Any = logger.level(record.levelname).name
        except ValueError:
            level = record.levelno
        logger.opt(depth=6, exception=record.exc_info).log(level, record.getMessage())


@pytest.mark.parametrize("added", ["before the capture", "in its place"])
def test_a_sink_that_raises_keeps_no_record_from_us(captured, texts, added):
    def full(_message: Any) -> None:
        raise OSError(28, "no space")

    if added == "before the capture":
        logger.add(full, catch=False)
    mon = captured("INFO")
    if added == "in its place":
        logger.remove()
        logger.add(full, catch=False)
    for number in range(3):
        with pytest.raises(OSError, match="no space"):
            logger.error("line {}", number)
    with pytest.raises(OSError, match="no space"):
        logger.debug("below our level")
    assert texts(mon) == ["line 0", "line 1", "line 2"]


def test_a_stdlib_record_that_is_passed_on_to_loguru_is_taken_once(captured, texts, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [Intercept()])
    monkeypatch.setattr(logging.root, "level", 0)
    mon, log = captured(0), logging.getLogger("t.lib")
    for number in range(3):
        log.info("stdlib %d", number)
        logger.info("loguru {}", number)
    try:
        raise ValueError("oops")
    except ValueError:
        log.exception("with {a} traceback")
    logger.info("loguru again")
    found = texts(mon)
    assert [text.split("\n")[0] for text in found] == [
        *("stdlib 0", "loguru 0", "stdlib 1", "loguru 1", "stdlib 2", "loguru 2"),
        *("with {a} traceback", "loguru again"),
    ]
    assert "ValueError: oops" in found[6]


def test_what_only_loguru_is_given_is_taken_there(captured, texts, monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    mon, log = captured(0), logging.getLogger("t.own")
    log.propagate, log.handlers = False, [Intercept()]
    try:
        logging.getLogger("t.lib").warning("to the root")
        log.warning("to loguru alone")
    finally:
        log.propagate, log.handlers = True, []
    assert texts(mon) == ["to the root", "to loguru alone"]


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_two_monitors_come_and_go_in_any_order(start, texts, records, first_to_leave):
    original = type(logger)._log
    both = [start(exp_name=name) for name in ("one", "two")]
    for mon in both:
        mon.capture_logging()
    folders = [mon._spool.folder for mon in both]
    logger.info("both {")
    line = here() - 1
    both[first_to_leave].close()
    logger.info("one {", 1)
    both[1 - first_to_leave].close()
    logger.info("none")
    assert type(logger)._log is original
    assert texts(folders[first_to_leave]) == ["both {"]
    assert texts(folders[1 - first_to_leave]) == ["both {", "one { [unformatted, arguments: 1]"]
    assert [records(Kind.LOG, folder)[0][4] for folder in folders] == [line, line]


def test_without_a_monitor_loguru_is_as_it_was(captured):
    mon = captured()
    mon.close()
    logger.add(lambda _: None)
    with pytest.raises(KeyError):
        logger.info("{lr}", 1)


def test_a_loguru_that_looks_different_inside_is_left_alone(monkeypatch):
    def other(self: Any, level: Any, message: Any) -> None:
        """Another signature."""

    with monkeypatch.context() as patch:
        patch.setattr(type(logger), "_log", other)
        undo = loguru_guard.install()
        assert type(logger)._log is other
        undo()
        assert type(logger)._log is other


REMOVALS = {
    "remove": logger.remove,
    "remove, add": lambda: (logger.remove(), logger.add(lambda _: None)),
    "configure": lambda: logger.configure(handlers=[{"sink": lambda _: None}]),
}


@pytest.mark.parametrize("how", REMOVALS)
def test_a_program_that_removes_all_sinks_ends_nothing(captured, texts, how):
    mon, other = captured(exp_name="one"), captured("WARNING", exp_name="two")
    logger.info("before")
    REMOVALS[how]()
    logger.info("after {", 1)
    logger.bind(a=1).warning("bound")
    REMOVALS[how]()
    logger.info("at last")
    assert texts(mon) == ["before", "after { [unformatted, arguments: 1]", "bound", "at last"]
    assert texts(other) == ["bound"]
    folder = mon._spool.folder
    mon.close()
    other.close()
    logger.info("late")
    assert texts(folder)[-1] == "at last"


def test_what_was_removed_and_never_spoke_again_leaves_in_peace(captured):
    mon = captured()
    logger.remove()
    mon.close()
    assert not logger._core.handlers


def test_a_signal_in_the_middle_of_a_remove_does_not_wait_for_its_end(captured, texts):
    mon = captured()
    logger.remove()
    logger.add(lambda _: None)
    with logger._core.lock:
        logger.info("not taken, and not waited for")
    logger.info("taken again")
    assert texts(mon) == ["taken again"]


def test_a_second_logger_of_its_own_puts_nothing_back_into_the_first(captured, texts):
    mon = captured()
    logger.remove()
    apart = copy.deepcopy(logger)
    for _ in range(3):
        apart.info("apart")
    logger.info("back")
    assert texts(mon) == ["back"]
    assert len(logger._core.handlers) == 1


def test_threads_find_one_place_again(captured, texts):
    mon = captured()
    start = threading.Barrier(8)

    def work(name: int) -> None:
        start.wait(20)
        for number in range(50):
            logger.info("{} {}", name, number)

    logger.remove()
    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    logger.info("end")
    assert len(logger._core.handlers) == 1
    assert len(texts(mon)) == len(set(texts(mon)))


def test_threads_and_inner_calls(captured, texts):
    mon = captured()

    class Chatty:
        def __str__(self) -> str:
            logger.info("inner")
            return "outer"

    logger.info(Chatty())
    work = [
        functools.partial(lambda name: [logger.info("{} {}", name, n) for n in range(200)], name)
        for name in range(4)
    ]
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    first, second, *others = texts(mon)
    assert [first, second] == ["inner", "outer"]
    for name in range(4):
        assert [t for t in others if t.startswith(f"{name} ")] == [f"{name} {n}" for n in range(200)]
