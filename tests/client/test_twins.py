"""A message that one logging passes on to the other is recorded once, and nothing else is taken for it."""
# ruff: noqa: PLE1205  loguru has a format of its own

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

loguru = pytest.importorskip("loguru")
logger = loguru.logger


@pytest.fixture(autouse=True)
def alone_with_logging(monkeypatch) -> Iterator[None]:
    """Both loggings without sinks or handlers."""
    listed, before = logging.root.handlers, logging.root.handlers[:]
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    monkeypatch.setattr(logging, "lastResort", None)
    logger.remove()
    yield
    listed[:] = before
    logger.remove()
    for each in logging.root.manager.loggerDict.values():
        if isinstance(each, logging.Logger) and each.name.startswith("t."):
            each.handlers, each.level, each.propagate = [], 0, True


@pytest.fixture
def captured(start, monkeypatch) -> Iterator[Any]:
    """A monitor that captures, on a root logger without pytest's handlers."""
    made: list[Any] = []

    def begin(level: Any = None) -> Any:
        theirs = [each for each in logging.root.handlers if "_pytest" not in type(each).__module__]
        monkeypatch.setattr(logging.root, "handlers", theirs)
        made.append(start())
        made[-1].capture_logging(level)
        return made[-1]

    yield begin
    for mon in made:
        mon.close()


# -- loguru's to stdlib ----------------------------------------------------------------------------------


class Propagate(logging.Handler):
    """As loguru's documentation has it."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).handle(record)


FORWARDS: dict[str, Callable[[], int]] = {
    "PropagateHandler": lambda: logger.add(Propagate(), format="{message}"),
    "PropagateHandler, a format": lambda: logger.add(Propagate(), format="{time} {level} {message}"),
    "PropagateHandler, queued": lambda: logger.add(Propagate(), format="{message}", enqueue=True),
    "a function": lambda: logger.add(lambda said: logging.getLogger("t.fwd").warning(said.strip())),
    "a function that formats": lambda: logger.add(
        lambda said: logging.getLogger("t.fwd").warning("%s", said.record["message"])
    ),
}


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("first", ["forward", "capture"])
def test_a_loguru_message_that_is_passed_on_to_stdlib_is_taken_once(captured, texts, forward, first):
    if first == "forward":
        FORWARDS[forward]()
    mon = captured()
    if first == "capture":
        FORWARDS[forward]()
    for number in range(3):
        logger.warning("loguru {}", number)
        logging.getLogger("t.x").warning("stdlib %d", number)
    logger.info("")
    try:
        raise ValueError("oops")
    except ValueError:
        logger.exception("failed")
    logger.complete()
    found = [text.split("\n")[0] for text in texts(mon)]
    assert sorted(found) == sorted(
        [*(f"{who} {number}" for number in range(3) for who in ("loguru", "stdlib")), "", "failed"]
    )


def test_what_a_sink_says_for_itself_is_taken(captured, texts):
    def sends(message: Any) -> None:
        logging.getLogger("t.urllib3").warning("connection lost")

    mon = captured()
    logger.add(sends)
    logger.warning("loss 0.5")
    assert texts(mon) == ["loss 0.5", "connection lost"]


@pytest.mark.parametrize("message", ["step 6", "a", "", "5", "records"])
def test_a_sink_that_speaks_of_the_message_in_hand_is_heard(captured, texts, message):
    def sends(said: Any) -> None:
        text = said.record["message"]
        logging.getLogger("t.net").error("http 503 while sending %r; 17 records dropped", text)
        logging.getLogger("t.net").error("could not send: %s", text)

    mon = captured()
    logger.add(sends)
    logger.error(message)
    spoken = [f"http 503 while sending {message!r}; 17 records dropped", f"could not send: {message}"]
    assert texts(mon) == [message, *spoken]


# -- stdlib's to loguru ----------------------------------------------------------------------------------


class Intercept(logging.Handler):
    """As loguru's documentation has it, with what a program may do to the message."""

    def __init__(self, change: Callable[[str], str] = str) -> None:
        super().__init__()
        self._change = change

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname if record.levelname in ("INFO", "WARNING", "ERROR") else record.levelno
        logger.opt(depth=6, exception=record.exc_info).log(level, self._change(record.getMessage()))


