"""The capture of stdlib logging outlives what a program does to its handlers, and changes nothing of it."""

from __future__ import annotations

import io
import logging
import logging.config
import logging.handlers
import queue
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rankside import stdlib_tap
from rankside.wire import Kind

FORCED = {"version": 1, "handlers": {"out": {"class": "logging.NullHandler"}}, "root": {"handlers": ["out"]}}
# What programs do to the root logger after capture_logging
UPHEAVALS: dict[str, Callable[[], object]] = {
    "basicConfig": logging.basicConfig,
    "basicConfig with force": lambda: logging.basicConfig(force=True, level="ERROR", stream=io.StringIO()),
    "dictConfig": lambda: logging.config.dictConfig({**FORCED, "disable_existing_loggers": False}),
    "a new list": lambda: setattr(logging.root, "handlers", [logging.NullHandler()]),
    "an emptied list": lambda: logging.root.handlers.clear(),  # noqa: PLW0108  the list is another by then
    "a level": lambda: logging.root.setLevel(logging.CRITICAL),
    "a level past setLevel": lambda: setattr(logging.root, "level", logging.CRITICAL),
    "shutdown": logging.shutdown,
    "captureWarnings": lambda: logging.captureWarnings(True),
}


@pytest.fixture(autouse=True)
def alone_with_logging(monkeypatch) -> Iterator[None]:
    """A root logger as a new process has it; loggers of the tests are `t.`-something."""
    listed, before = logging.root.handlers, logging.root.handlers[:]
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    monkeypatch.setattr(logging, "lastResort", None)
    yield
    listed[:] = before
    logging.captureWarnings(False)
    assert not {"filter"} & vars(logging.Logger).keys()
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("t."):
            logger.handlers, logger.level, logger.propagate, logger.disabled = [], 0, True, False


@pytest.fixture
def captured(start, monkeypatch) -> Iterator[Any]:
    """A monitor that captures from a level on, on a root logger without pytest's handlers."""
    made: list[Any] = []

    def begin(level: Any = None, **given: Any) -> Any:
        theirs = [each for each in logging.root.handlers if "_pytest" not in type(each).__module__]
        monkeypatch.setattr(logging.root, "handlers", theirs)
        made.append(start(**given))
        made[-1].capture_logging(level)
        return made[-1]

    yield begin
    for mon in made:
        mon.close()


class Seen(logging.Handler):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def own(name: str, *handlers: logging.Handler) -> logging.Logger:
    """A logger of a library that does not propagate."""
    log = logging.getLogger(name)
    log.propagate = False
    log.handlers = list(handlers)
    return log


# -- what ends nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("upheaval", UPHEAVALS)
def test_the_capture_outlives_what_a_program_does_to_the_root_logger(captured, texts, upheaval):
    mon, log = captured(), logging.getLogger("t.train")
    log.info("before")
    UPHEAVALS[upheaval]()
    log.info("after")
    logging.getLogger("t.new").info("of a new logger")
    logging.info("of the root")
    assert texts(mon) == ["before", "after", "of a new logger", "of the root"]


def test_loggers_that_a_dictconfig_disables_are_silent_as_it_wants_and_others_are_not(captured, texts):
    mon, log = captured(), logging.getLogger("t.train")
    logging.config.dictConfig(FORCED)
    log.info("disabled")
    logging.getLogger("t.later").info("not disabled")
    assert texts(mon) == ["not disabled"]


def test_basicconfig_after_the_capture_gives_the_console_it_was_asked_for(captured, texts):
    mon, console = captured(), io.StringIO()
    logging.basicConfig(level=logging.INFO, stream=console, format="%(message)s")
    logging.getLogger("t.x").info("on both")
    logging.getLogger("t.x").debug("on none")
    assert (console.getvalue(), texts(mon)) == ("on both\n", ["on both"])


def test_levels_and_handlers_are_the_programs_own_while_a_capture_lasts(captured, texts):
    seen, log = Seen(), logging.getLogger("t.x")
    mon = captured("DEBUG")
    assert (logging.root.handlers, logging.root.level, log.hasHandlers()) == ([], logging.WARNING, False)
    logging.root.addHandler(seen)  # after the capture, and it sees no more than without one
    log.info("for the capture")
    log.warning("for both")
    logging.root.setLevel(logging.DEBUG)
    log.debug("now for both")
    logging.root.setLevel(logging.ERROR)
    log.warning("again for the capture")
    assert seen.texts == ["for both", "now for both"]
    assert texts(mon) == ["for the capture", "for both", "now for both", "again for the capture"]


