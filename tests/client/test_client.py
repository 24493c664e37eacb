"""The monitor: every call lands, none raises, and each ending of a process leaves what it should."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import os
import pickle
import sys
import textwrap
import threading
import time
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rankside
from rankside import ConfigError, Monitor, NoMonitor, client, no_monitor, wire
from rankside.identity import Hello
from rankside.leftover import Leftover
from rankside.record import numbers
from rankside.wire import Kind

MIB = 1 << 20


class Tensor:
    def __init__(self, value: Any, count: int = 1) -> None:
        self.value, self.count, self.asked = value, count, 0

    def numel(self) -> int:
        return self.count

    def item(self) -> Any:
        self.asked += 1
        return self.value


class Unwilling:
    """Raises whatever it is asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("not me")

    def _no(self, *_: Any) -> Any:
        raise RuntimeError("no")

    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = __fspath__ = __format__ = _no
    __hash__ = object.__hash__


# -- calls ---------------------------------------------------------------------------------------------


def test_each_call_becomes_a_record(start, records, here):
    mon = start()
    before = time.time()
    mon.metrics({"lm loss": 2.5, "grad norm": Tensor(0.5)}, step=3)
    mon.throughput(step=4, elapsed_s=1.5, global_batch_size=128)
    mon.params({"lr": 0.1}, seed=7)
    mon.event("checkpoint", path=here, ok=True)
    mon.artifact("relative.txt")
    mon.log("hello", level="warning", step=3)
    mon.set_module("sft")
    found = {kind: records(kind, mon) for kind in Kind}
    assert all(before <= fields[0] <= time.time() for each in found.values() for fields in each)
    plain = {kind: [fields[1:] for fields in each] for kind, each in found.items() if each}
    assert plain.pop(Kind.LOG) == [[30, "WARNING", "test_client", plain_line("hello"), "hello step=3"]]
    assert plain == {
        Kind.METRICS: [[3, {"lm loss": 2.5, "grad norm": 0.5}]],
        Kind.THROUGHPUT: [[4, {"elapsed_s": 1.5, "global_batch_size": 128}]],
        Kind.PARAMS: [[{"lr": 0.1, "seed": 7}]],
        Kind.EVENT: [["checkpoint", {"path": str(here), "ok": True}]],
        Kind.ARTIFACT: [[os.path.abspath("relative.txt")]],
        Kind.MODULE: [["sft", 10]],
    }
    mon.close("failed")
    assert [fields[1] for fields in records(Kind.CLOSE)] == ["failed"]


def plain_line(text: str) -> int:
    """The line of this file where `mon.log(text` stands."""
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if f'mon.log("{text}"' in line)


def test_a_message_is_never_formatted(start, texts):
    mon = start()
    for text in ("{lr} {", "%s %d", "<red>x</red>", "\x1b[31m\r\0", "\ud800 alone", "{0.__class__}", ""):
        mon.log(text)
    mon.log({"a": 1}, loss=float("nan"))
    assert texts(mon) == [
        *("{lr} {", "%s %d", "<red>x</red>", "\x1b[31m\r\0", "\ud800 alone", "{0.__class__}", ""),
        "{'a': 1} loss=nan",
    ]


def test_levels_by_name_keep_their_name_and_number(start, records):
    mon = start()
    for name in ("trace", "DEBUG", "Info", "SUCCESS", "warn", "ERROR", "CRITICAL"):
        mon.log("x", level=name)
    assert [(fields[1], fields[2]) for fields in records(Kind.LOG, mon)] == [
        (5, "TRACE"),
        (10, "DEBUG"),
        (20, "INFO"),
        (25, "SUCCESS"),
        (30, "WARN"),
        (40, "ERROR"),
        (50, "CRITICAL"),
    ]


def test_a_module_begins_whatever_its_levels_are(start, records, texts, capfd):
    mon = start()
    bad = {"sink_level": "LOUD", "file_sink_level": "WARNING", "stderr_sink_level": 20, "level": "INFO"}
    mon.set_module("sft", **bad)
    mon.set_module("eval", file_sink_level="x")
    assert [fields[1:] for fields in records(Kind.MODULE, mon)] == [["sft", 30], ["eval", 30]]
    assert (mon.config["sink_level"], mon.config["stderr_sink_level"]) == (None, "INFO")
    (told,) = texts(mon)
    assert "sink_level: 'LOUD' is not allowed; choices: TRACE" in told
    assert told in capfd.readouterr().err


def test_metrics_take_any_mapping_and_any_name(start, records):
    mon = start()
    mon.metrics(MappingProxyType({"a": 1}), step=1)
    mon.metrics({("loss", "train"): 1.5, 7: 2}, step=2)
    good = [numbers(fields[2])[0] for fields in records(Kind.METRICS, mon)]
    assert good == [{"a": 1}, {"('loss', 'train')": 1.5, "7": 2}]