CHANGES: dict[str, Callable[[str], str]] = {
    "none": str,
    "a place before it, as Primus": "[-----------train.py:215] : {}".format,
    "stripped": str.strip,
    "braces doubled": lambda text: text.replace("{", "{{").replace("}", "}}"),
    "its level before it": "WARNING | {}".format,
    "tags escaped": lambda text: text.replace("<", "\\<"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", [("",), ("t.lib",), ("t.lib", ""), ("t.lib.part", "t.lib", "")])
def test_a_stdlib_record_that_is_passed_on_to_loguru_is_taken_once(captured, texts, where, change):
    for name in where:
        logging.getLogger(name).addHandler(Intercept(CHANGES[change]))
    mon = captured()
    logging.getLogger("t.lib.part").warning("  loss {'a': %d} <b>", 1)
    logger.info("loguru's own")
    logging.getLogger("t.lib.part").error("second")
    assert texts(mon) == ["  loss {'a': 1} <b>", "loguru's own", "second"]


@pytest.mark.parametrize("message", ["step 5", "a", "", "5", "queue"])
def test_a_handler_that_speaks_of_the_message_in_hand_is_heard(captured, texts, message):
    class Sends(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logger.error(f"could not deliver {record.getMessage()!r} to slack, queue is full")

    mon = captured()
    logging.getLogger("t.lib").addHandler(Sends())
    logging.getLogger("t.lib").error(message)
    assert texts(mon) == [message, f"could not deliver {message!r} to slack, queue is full"]


def test_a_format_of_the_records_own_fields_makes_no_other_message(captured, texts):
    form = logging.Formatter("%(asctime)s %(name)s %(process)d %(filename)s:%(lineno)d - %(message)s")

    class Passes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logger.log(record.levelname, form.format(record))

    logging.getLogger("t.lib").addHandler(Passes())
    mon = captured()
    logging.getLogger("t.lib").error("loss is nan at 17")
    assert texts(mon) == ["loss is nan at 17"]


def test_one_that_propagates_nothing_and_passes_on_is_taken_once(captured, texts):
    mon, log = captured(), logging.getLogger("t.lib")
    log.propagate = False
    log.addHandler(Intercept())
    log.warning("once")
    assert texts(mon) == ["once"]


def test_the_recipes_location_is_the_callers(captured):
    places: list[str] = []
    logger.add(lambda message: places.append(message.record["function"]))
    logging.root.addHandler(Intercept())
    captured()
    logging.getLogger("t.x").warning("x")
    assert places == ["test_the_recipes_location_is_the_callers"]


def test_what_a_handler_says_for_itself_is_taken(captured, texts):
    class Alerts(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logging.getLogger("t.alerts").info("about to send")
            logger.warning("alert sent")

    mon = captured()
    logging.getLogger("t.lib").addHandler(Alerts())
    logging.getLogger("t.lib").addHandler(Intercept())
    logging.getLogger("t.lib").error("loss is nan")
    assert texts(mon) == ["loss is nan", "about to send", "alert sent"]


@pytest.mark.parametrize("with_a_console", [False, True])
def test_an_argument_that_logs_while_it_becomes_text_is_heard(captured, texts, with_a_console):
    class Chatty:
        def __str__(self) -> str:
            logging.getLogger("t.inner").warning("to stdlib")
            logger.info("to loguru")
            return "outer"

    mon = captured()
    if with_a_console:
        logging.getLogger("t.lib").addHandler(logging.StreamHandler(io.StringIO()))
    logging.getLogger("t.lib").warning("%s", Chatty())
    inner = ["to stdlib", "to loguru"]
    assert texts(mon) == [*inner, "outer", *(inner if with_a_console else [])]


def test_the_same_text_from_both_is_two_messages(captured, texts):
    logging.root.addHandler(Intercept())
    mon = captured()
    logging.getLogger("t.x").warning("the same")
    logger.warning("the same")
    logging.getLogger("t.x").warning("the same")
    assert texts(mon) == ["the same"] * 3
