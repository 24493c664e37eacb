"""`init` called twice in one process: the same monitor for the same run and rank, another for others."""

from __future__ import annotations

import pytest

import rankside
from rankside.wire import Kind


def test_the_same_run_and_rank_get_the_monitor_that_is_open(start, every_spool, texts, capfd):
    first = start()
    first.log("first")
    second = start()
    second.log("second")
    assert second is first is rankside.current()
    assert texts(first) == ["first", "second"]
    assert len(every_spool()) == 1
    assert capfd.readouterr().err == ""


def test_parameters_that_differ_are_told_and_the_first_ones_stay(start, texts, capfd):
    mon = start(log_interval=5)
    for _ in range(2):
        assert start(log_interval=7, wandb_project="p") is mon
    assert mon.config["log_interval"] == 5
    (told,) = texts(mon)
    assert told.endswith("the first log_interval, wandb_project stay")
    assert told in capfd.readouterr().err


def test_the_module_and_its_levels_change_as_set_module_would(start, records):
    mon = start()
    assert start(module_name="sft", file_sink_level="WARNING") is mon
    assert [fields[1:] for fields in records(Kind.MODULE, mon)] == [["sft", 30]]


def test_what_is_not_given_again_stays(start, records, texts):
    mon = start(module_name="sft", file_sink_level="WARNING", log_interval=5)
    assert start() is mon
    assert start(file_sink_level="WARNING") is mon
    assert records(Kind.MODULE, mon) == texts(mon) == []
    assert (mon.config["file_sink_level"], mon.config["log_interval"]) == ("WARNING", 5)


def test_levels_alone_change_within_the_module(start, records):
    mon = start(module_name="sft")
    start(sink_level="ERROR")
    assert [fields[1:] for fields in records(Kind.MODULE, mon)] == [["sft", 40]]


def test_a_bad_parameter_is_refused_the_second_time_as_the_first(start):
    mon = start()
    with pytest.raises(rankside.ConfigError, match="log_interval"):
        start(log_interval="x")
    assert rankside.current() is mon


def test_another_run_or_rank_or_world_is_another_monitor(start, here):
    mon = start(world_size=2)
    others = [start(rank=1, world_size=2), start(world_size=3), start(world_size=2, role="master")]
    others.append(start(world_size=2, exp_root=here / "other"))
    assert len({mon, *others}) == 5
    assert start(world_size=2) is mon is rankside.current()


def test_after_its_end_a_run_is_begun_anew(start):
    mon = start()
    mon.close()
    again = start()
    assert again is not mon
    again.log("heard")


def test_a_forked_child_that_calls_init_is_a_process_of_its_own(run):
    out, _ = run(
        """
        import os, rankside
        first = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
        pid = os.fork()
        if not pid:
            again = rankside.init(exp_root="exp", rank=0, world_size=1, flush_seconds=0)
            print(again is first, again._hello.parent, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        """
    )
    assert out.split() == ["False", "None"]
