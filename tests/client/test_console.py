"""What a rank shows on its stderr: Primus' form, its levels and variables."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from rankside import console
from rankside.console import Console, console_of, level_of

AT = 1_767_323_045.5
LINE = (AT, 20, "INFO", "train", 215, "saving checkpoint")


@pytest.fixture
def hello(start):
    """Says who a rank of eight is."""
    return lambda **given: start(rank=7, world_size=8, **given)._hello


def plain(text):
    return re.sub(r"\x1b\[\d+m", "", text)


def test_a_line_reads_as_primus_prints_it(hello):
    line = Console(hello(), 20, io.StringIO()).line(*LINE)
    assert re.fullmatch(
        r"\[\d{8} [\d:]{8}\]\[rank-7/8\]\[INFO\]     \[-----------train\.py:215\] : saving checkpoint\n",
        line,
    )


def test_the_launcher_s_lines_begin_with_its_process(hello):
    master = hello(role="master")
    line = Console(master, 20, io.StringIO()).line(*LINE)
    assert line.startswith(f"(PrimusMaster  pid={master.pid}) [")
    assert "][node-7/8][INFO]" in line


def test_colours_change_nothing_but_colour(hello):
    told = hello()
    coloured = Console(told, 20, io.StringIO(), colour=True).line(*LINE)
    assert "\x1b[32m" in coloured
    assert plain(coloured) == Console(told, 20, io.StringIO()).line(*LINE)


def test_the_location_widens_with_the_longest(hello):
    console = Console(hello(), 20, io.StringIO())
    console.line(AT, 20, "INFO", "a_module_with_a_long_name", 12345, "x")
    width = len("a_module_with_a_long_name.py:12345")
    assert "[" + "train.py:215".rjust(width, "-") + "]" in console.line(*LINE)


def test_times_can_be_left_out(hello):
    console = console_of(hello(), {"PRIMUS_LOG_TIMESTAMP": "0"}, (), io.StringIO())
    assert console.line(*LINE).startswith("[rank-7/8][INFO]")


@pytest.mark.parametrize(
    ("config", "environ", "argv", "level"),
    [
        ({}, {}, (), 20),
        ({"stderr_sink_level": "WARNING"}, {}, (), 30),
        ({"stderr_sink_level": "WARNING"}, {"PRIMUS_LOG_LEVEL": "INFO"}, (), 20),
        ({"stderr_sink_level": "DEBUG"}, {"PRIMUS_LOG_LEVEL": "INFO"}, (), 10),
        ({"stderr_sink_level": "INFO"}, {"PRIMUS_LOG_LEVEL": "ERROR"}, (), 20),
        ({"stderr_sink_level": "INFO"}, {"PRIMUS_LOG_LEVEL": "WARN"}, (), 20),
        ({"stderr_sink_level": "INFO"}, {"PRIMUS_LOG_LEVEL": "LOUD"}, (), 20),
        ({"stderr_sink_level": "INFO"}, {}, ("--debug",), 10),
        ({"sink_level": "ERROR", "stderr_sink_level": "INFO"}, {}, (), 40),
    ],
)
def test_variables_make_it_more_verbose_and_never_less(config, environ, argv, level):
    assert level_of(config, environ, argv) == level


@pytest.mark.parametrize(
    ("environ", "terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"PRIMUS_LOG_COLOR": "0"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"PRIMUS_LOG_COLOR": "1"}, True, True),
    ],
)
def test_colours_are_for_terminals(hello, environ, terminal, coloured):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    assert ("\x1b" in console_of(hello(), environ, (), stream).line(*LINE)) is coloured


@pytest.mark.parametrize(
    "error", [OSError("no space"), ValueError("closed"), UnicodeEncodeError("ascii", "é", 0, 1, "")]
)
def test_a_stderr_that_takes_nothing_costs_nothing(hello, error):
    class Full(io.StringIO):
        def write(self, _text):
            raise error

    Console(hello(), 20, Full()).write(*LINE)


def test_records_are_shown_once_from_the_console_s_level_on(script):
    process = script("""
        import logging, sys
        logging.basicConfig(level=logging.INFO)
        from loguru import logger
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, stderr_sink_level="INFO", flush_seconds=0)
        mon.capture_logging(console=True)
        logging.getLogger("train").info("from stdlib")
        logger.info("from loguru {}", 1)
        logger.debug("only for files")
        logger.bind(console_only=True).warning("only here")
        logging.getLogger("train").info("only here, too", extra={"console_only": True})
        mon.log("from the monitor", level="ERROR")
        mon.close()
        logging.getLogger("train").info("given back")
        """)
    status, out, err = process.end()
    assert (status, out) == (0, "")
    shown = [line.partition("] : ")[2] or line for line in err.splitlines()]
    assert shown == [
        "from stdlib",
        "from loguru 1",
        "only here",
        "only here, too",
        "from the monitor",
        "INFO:train:given back",
    ]


def test_what_is_for_the_console_alone_is_in_no_file(start, texts):
    mon = start()
    mon.capture_logging()
    logging.getLogger("a").warning("for both")
    logging.getLogger("a").warning("not for files", extra={"console_only": True})
    assert texts(mon)[-1] == "for both"
    mon.close()


def test_megatron_s_numeric_level_is_the_console_s(start):
    assert start(stderr_sink_level="WARNING").logging_level == 30
    assert sys.argv.count("--debug") == 0


@pytest.mark.parametrize(
    ("name", "bad", "choices"),
    [
        ("PRIMUS_LOG_TIMESTAMP", "maybe", "choices: 1, 0"),
        ("PRIMUS_LOG_COLOR", "always", "choices: 1, 0"),
    ],
)
def test_a_variable_of_primus_that_says_nothing_is_told_with_the_choices(name, bad, choices):
    (told,) = console.misread({name: bad})
    assert told.startswith(f"{name}: {bad!r} is not allowed")
    assert choices in told
    assert not console.misread(dict.fromkeys(("PRIMUS_LOG_TIMESTAMP", "PRIMUS_LOG_COLOR"), "No"))