def test_afterwards_a_logger_is_enabled_for_what_it_was(captured):
    mon, log = captured("DEBUG"), logging.getLogger("t.x")
    assert log.isEnabledFor(logging.DEBUG)
    mon.close()
    assert not log.isEnabledFor(logging.DEBUG)


def test_a_logger_with_a_level_of_its_own_is_not_opened(captured, texts):
    mon, log = captured("DEBUG"), logging.getLogger("t.own")
    log.setLevel(logging.ERROR)
    log.warning("too low")
    logging.getLogger("t.own.part").error("taken")
    assert texts(mon) == ["taken"]


def test_a_logger_in_no_hierarchy_keeps_its_level(captured, texts):
    mon, seen = captured("INFO"), Seen()
    alone = logging.Logger("alone", logging.ERROR)
    alone.addHandler(seen)
    alone.warning("too low")
    alone.error("shown and taken")
    assert (seen.texts, texts(mon)) == (["shown and taken"], ["shown and taken"])


def test_two_captures_open_the_root_as_far_as_one_of_them_wants(captured, texts):
    one, two, log = (
        captured("INFO", exp_name="one"),
        captured("DEBUG", exp_name="two"),
        logging.getLogger("t.x"),
    )
    log.debug("low")
    folder = two._spool.folder
    two.close()
    log.debug("too low now")
    log.info("high")
    assert texts(one) == ["low", "high"]
    assert texts(folder) == ["low"]


# -- loggers that keep to themselves ---------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_library_that_does_not_propagate_is_heard(captured, texts, when):
    console = io.StringIO()
    mon = captured() if when == "after" else None
    log = own("t.transformers", logging.StreamHandler(console))
    log.setLevel(logging.INFO)
    mon = mon or captured()
    logging.getLogger("t.transformers.trainer").info("***** Running training *****")
    assert texts(mon) == ["***** Running training *****"]
    assert console.getvalue() == "***** Running training *****\n"


def test_one_that_changes_its_mind_is_heard_once(captured, texts):
    mon, log = captured(), own("t.datasets", logging.StreamHandler(io.StringIO()))
    for propagate in (False, True, False):
        log.propagate = propagate
        log.warning("propagate is %s", propagate)
    assert texts(mon) == [f"propagate is {each}" for each in (False, True, False)]


def test_a_logger_for_a_file_alone_and_a_silenced_one_are_left_alone(captured, texts, here):
    file = logging.FileHandler(here / "trace.jsonl")
    mon, trace, silenced = captured(), own("t.trace", file), own("t.silenced", logging.NullHandler())
    trace.warning("a span")
    silenced.warning("noise")
    nobody = own("t.nobody")
    nobody.info("shown nowhere")
    nobody.warning("shown by the last resort")
    file.close()
    assert texts(mon) == ["shown by the last resort"]
    assert "a span" in (here / "trace.jsonl").read_text()


def test_abseils_logger_is_heard_once(captured, texts):
    logger = pytest.importorskip("absl.logging")
    mon, absl = captured(), logging.getLogger("absl")
    before = absl.propagate
    try:
        for propagate in (True, False):
            absl.propagate = propagate
            logger.error("from absl, propagate %s", propagate)
    finally:
        absl.propagate = before
    assert texts(mon) == ["from absl, propagate True", "from absl, propagate False"]


# -- levels ----------------------------------------------------------------------------------------------


def test_levels_are_numbers_and_may_get_their_names_later(captured, records):
    mon, log = captured(1), logging.getLogger("t.levels")
    for number in (5, 15, 25, 35, 60):
        log.log(number, "x")
    logging.addLevelName(25, "NOTICE")
    try:
        log.log(25, "x")
        log.setLevel("NOTICE")
        log.log(24, "too low")
        log.log(26, "x")
    finally:
        del logging._levelToName[25], logging._nameToLevel["NOTICE"]
    assert [(fields[1], fields[2]) for fields in records(Kind.LOG, mon)] == [
        *((5, "Level 5"), (15, "Level 15"), (25, "Level 25"), (35, "Level 35"), (60, "Level 60")),
        *((25, "NOTICE"), (26, "Level 26")),
    ]


# -- others who reach into logging -----------------------------------------------------------------------