def test_one_impossible_value_does_not_take_the_others_with_it(start, records):
    mon, endless = start(), {}
    endless["itself"] = endless
    mon.metrics({"loss": 1.5, "endless": endless, "unwilling": Unwilling(), "t": Tensor(2.0)}, step=1)
    (fields,) = records(Kind.METRICS, mon)
    good, refused = numbers(fields[2])
    assert good == {"loss": 1.5, "t": 2.0}
    assert sorted(refused) == ["endless", "unwilling"]


def test_a_step_may_be_a_tensor_too(start, records):
    mon = start()
    mon.metrics({"a": 1}, step=Tensor(12))
    mon.throughput(step=Tensor(13), tflops=Tensor(400.5))
    assert records(Kind.METRICS, mon)[0][1] == 12
    assert records(Kind.THROUGHPUT, mon)[0][1:] == [13, {"tflops": 400.5}]


# -- big ones ------------------------------------------------------------------------------------------


def test_very_big_records_are_cut_and_say_so_between_small_ones(start, texts, records):
    mon = start()
    mon.log("before")
    for size in (5 * MIB, 64 * MIB):
        mon.log("€" * (size // 3))
        mon.log(f"after {size}")
    names = {f"layer.{number}.weight" + "." * 50: number for number in range(20_000)}
    mon.metrics(names, step=7)
    mon.metrics({"after": 1}, step=8)
    found = texts(mon)
    assert [found[0], found[2], found[4]] == ["before", f"after {5 * MIB}", f"after {64 * MIB}"]
    for text, size in ((found[1], 5 * MIB), (found[3], 64 * MIB)):
        assert text.endswith(f"... [rankside: cut here, {size // 3} characters in all]")
        assert len(text.encode()) <= MIB
    *parts, last = records(Kind.METRICS, mon)
    assert len(parts) > 1
    assert {fields[0] for fields in parts} == {parts[0][0]}  # one moment, one step
    assert {fields[1] for fields in parts} == {7}
    assert dict(pair for fields in parts for pair in fields[2].items()) == names
    assert last[1:] == [8, {"after": 1}]
    assert mon._spool.dropped() == 0


def test_no_value_of_big_metrics_is_asked_twice(start, records):
    mon = start()
    tensors = {f"{'x' * 3000} {number}": Tensor(float(number)) for number in range(600)}
    mon.metrics(tensors)
    assert [tensor.asked for tensor in tensors.values()] == [1] * 600
    assert sum(len(fields[2]) for fields in records(Kind.METRICS, mon)) == 600


def test_a_giant_among_metrics_is_refused_and_the_others_land(start, records, capfd):
    mon = start()
    mon.metrics({"giant": "x" * (2 * MIB), "loss": 1.5, "lr": 2.5})
    good = [numbers(fields[2])[0] for fields in records(Kind.METRICS, mon)]
    assert {name: value for each in good for name, value in each.items()} == {"loss": 1.5, "lr": 2.5}


def test_parameters_leave_without_their_secrets(start, records, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2hunter2")
    mon = start()
    mon.params({"api_key": "hunter2"}, deep={"db": SimpleNamespace(password="hunter2", port=1)})
    mon.params({"num_key_value_heads": 8, "url": "https://ann:hunter2@h", "x": ["a hunter2hunter2"]})
    assert [fields[1] for fields in records(Kind.PARAMS)] == [
        {"api_key": "***", "deep": {"db": {"password": "***", "port": 1}}},
        {"num_key_value_heads": 8, "url": "https://***@h", "x": ["a ***"]},
    ]


def test_parameters_of_any_size_land(start, records):
    mon = start()
    many = {f"name {number}": "v" * 100 for number in range(30_000)}
    mon.params(many)
    mon.params(data=list(range(500_000)), lr=0.1)
    found: dict[str, Any] = {}
    for fields in records(Kind.PARAMS, mon):
        found.update(fields[1])
    assert found.pop("lr") == 0.1
    assert found.pop("data")[-1].endswith("500000 items in all]")
    assert found == many
    assert mon._spool.dropped() == 0


def test_an_event_of_any_size_lands(start, records):
    mon = start()
    mon.event("n" * 5000, rows=[["x" * 1000] * 1000, "y" * (3 * MIB)])
    ((_, name, fields),) = records(Kind.EVENT, mon)
    assert len(name) <= 1000
    assert fields["fields"].endswith("characters in all]")


# -- nothing raises ------------------------------------------------------------------------------------

UNWILLING = "<unwilling>"  # stands for an object that not even hypothesis can look at
NASTY = st.deferred(
    lambda: (
        st.none()
        | st.integers()
        | st.floats()
        | st.text(st.characters(codec=None), max_size=20)
        | st.binary(max_size=20)
        | st.complex_numbers()
        | st.just(UNWILLING)
        | st.builds(Tensor, st.integers() | st.text(), st.integers(0, 2))
        | st.sampled_from([object(), int, ..., memoryview(b"abc")[::2], (x for x in "ab")])
        | st.lists(NASTY, max_size=3)
        | st.dictionaries(st.text() | st.integers(), NASTY, max_size=3)
    )
)
NAMES = st.text(st.characters(codec=None), max_size=9)
CALLS = st.sampled_from(
    ["metrics", "throughput", "params", "event", "artifact", "log", "set_module", "capture_logging"]
)


def armed(value: Any) -> Any:
    """The same with the unwilling in their places."""
    if isinstance(value, list):
        return [armed(each) for each in value]
    if isinstance(value, dict):
        return {Unwilling() if key == UNWILLING else key: armed(each) for key, each in value.items()}
    return Unwilling() if isinstance(value, str) and value == UNWILLING else value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(CALLS, st.lists(NASTY, max_size=2), st.dictionaries(NAMES, NASTY, max_size=3))
def test_no_call_raises_whatever_it_is_given(start, call, positional, named):
    mon = rankside.current()
    if isinstance(mon, NoMonitor):
        mon = start()
    method = getattr(mon, call)
    try:
        inspect.signature(method).bind(*positional, **named)
    except TypeError:
        return  # Python itself refuses such a call
    refused = ""
    try:
        method(*armed(positional), **armed(named))
    except ValueError as error:  # the one call that may: an unknown level, at the start
        refused = str(error)
    assert not refused or (call == "capture_logging" and "choices" in refused)
    mon._captures.end()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(NASTY)
def test_closing_never_raises(start, status):
    mon = start()
    mon.close(armed(status))
    assert "closed" in repr(mon)


def test_what_is_refused_is_told_once_on_stderr_and_in_the_log(start, texts, capfd):
    mon = start()
    for _ in range(5):
        mon.metrics(None)
        mon.artifact(7)
        mon.event(Unwilling())
    mon.close("done")
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 4
    assert all(line.startswith("rankside: ") for line in told)
    assert [text.split(":")[0] for text in texts()] == ["metrics()", "artifact()", "event()", "close()"]
    assert "choices: finished, failed, killed" in told[3]


# -- without room --------------------------------------------------------------------------------------


def test_without_any_room_calls_are_counted_and_told_once_there_is(start, here, monkeypatch, capfd, records):
    monkeypatch.setattr(client, "_REOPEN", 0.0)
    (here / "spool").write_text("in the way")
    mon = start()
    for number in range(5):
        mon.log(f"lost {number}")
    mon.metrics({"a": 1})
    assert mon.lost == 6
    assert capfd.readouterr().err.count("no room for a spool") == 1
    (here / "spool").unlink()
    mon.log("kept")
    mon._spool.announce()
    assert [fields[5] for fields in records(Kind.LOG, mon)] == ["kept"]
    assert records(Kind.DROPPED, mon)[0][1] == {"log": 5, "metrics": 1}
    assert mon.lost == 0


def test_without_file_descriptors_init_does_not_raise_and_comes_back(run):
    out, _ = run("""
        import os, resource
        import rankside
        from rankside import client
        client._REOPEN = 0.0
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        held = []
        try:
            while True: held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError: pass
        for free in (0, 1, 2, 3):  # it may fail at any of its files
            for _ in range(free): os.close(held.pop())
            mon = rankside.init(exp_root=f"exp{free}", rank=0, world_size=1, flush_seconds=0)
            mon.log("lost")
            assert mon.lost == 1, mon.lost
            before = len(os.listdir("/proc/self/fd")) if free else 0
            mon.metrics({"a": 1})
            assert mon.lost == 2
            if free: assert len(os.listdir("/proc/self/fd")) == before
            try:
                while True: held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError: pass
        for fd in held: os.close(fd)
        mon.log("kept")
        mon._spool.announce()
        print(mon.lost, mon._spool.last)
        """)
    assert out.split() == ["0", "2"]


def test_a_signal_handlers_record_while_the_channel_opens_is_counted(start, monkeypatch, records):
    mon = start()
    assert mon._transport.stop(10)
    mon._spool, opens = None, mon._new_spool

    def interrupted() -> Any:
        mon.log("from a handler")
        return opens()

    mon._hello = client.replace(mon._hello, channel="another")
    monkeypatch.setattr(mon, "_new_spool", interrupted)
    mon.log("first")
    mon._spool.announce()
    assert [fields[5] for fields in records(Kind.LOG, mon)] == ["first"]
    assert records(Kind.DROPPED, mon)[0][1] == {"log": 1}


# -- lifetimes -----------------------------------------------------------------------------------------


def test_after_close_calls_do_nothing(start, here, every_spool):
    mon = start()
    mon.log("last")
    mon.close()
    ((folder, before),) = every_spool().items()
    mon.log("late")
    mon.metrics({"a": 1})
    mon.set_module("sft")
    mon.event("late")
    mon.capture_logging()
    mon.close("failed")
    assert every_spool() == {folder: before}
    assert [kind for _, kind, _ in before] == [Kind.LOG, Kind.CLOSE]
    assert mon.lost == 0


def test_closing_from_many_threads_says_goodbye_once(start, records):
    mon = start()
    threads = [threading.Thread(target=mon.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(records(Kind.CLOSE)) == 1


def test_no_record_comes_behind_the_goodbye(start, records, until):
    """Other threads go on logging while one closes: the agent takes the last record for the end."""
    mon, stop = start(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            mon.log("x")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: mon._spool.last > 100)
    folder = mon._spool.folder
    mon.close()
    stop.set()
    for thread in threads:
        thread.join(10)
    kinds = [Kind(kind) for _, kind, _ in Leftover(folder).frames(0)]
    assert kinds.index(Kind.CLOSE) == len(kinds) - 1


def test_two_monitors_have_channels_of_their_own(start, texts):
    first, second = start(exp_name="one"), start(exp_name="two")
    assert rankside.current() is second
    first.log("from the first")
    second.log("from the second")
    folders = [first._spool.folder, second._spool.folder]
    first.close()
    second.log("still there")
    assert texts(folders[0]) == ["from the first"]
    assert texts(folders[1]) == ["from the second", "still there"]


def test_a_closed_monitor_leaves_no_thread_and_no_file_open(start, until):
    def state() -> tuple[int, int]:
        import gc

        gc.collect()
        names = [thread.name for thread in threading.enumerate()]
        return len(os.listdir("/proc/self/fd")), names.count("rankside-transport")

    start().close()
    rankside._current = NoMonitor()
    before = state()
    for _ in range(5):
        start().close()
    rankside._current = NoMonitor()
    until(lambda: state() == before, f"{before}, not {state()}")


def test_init_and_close_in_a_thread(start, texts, records):
    def work() -> None:
        mon = start()
        mon.log("from a thread")
        mon.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert texts() == ["from a thread"]
    assert records()[-1][1] == "finished"


@pytest.mark.parametrize(
    ("error", "status", "logged"),
    [
        (None, "finished", False),
        (ValueError("boom"), "failed", True),
        (KeyboardInterrupt(), "killed", True),
        (SystemExit(), "finished", False),
        (SystemExit(0), "finished", False),
        (SystemExit(2), "failed", False),
        (SystemExit("no data"), "failed", False),
    ],
)
def test_a_with_block_ends_with_the_status_of_its_end(start, records, error, status, logged):
    caught = contextlib.suppress(type(error)) if error else contextlib.nullcontext()
    with caught, start() as mon:
        mon.log("inside")
        if error:
            raise error
    assert records(Kind.CLOSE)[0][1] == status
    lines = records(Kind.LOG)
    assert len(lines) == 1 + logged
    if logged:
        assert lines[1][1:4] == [50, "CRITICAL", "test_client"]
        assert lines[1][5].startswith("training ended by Traceback (most recent call last):\n")
        assert type(error).__name__ in lines[1][5]


def test_what_an_agent_will_read_of_it_stands_in_the_folder(start):
    mon = start(exp_name="llama", module_name="sft", world_size=4, rank=2, config={"log_interval": 5})
    hello = Hello.unpacked(wire.unpack(Leftover(mon._spool.folder).hello()))
    assert (hello.exp_name, hello.module, hello.rank, hello.world_size) == ("llama", "sft", 2, 4)
    assert hello.spool == str(mon._spool.folder)
    assert hello.channel == mon._spool.folder.name
    assert hello.config["log_interval"] == 5
    assert hello == mon._hello


def test_order_is_that_of_the_calls_whatever_the_clock_does(start, texts, monkeypatch):
    mon = start()
    jumps = itertools.cycle([1e9, 1e9 - 3600, 1e9 + 3e8, -1.0, 0.0])
    monkeypatch.setattr(client.time, "time", lambda: next(jumps))
    for number in range(10):
        mon.log(f"line {number}")
    assert texts(mon) == [f"line {number}" for number in range(10)]


# -- init ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"role": "chief"}, "role: 'chief' is not allowed; choices: worker, master"),
        ({"rank": 4, "world_size": 4}, "rank: 4 is outside a world of 4"),
        ({"rank": "3"}, "rank: '3' is no whole number"),
        ({"rank": -1}, "rank: -1 is outside"),
        ({"spool_bytes": 0}, "spool_bytes: 0 is not allowed"),
        ({"spool_bytes": 1e18}, "spool_bytes: 1e\\+18 is not allowed; choices: a number of bytes from 1 to"),
        ({"world_size": 2**70}, "world_size: 1180591620717411303424 is not allowed"),
        ({"endpoint": "tcp://127.0.0.1:99999"}, "endpoint: 'tcp://127.0.0.1:99999' is not allowed; choices"),
        ({"spool_bytes": "64M"}, "spool_bytes: '64M' is not allowed"),
        ({"flush_seconds": -1}, "flush_seconds: -1 is not allowed"),
        ({"flush_seconds": float("nan")}, "flush_seconds: nan is not allowed"),
        (
            {"endpoint": "a.sock"},
            "endpoint: 'a.sock' is not allowed; choices: auto, /a/path or ipc:///a/path",
        ),
        ({"exp_name": "a\0b"}, r"exp_name: 'a\\x00b' is not allowed; choices: a text without control"),
        ({"module_name": "m" * 5000}, "module is too long"),
        ({"config": {"log_interval": "often"}}, "config: log_interval: 'often' is not allowed"),
        ({"profile": 7}, r"init\(\): profile: 7 is not allowed; choices: true, false"),
    ],
)
def test_init_refuses_what_cannot_work_and_says_where_and_what_can(start, here, given, told):
    with pytest.raises(ConfigError, match=told):
        start(**given)
    assert not (here / "spool").exists()
    assert isinstance(rankside.current(), NoMonitor)


def test_init_takes_numbers_where_names_are_wanted(start):
    mon = start(exp_root=None, workspace="/w", exp_name=7, user_name=42, work_group="g", module_name=1)
    assert mon.exp_root == "/w/g/42/7"
    assert mon._hello.module == "1"


def test_numpy_ranks_are_ranks(start):
    np = pytest.importorskip("numpy")
    mon = start(rank=np.int64(1), world_size=np.int32(2))
    assert (type(mon._hello.rank), mon._hello.rank, mon._hello.world_size) == (int, 1, 2)


def test_a_changed_config_is_the_callers_own(start):
    start().config["profile_ranks"].append(99)
    assert start().config["profile_ranks"] == [0]


def test_remarks_of_the_start_are_told_and_logged(start, texts, capfd):
    mon = start(rank=None, world_size=None, config={"log_intervall": 3})
    told = texts(mon)
    assert any("no rank" in text for text in told)
    assert any("did you mean log_interval?" in text for text in told)
    assert [f"rankside: {text}" for text in told] == capfd.readouterr().err.splitlines()


def test_disabled_it_does_nothing_at_all(start, here, monkeypatch):
    monkeypatch.setenv("RANKSIDE_DISABLE", "1")
    threads = threading.active_count()
    with start(role="nonsense is not even looked at") as mon:
        mon.metrics({"a": Tensor(1)})
        mon.log("x")
        mon.capture_logging()
    assert isinstance(mon, NoMonitor)
    assert rankside.current() is mon
    assert threading.active_count() == threads
    assert not (here / "spool").exists()
    monkeypatch.setenv("RANKSIDE_DISABLE", "0")
    assert isinstance(start(), Monitor)


def test_the_one_that_does_nothing_has_every_public_call(start):
    mon = start()
    for name, member in inspect.getmembers(Monitor):
        if name.startswith("_") and name not in ("__enter__", "__exit__"):
            continue
        assert name in vars(NoMonitor), name  # its own, not the one that it inherits
        if inspect.isfunction(member):
            theirs = [str(each) for each in inspect.signature(member).parameters.values()]
            ours = [str(each) for each in inspect.signature(getattr(NoMonitor, name)).parameters.values()]
            assert ours == theirs, name
        else:
            assert name == "rank" or getattr(NoMonitor(), name) is not None, name
    assert NoMonitor().exp_root == ""
    assert mon.exp_root


def test_before_init_library_code_may_call():
    rankside.current().metrics({"a": 1}, step=1)
    rankside.current().throughput(tflops=1.0)
    rankside.current().params({})
    rankside.current().event("x")
    rankside.current().artifact("x")
    rankside.current().set_module("x")
    rankside.current().close()


# -- endings of a process ------------------------------------------------------------------------------


def begun(body: str) -> str:
    """A script that has a monitor and does `body` with it."""
    return BEGIN + textwrap.dedent(body)


BEGIN = """
import atexit, os, signal, sys, threading, time
import rankside
mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0, spool_bytes=3 << 20)
"""


@pytest.mark.parametrize(
    ("end", "code", "goodbye"),
    [
        ("", 0, "finished"),
        ("sys.exit(0)", 0, "finished"),
        ("mon.close('failed')", 0, "failed"),
        ("os._exit(0)", 0, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, None),
        ("mon.capture_logging(); 1 / 0", 1, "failed"),
        ("mon.capture_logging(); signal.raise_signal(signal.SIGINT)", -2, "killed"),
        ("del mon; rankside.init(exp_root='other', rank=0, world_size=1, flush_seconds=0)", 0, "finished"),
    ],
)
def test_every_end_of_a_process_leaves_its_records_and_what_can_be_said_of_it(
    script, every_spool, end, code, goodbye
):
    status, _, err = script(begun("mon.log('last words')\n" + end)).end()
    assert status == code, err
    found = next(each for each in every_spool().values() if each[0][2][5:] == ["last words"])
    if goodbye:
        assert found.pop()[2][1] == goodbye
    assert Kind.CLOSE not in [kind for _, kind, _ in found]
    if "1 / 0" in end:
        assert "ZeroDivisionError: division by zero" in found[-1][2][5]
        assert err.count("ZeroDivisionError") == 1  # the interpreter's own report, as ever


def test_without_an_agent_50_000_records_are_kept_and_leaving_takes_its_two_seconds(script, records):
    process = script("""
        import logging, time
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1)
        mon.capture_logging()
        log = logging.getLogger("train")
        for number in range(50_000):
            log.info("line %d", number)
        print(time.monotonic(), flush=True)
        """)
    last = float(process.line())
    status, _, err = process.end()
    took = time.monotonic() - last
    assert status == 0
    assert err.startswith("rankside: no agent has answered on ")
    assert 1.5 < took < 4.5  # the flush of 2 s, and a busy machine's slack
    *lines, goodbye = records()
    assert [fields[5] for fields in lines] == [f"line {number}" for number in range(50_000)]
    assert goodbye[1] == "finished"


def test_calls_during_interpreter_shutdown_are_harmless(run, every_spool):
    out, err = run("""
        import atexit, rankside

        class Late:
            def __del__(self):
                rankside.current().log("from a finalizer")
                rankside.current().metrics({"a": 1})

        def at_exit():
            rankside.current().log("before init was ever called, or after close")
        atexit.register(at_exit)

        def starts_late():
            mon = rankside.init(exp_root="late", rank=0, world_size=1, flush_seconds=0)
            mon.log("started at exit")
            mon.close()
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        mon.held = Late()
        mon.log("main")
        atexit.register(starts_late)
        """)
    assert (out, err) == ("", "")
    texts = sorted(
        fields[5] for found in every_spool().values() for _, kind, fields in found if kind == Kind.LOG
    )
    assert texts == ["main", "started at exit"]


# -- fork ----------------------------------------------------------------------------------------------

FORKS = """
    import os, sys, threading, time
    import rankside
    rounds, children = int(sys.argv[1]), 8
    mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0, spool_bytes=64 << 20)
    stop = threading.Event()

    def log(name):
        number = 0
        while not stop.is_set():
            mon.log(f"{name} {number}")
            number += 1
            if number % 20 == 0:
                time.sleep(0.0005)
        sys.stdout.write(f"{name} {number}\\n")

    def forks():
        for _ in range(rounds):
            pids = []
            for child in range(children):
                pid = os.fork()
                if pid == 0:
                    for number in range(10):
                        mon.log(f"child {os.getpid()} {number}")
                    if child % 2:
                        os._exit(0)
                    return "child"
                pids.append(pid)
            for pid in pids:
                assert os.waitpid(pid, 0)[1] == 0
        return "parent"

    threads = [threading.Thread(target=log, args=(name,)) for name in ("a", "b")]
    for thread in threads: thread.start()
    if forks() == "parent":
        stop.set()
        for thread in threads: thread.join()
        mon.close()
    """


@pytest.mark.parametrize("rounds", [6, pytest.param(50, marks=pytest.mark.chaos)])
def test_forks_from_a_process_whose_threads_log(script, every_spool, here, rounds, monkeypatch):
    status, out, err = script(FORKS, str(rounds)).end(60)  # no hang
    assert (status, err) == (0, "")
    counts = dict(line.split() for line in out.splitlines())
    found = every_spool()
    hellos = {folder: Hello.unpacked(wire.unpack(Leftover(folder).hello())) for folder in found}
    (parent,) = [folder for folder, hello in hellos.items() if hello.parent is None]
    mine = found.pop(parent)
    assert [seq for seq, _, _ in mine] == list(range(1, len(mine) + 1))
    lines = [fields[5] for _, kind, fields in mine if kind == Kind.LOG]
    for name in ("a", "b"):
        assert [line for line in lines if line.startswith(name)] == [
            f"{name} {number}" for number in range(int(counts[name]))
        ]
    assert len(lines) == sum(map(int, counts.values()))
    assert len(found) == 8 * rounds
    goodbyes = 0
    for folder, theirs in found.items():
        hello = hellos[folder]
        assert hello.parent == hellos[parent].channel
        goodbyes += theirs[-1][1] == Kind.CLOSE
        assert [fields[5] for _, kind, fields in theirs if kind == Kind.LOG] == [
            f"child {hello.pid} {number}" for number in range(10)
        ]
    assert goodbyes == 4 * rounds


def test_a_fork_from_a_thread_while_others_log(script, every_spool):
    status, _, err = script(
        begun("""
    mon.capture_logging()
    import logging
    log, stop = logging.getLogger("x"), threading.Event()

    def chatter():
        while not stop.is_set():
            log.info("parent")
            time.sleep(0.0002)

    def forks():
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                log.info("child")
                rankside.current().metrics({"a": 1}, step=1)
                os._exit(0)
            os.waitpid(pid, 0)

    talkers = [threading.Thread(target=chatter) for _ in range(2)]
    forker = threading.Thread(target=forks)
    for thread in (*talkers, forker): thread.start()
    forker.join()
    stop.set()
    for thread in talkers: thread.join()
        """)
    ).end(60)
    assert (status, err) == (0, "")
    found = every_spool().values()
    children = [each for each in found if each[0][2][5:] == ["child"]]
    assert len(found) == 21
    assert [[kind for _, kind, _ in each] for each in children] == [[Kind.LOG, Kind.METRICS]] * 20


def test_forks_while_an_agent_is_spoken_to(script, fake_agent):
    agent = fake_agent()
    process = script("""
        import os, time
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=20)
        for number in range(3000):
            mon.log(f"parent {number}" + "." * 2000)
            if number % 150 == 75:
                pid = os.fork()
                if pid == 0:
                    mon.log(f"child {os.getpid()}")
                    if number % 300 == 75:
                        mon.close()
                    break
        if os.getpid() == mon._hello.pid and mon._hello.parent is None:
            while True:
                try: os.wait()
                except ChildProcessError: break
        """)
    agent.serve(lambda: process.process.poll() is not None, "the end", 60)
    status, _, err = process.end()
    assert (status, err) == (0, "")
    hellos = {hello["channel"]: hello for hello in agent.hellos}
    (parent,) = [channel for channel, hello in hellos.items() if hello["parent"] is None]
    lines = [text.split(".")[0] for text in agent.logs(parent)]
    assert lines == [f"parent {number}" for number in range(3000)]
    children = [hello for hello in hellos.values() if hello["parent"]]
    assert len(children) == 20
    for hello in children:
        assert hello["parent"] == parent
        assert agent.logs(hello["channel"]) == [f"child {hello['pid']}"]
        assert agent.records(hello["channel"])[-1][1] == Kind.CLOSE


def test_a_child_that_never_calls_leaves_no_trace(run, every_spool, here):
    run(begun("mon.log('x')\nif os.fork() == 0: sys.exit(0)\nos.wait()"))
    assert len(every_spool()) == 1


def test_a_grandchild_names_the_first_of_the_line(run, every_spool):
    run(
        begun("""
    mon.log("1")
    if os.fork() == 0:
        mon.log("2")
        if os.fork() == 0:
            mon.log("3")
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
        """)
    )
    hellos = [Hello.unpacked(wire.unpack(Leftover(folder).hello())) for folder in every_spool()]
    (root,) = [hello.channel for hello in hellos if hello.parent is None]
    assert [hello.parent for hello in hellos if hello.parent] == [root, root]


def test_many_threads_of_a_child_open_one_channel(run, every_spool):
    run(
        begun("""
    if os.fork() == 0:
        gate = threading.Barrier(8)
        def work(): gate.wait(); mon.log("x")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0)
    os.wait()
        """)
    )
    assert sorted(len(found) for found in every_spool().values()) == [1, 8]


def test_a_fork_in_the_middle_of_a_call_writes_nothing_into_the_parents_spool(run, every_spool):
    """A value's `.item()` forks: the child returns into a call that began in its parent."""
    _, err = run(
        begun("""
    class Forks:
        def item(self):
            self.pid = os.fork()
            return 1.0
    value = Forks()
    mon.metrics({"a": value}, step=1)
    if value.pid == 0:
        mon.log("child")
        os._exit(0)
    os.waitpid(value.pid, 0)
    mon.log("parent")
        """)
    )
    kinds = sorted([kind.name for _, kind, _ in found] for found in every_spool().values())
    assert kinds == [["METRICS", "LOG"], ["METRICS", "LOG", "CLOSE"]]
    assert err == ""


def test_children_of_multiprocessing(run, every_spool):
    out, _ = run("""
        import multiprocessing, sys
        import rankside

        def work(how):
            rankside.current().log(f"from {how}")
            print(how, type(rankside.current()).__name__, flush=True)

        if __name__ == "__main__":
            mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0, spool_bytes=3 << 20)
            for how in ("fork", "spawn"):
                child = multiprocessing.get_context(how).Process(target=work, args=(how,))
                child.start()
                child.join(30)
                assert child.exitcode == 0
        """)
    assert out.splitlines() == ["fork Monitor", "spawn NoMonitor"]
    texts = [fields[5] for found in every_spool().values() for _, kind, fields in found if kind == Kind.LOG]
    assert texts == ["from fork"]


def test_a_fork_while_another_thread_closes_touches_nothing_of_the_parents(run, every_spool):
    run("""
        import os, threading, time
        import rankside
        mon = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=1, spool_bytes=3 << 20)
        mon.log("parent")
        closer = threading.Thread(target=mon.close)
        closer.start()
        while not mon._closed: time.sleep(0.001)
        time.sleep(0.05)
        if os.fork() == 0:
            mon.log("child")
            mon.metrics({"a": 1})
            os._exit(0)
        os.wait()
        closer.join()
        """)
    ((_, found),) = every_spool().items()
    assert [kind for _, kind, _ in found] == [Kind.LOG, Kind.CLOSE]


def test_who_leaves_without_having_met_an_agent_says_where_the_records_wait(start, here, capfd):
    mon = start(flush_seconds=0.2)
    mon.log("one")
    mon.close()
    (told,) = capfd.readouterr().err.splitlines()
    assert told.startswith(f"rankside: no agent has answered on ipc://{here}/a.sock; 2 records wait in ")
    assert told.endswith("for the next one: rankside agent")


def test_secrets_in_an_event_are_masked(start, records, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "plain-5t6y7u8i")
    mon = start()
    mon.event("login", api_key="abc", how="with plain-5t6y7u8i", url="https://bob:pw@host/", step=3)
    (event,) = records(Kind.EVENT)
    text = str(event)
    assert not [each for each in ("abc", "plain-5t6y7u8i", "bob:pw") if each in text]
    assert event[-1]["step"] == 3


FIELDS = {"self": 1, "name": "last.pt", "message": "m", "values": 2, "path": "/x"}


@pytest.mark.parametrize("watched", [True, False])
def test_fields_may_have_any_name(start, records, texts, watched):
    mon = start() if watched else rankside.NoMonitor()
    mon.event("checkpoint", **FIELDS)
    mon.params({"lr": 1}, **FIELDS)
    mon.log("said", **FIELDS)
    mon.throughput(step=1, **FIELDS)
    mon.event(name="by keyword")
    mon.set_module(name="sft")
    mon.log(message="by keyword")
    if watched:
        assert [(fields[1], fields[2]) for fields in records(Kind.EVENT)] == [
            ("checkpoint", FIELDS),
            ("by keyword", {}),
        ]
        assert records(Kind.PARAMS)[0][1] == {"lr": 1, **FIELDS}
        assert texts() == ["said self=1 name=last.pt message=m values=2 path=/x", "by keyword"]
        assert records(Kind.MODULE)[0][1] == "sft"


@pytest.mark.parametrize(("given", "taken"), [("12", 12), (12.0, 12), (-3, -3), (None, None)])
def test_a_step_that_is_a_whole_number_is_taken_as_one(start, records, texts, given, taken):
    start().metrics({"loss": 1.0}, step=given)
    assert records(Kind.METRICS)[0][1] == taken
    assert texts() == []


@pytest.mark.parametrize("given", [3.7, "x", float("nan"), [1, 2], object()])
def test_a_step_that_is_none_is_told_once(start, texts, given):
    mon = start()
    mon.metrics({"loss": 1.0}, step=given)
    mon.throughput(step=given, elapsed_s=1.0)
    (told,) = texts()
    assert "no whole number; what comes with such a step is not drawn" in told


def test_an_artifact_without_a_path_is_refused_and_bytes_are_one(start, records, texts):
    mon = start()
    mon.artifact("")
    mon.artifact(b"/tmp/x")
    assert [fields[1] for fields in records(Kind.ARTIFACT)] == ["/tmp/x"]
    assert "artifact(): ValueError: an empty path" in texts()[0]


def test_a_monitor_in_a_copied_or_pickled_object_is_the_one_of_the_process(start):
    mon = start()
    assert copy.deepcopy({"mon": mon})["mon"] is mon
    assert copy.copy(mon) is mon
    assert pickle.loads(pickle.dumps(mon)) is rankside.current()
    assert pickle.loads(pickle.dumps(rankside.NoMonitor())) is rankside.current()


def test_a_record_for_which_there_was_no_memory_is_counted_and_announced(start, records):
    mon = start()

    class Greedy:
        def __str__(self):
            raise MemoryError

    for _ in range(3):
        mon.log(Greedy())
    mon.event(Greedy())
    mon.close()
    told = [counts for _, counts in records(Kind.DROPPED)]
    assert sum(counts.get("log", 0) for counts in told) == 3
    assert sum(counts.get("event", 0) for counts in told) == 1


def test_leaving_without_memory_raises_nothing(start, monkeypatch):
    mon = start()

    def refuse(_body):
        raise MemoryError

    monkeypatch.setattr(mon, "_pack", refuse)
    mon.close()


def test_a_closed_monitor_leaves_no_socket_to_the_collector(script, here):
    given = f"exp_root={str(here / 'exp')!r}, rank=0, world_size=1, flush_seconds=0.2"
    body = f"import rankside\nrankside.init({given}).close()"
    status, _, err = script(body, PYTHONWARNINGS="error::ResourceWarning", PYTHONDEVMODE="1").end()
    assert status == 0
    assert "ResourceWarning" not in err


def test_an_endpoint_that_no_rank_can_connect_to_is_refused(start):
    with pytest.raises(ConfigError, match=r"tcp://\*:5: no rank can connect there; choices: auto"):
        start(endpoint="tcp://*:5")


def test_the_interpreters_exit_is_its_own_again_after_the_last_monitor(start):
    before = sys.exit
    mon, other = start(), start(rank=1, world_size=2)
    mon.close()
    with pytest.raises(SystemExit) as ended:
        sys.exit("bad")
    assert ended.value.args == ("bad",)
    other.close()
    assert sys.exit is before


def test_a_word_for_disabling_that_is_none_is_told_once(start, monkeypatch, capfd):
    monkeypatch.setattr(no_monitor, "_warned", set())
    monkeypatch.setenv("RANKSIDE_DISABLE", "maybe")
    assert isinstance(start(), NoMonitor)
    assert isinstance(start(), NoMonitor)
    assert capfd.readouterr().err.count("RANKSIDE_DISABLE: 'maybe' counts as 1") == 1


def test_metrics_at_the_limit_of_recursion_are_there_or_counted(start, records):
    mon, returned = start(), 0

    def deeper(step):
        nonlocal returned
        mon.metrics({"loss": 1.0}, step=step)
        returned += 1
        deeper(step + 1)

    with pytest.raises(RecursionError):
        deeper(0)
    mon.close()
    lost = sum(counts.get("metrics", 0) for _, counts in records(Kind.DROPPED))
    assert len(records(Kind.METRICS)) + lost == returned
