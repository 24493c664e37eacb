"""With the console, every record is in the files and on the terminal once, whatever a program configures."""

from __future__ import annotations

import re
import threading
from textwrap import dedent

import pytest

from rankside import taken
from rankside.wire import Kind

HEAD = """
    import logging, logging.config, logging.handlers, os, queue, sys, warnings
    import rankside
    from loguru import logger

    def begin(**given):
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.capture_logging(console=True, **given)
        return mon

    """
PLAIN = "logging.StreamHandler()"


@pytest.fixture
def shown(script, texts):
    """Run a program: what is recorded, what is on stdout and on stderr, the console's form left out."""

    def run(body: str) -> tuple[list[str], list[str], list[str]]:
        status, out, err = script(dedent(HEAD) + dedent(body)).end()
        assert status == 0, err
        return texts(), out.splitlines(), [re.sub(r"^.*\] : ", "rank: ", line) for line in err.splitlines()]

    return run


@pytest.mark.parametrize(
    "setup",
    [
        "",
        "logging.basicConfig(level=logging.INFO)",
        "log.addHandler(logging.StreamHandler()); log.propagate = False",
        "log.addHandler(logging.StreamHandler(sys.stdout)); log.propagate = False",
        "log.propagate = False",
        "log.addHandler(logging.StreamHandler(sys.__stderr__))",
        "logging.config.dictConfig({'version': 1, 'disable_existing_loggers': 0, 'root': {'handlers': ['h']},"
        "'handlers': {'h': {'class': 'logging.StreamHandler', 'stream': 'ext://sys.stdout'}}})",
        "log.addHandler(type('Own', (logging.Handler,), {'emit': lambda s, r: print('x', s.format(r))})())",
        "log.addHandler(logging.handlers.MemoryHandler(1, target=logging.StreamHandler()))",
        "from rich.logging import RichHandler; log.addHandler(RichHandler())",
        "q = queue.Queue(); log.addHandler(logging.handlers.QueueHandler(q)); log.propagate = False;"
        "listener = logging.handlers.QueueListener(q, logging.StreamHandler()); listener.start();"
        "end = listener.stop",
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["handlers first", "capture first"])
def test_a_record_is_there_once_whatever_handlers_a_program_has(shown, setup, first):
    if "rich" in setup:
        pytest.importorskip("rich")
    order = [setup, "begin()"] if first else ["begin()", setup]
    said = ["log = logging.getLogger('lib'); end = str", *order, "log.warning('here %d', 1); end()"]
    told = shown("\n".join(said))
    assert told == (["here 1"], [], ["rank: here 1"])


@pytest.mark.parametrize(
    "setup",
    [
        "",
        "logger.add(sys.stdout)",
        "logger.remove(); logger.add(sys.stderr, format='{message}', enqueue=True)",
        "logger.add(lambda message: print(message, end=''))",
        "logger.add(logging.StreamHandler())",
        "logger.configure(handlers=[{'sink': sys.stdout, 'format': '{message}'}])",
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["sinks first", "capture first"])
def test_a_record_is_there_once_whatever_sinks_loguru_has(shown, setup, first):
    order = [setup, "begin()"] if first else ["begin()", setup]
    told = shown("\n".join([*order, "logger.warning('here {}', 1)", "logger.complete()"]))
    assert told == (["here 1"], [], ["rank: here 1"])


def test_a_warning_is_there_once(shown):
    told = shown("begin()\nwarnings.warn('careful', UserWarning)")
    assert told == (["UserWarning: careful"], [], ["rank: UserWarning: careful"])


def test_what_is_printed_stays_where_it_is_printed_and_is_shown_once(shown):
    told = shown("begin(print=True)\nprint('here')\nprint('there', file=sys.stderr)\nlogging.error('said')")
    assert told == (["here", "there", "said"], ["here"], ["there", "rank: said"])


def test_what_a_handler_prints_beside_its_record_is_shown(shown):
    told = shown("""
    class Uploads(logging.Handler):
        def emit(self, record):
            print("upload of", len(record.getMessage()), "bytes failed")
    logging.getLogger("lib").addHandler(Uploads())
    logger.add(lambda message: print("webhook: 500"))
    begin(print=True)
    logging.getLogger("lib").error("abc")
    logger.error("loguru")
    """)
    assert sorted(told[0]) == ["abc", "loguru", "upload of 3 bytes failed", "webhook: 500"]
    assert told[1:] == (
        ["upload of 3 bytes failed", "webhook: 500"],
        ["rank: abc", "rank: loguru"],
    )


@pytest.mark.parametrize("message", ["level ERROR", "1", "!!!", "dropped 17 of level", "loss is nan", "far"])
def test_what_a_handler_says_in_words_of_its_record_is_shown_and_recorded(shown, message):
    said = "slack failed (503): 17 far alerts of level ERROR dropped, 1 kept!!!"
    told = shown(f"""
    class Slack(logging.Handler):
        def emit(self, record):
            print({said!r})
            print("!!! PAGED ON CALL, ticket 4711:", record.getMessage())
    logging.getLogger("lib").addHandler(Slack())
    begin(print=True)
    logging.getLogger("lib").error({message!r})
    """)
    own = [said, f"!!! PAGED ON CALL, ticket 4711: {message}"]
    assert told == ([message, *own], own, [f"rank: {message}"])


def test_what_a_handler_prints_behind_its_record_is_shown(shown):
    told = shown("""
    class Slack(logging.Handler):
        def emit(self, record):
            print(record.getMessage(), "could not be sent to slack")
    logging.getLogger("lib").addHandler(Slack())
    begin(print=True)
    logging.getLogger("lib").error("loss is nan")
    """)
    assert told[0][0] == "loss is nan"
    assert "could not be sent to slack" in told[0][1]
    assert "could not be sent to slack" in told[1][0]


def test_what_rankside_itself_has_to_say_is_shown(shown):
    assert any(line.startswith("rankside: ") for line in shown("begin().metrics(5)")[2])


def test_the_root_logger_is_the_programs_own_before_and_afterwards(shown):
    told = shown("""
    logging.basicConfig(stream=sys.stdout)
    mon = begin()
    assert [type(each).__name__ for each in logging.root.handlers] == ["StreamHandler"]
    logging.root.handlers.clear()
    logging.basicConfig(stream=sys.stdout, format="mine %(message)s")
    logging.error("during")
    mon.close()
    assert len(logging.root.handlers) == 1
    assert vars(sys.stdout).keys() == vars(sys.stderr).keys() == {"mode"}
    logging.error("afterwards")
    """)
    assert told == (["during"], ["mine afterwards"], ["rank: during"])


def test_files_that_handlers_write_are_whole(shown, here):
    shown("""
    begin()
    logging.basicConfig(filename="own.log", level=logging.INFO, format="%(message)s")
    logging.info("for the file")
    """)
    assert (here / "own.log").read_text() == "for the file\n"


def test_a_stream_of_fixed_attributes_is_shown_twice_and_not_lost(shown):
    told = shown("""
    class Fixed:
        __slots__ = ()
        def write(self, text): return os.write(1, text.encode())
        def flush(self): pass
    sys.stdout = Fixed()
    begin()
    logging.getLogger("lib").addHandler(logging.StreamHandler(sys.stdout))
    logging.getLogger("lib").error("here")
    """)
    assert told == (["here"], ["here"], ["rank: here"])


@pytest.mark.parametrize("order", ["console fds", "fds console", "console print", "print console"])
def test_in_whatever_order_consoles_and_captures_are_asked_for(script, order, here, until):
    status, out, err = script(
        dedent(HEAD)
        + dedent("""
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        for how in sys.argv[1].split():
            mon.capture_logging(**{how: True})
        logging.basicConfig(stream=sys.stdout)
        logging.error("logged")
        print("printed")
        logger.error("by loguru")
        """),
        order,
    ).end()
    until(lambda: not list((here / "spool").glob("*/*.outputs")), "the helper to end")
    assert (status, out) == (0, "printed\n")
    assert (err.count("logged"), err.count("by loguru"), err.count("printed")) == (1, 1, 0)


WORKER = """
    import logging.handlers, multiprocessing

    def work(q):
        log = logging.getLogger("worker")
        log.addHandler(logging.handlers.QueueHandler(q))
        {inside}
        log.warning("from the worker")

    if __name__ == "__main__":
        mon = begin({given})
        context = multiprocessing.get_context("spawn")
        q = context.Queue()
        listener = logging.handlers.QueueListener(q, logging.StreamHandler())
        listener.start()
        process = context.Process(target=work, args=(q,))
        process.start()
        process.join()
        listener.stop()
        mon.close()
    """


@pytest.mark.parametrize(("given", "recorded"), [("", []), ("print=True", ["from the worker"])])
def test_what_a_listener_has_of_another_process_is_not_lost(shown, given, recorded):
    """No monitor has heard it there, so it is the program's own line."""
    texts, _, err = shown(WORKER.format(inside="pass", given=given))
    assert texts == recorded
    assert err == ["from the worker"]


def test_what_another_process_has_recorded_is_not_shown_by_a_listener_again(script, every_spool):
    inside = "begin()"
    status, _, err = script(dedent(HEAD) + dedent(WORKER.format(inside=inside, given="print=True"))).end()
    assert status == 0, err
    found = [
        fields[5] for records in every_spool().values() for _, kind, fields in records if kind == Kind.LOG
    ]
    assert found == ["from the worker"]
    assert [line.endswith("] : from the worker") for line in err.splitlines()] == [True]


def test_what_threads_that_ended_have_begun_is_not_kept_for_ever():
    pieces = taken.ByThread(most=3)
    barrier = threading.Barrier(5)

    def begin() -> None:
        pieces.mine()._held = "begun"
        barrier.wait(10)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    barrier.wait(10)
    for thread in threads:
        thread.join(10)
    pieces.mine()
    assert len(pieces._threads) == 5
    pieces.dead()
    assert list(pieces._threads) == [threading.get_ident()]