def test_handlers_that_count_the_frames_above_them_find_the_caller(captured):
    found: list[str] = []

    class Counts(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(sys._getframe(6).f_code.co_name)  # as loguru's recipe, depth=6

    logging.root.addHandler(Counts())
    for capture in (False, True):
        if capture:
            captured()
        logging.getLogger("t.x").warning("x")
    assert set(found) == {"test_handlers_that_count_the_frames_above_them_find_the_caller"}


def test_a_queue_between_logger_and_handler_makes_no_second_record(captured, texts):
    waiting: queue.Queue[Any] = queue.Queue()
    seen = Seen()
    listener = logging.handlers.QueueListener(waiting, seen)
    logging.root.addHandler(logging.handlers.QueueHandler(waiting))
    mon = captured()
    listener.start()
    logging.getLogger("t.x").warning("once")
    listener.stop()
    assert (seen.texts, texts(mon)) == (["once"], ["once"])


def test_who_wraps_logger_after_us_and_stays_is_left_there(captured, texts, monkeypatch):
    mon = captured()
    ours = logging.Logger.filter
    with monkeypatch.context() as patch:
        patch.setattr(logging.Logger, "filter", lambda log, record: bool(ours(log, record)))
        logging.getLogger("t.x").warning("through both")
        folder = mon._spool.folder
        mon.close()
        seen = Seen()
        logging.root.addHandler(seen)
        logging.getLogger("t.x").warning("through neither")
        again = captured(exp_name="again")
        logging.getLogger("t.x").warning("once")
        assert texts(again) == ["once"]
        again.close()
        assert seen.texts == ["through neither", "once"]
    assert texts(folder) == ["through both"]
    del logging.Logger.filter  # monkeypatch has put ours back, which lets all through


def test_a_filter_that_gives_another_record_is_believed(captured, texts):
    if sys.version_info < (3, 12):
        pytest.skip("from Python 3.12 on")
    mon, seen, log = captured(), Seen(), logging.getLogger("t.filtered")
    logging.root.addHandler(seen)

    def other(record: logging.LogRecord) -> Any:
        return logging.makeLogRecord({**vars(record), "msg": "another"})

    log.addFilter(other)
    log.warning("one")
    log.removeFilter(other)
    assert (seen.texts, texts(mon)) == (["another"], ["another"])


def test_no_record_is_kept_alive(captured):
    import gc
    import weakref

    class Tensor:
        pass

    captured()
    value = Tensor()
    alive = weakref.ref(value)
    logging.getLogger("t.x").warning("%s", value)
    del value
    gc.collect()
    assert alive() is None


def handles(self: logging.Logger, record: logging.LogRecord) -> None:
    if "dropped" not in record.getMessage():
        self.callHandlers(record)


def handles_as_ever(self: logging.Logger, record: logging.LogRecord) -> None:
    if "dropped" not in record.getMessage():
        logging.Logger.handle(self, record)


def filters(self: logging.Logger, record: logging.LogRecord) -> bool:
    return record.levelno > 20 and "dropped" not in record.getMessage()


def filters_as_ever(self: logging.Logger, record: logging.LogRecord) -> bool:
    return "dropped" not in record.getMessage() and bool(logging.Logger.filter(self, record))


@pytest.mark.parametrize(
    "methods",
    [
        {"handle": handles},
        {"handle": handles_as_ever},
        {"filter": filters},
        {"filter": filters_as_ever},
        {"handle": handles, "filter": filters},
        {"handle": handles_as_ever, "filter": filters},
    ],
)
@pytest.mark.parametrize("made", ["before", "during"])
def test_a_class_with_methods_of_its_own_is_heard_once_and_shows_what_it_would(methods, made):
    heard, frames = [], []

    class Shows(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            frames.append((record.getMessage(), sys._getframe(5).f_code.co_name))

    def take(record: logging.LogRecord) -> str:
        heard.append(record.getMessage())
        return heard[-1]

    kind = type("Own", (logging.Logger,), dict(methods)) if made == "before" else None
    end = stdlib_tap.listen(take, logging.INFO)
    kind = kind or type("Own", (logging.Logger,), dict(methods))
    log = kind("t.own")
    log.parent = logging.root
    log.addHandler(Shows())
    for number in range(3):
        logging.getLogger("t.other").error("other")
        log.error("said %d", number)
        log.error("dropped")
    end()
    log.error("afterwards")
    assert [each for each in heard if each != "other"] == ["said 0", "said 1", "said 2"]
    assert [text for text, _ in frames] == ["said 0", "said 1", "said 2", "afterwards"]
    assert len({place for _, place in frames}) == 1
    assert not isinstance(vars(kind).get("callHandlers"), stdlib_tap._LookedUp)
    assert {name: vars(kind)[name] for name in methods} == methods
