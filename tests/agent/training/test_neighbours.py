"""The fullest GPU of a run that spans nodes, without anybody asking anybody."""

from __future__ import annotations

import json

import pytest

from rankside.parameters import PARAMETERS
from rankside.wire import Kind
from rankside_agent.gauges import Seen
from rankside_agent.gpu.card import Card, Pool, Reading
from rankside_agent.journal import EntryType
from rankside_agent.training.memory import GB, Memory
from rankside_agent.training.neighbours import Neighbours

ON = {name: parameter.default for name, parameter in PARAMETERS.items()}
ON |= {"log_interval": 1, "log_throughput": True, "use_rocm_mem_info": True}


@pytest.fixture
def neighbours(tmp_path):
    """Those of a node; the attempt's folder is there."""
    (tmp_path / "snapshot" / "attempt-1").mkdir(parents=True)
    made = []

    def make():
        made.append(Neighbours(tmp_path, (), "run"))
        return made[-1]

    yield make
    for each in made:
        each.close()


def full(used, rank):
    return Memory("rocm", fullest=used, fullest_total=192 * GB, fullest_rank=rank)


def test_the_fullest_of_the_other_nodes_is_found_and_one_s_own_is_not(neighbours, until):
    here, there, third = neighbours(), neighbours(), neighbours()
    assert here.fullest(1, "a") is None
    here.tell(1, "a", full(190 * GB, "15"))
    there.tell(1, "b", full(50 * GB, "3"))
    third.tell(1, "c", full(70 * GB, "9"))
    until(lambda: here.fullest(1, "a") == full(70 * GB, "9"), "the others are seen")
    assert here.fullest(2, "a") is None  # of another attempt


@pytest.mark.parametrize(
    "odd", ["", "[]", "{}", '{"used": "x"}', '{"used": 1e999, "total": 1, "rank": 1, "kind": ""}']
)
def test_a_file_that_holds_anything_else_is_passed_over(neighbours, until, tmp_path, odd):
    folder = tmp_path / "snapshot" / "attempt-1"
    (folder / "gpu-memory-odd.json").write_text(odd)
    there, here = neighbours(), neighbours()
    there.tell(1, "b", full(50 * GB, "3"))
    until(lambda: here.fullest(1, "a") == full(50 * GB, "3"), "the good one is seen")


def test_without_a_folder_nothing_is_made(neighbours, tmp_path):
    here = neighbours()
    here.tell(7, "a", full(GB, "1"))
    here.close()
    here._thread.join(10)
    assert not (tmp_path / "snapshot" / "attempt-7").exists()


def test_what_was_told_last_is_written_at_the_end(neighbours, tmp_path):
    here = neighbours()
    for used in range(1, 20):
        here.tell(1, "a", full(used, "1"))
    here.close()
    here._thread.join(10)
    assert json.loads((tmp_path / "snapshot/attempt-1/gpu-memory-a.json").read_text())["used"] == 19


def test_two_nodes_one_run(house, hello, sealed, until, tmp_path):
    other = type(house)(tmp_path / "other")
    nodes = [(other, 0, "there"), (house, 1, "here")]
    opened = []
    for node, rank, host in nodes:
        mine = hello(rank, world_size=2, host=host, config=ON, channel=f"{host}-{rank}-a")
        opened.append((node, *node.open(mine)))
    gpus = [Seen(Reading("sysfs", 1.7e9, (Card(vram=Pool(used * GB, 192 * GB)),))) for used in (150, 20)]

    def step(number):
        for (node, run, channel), seen in zip(opened, gpus, strict=True):
            run.accept(channel, sealed(number, [(Kind.THROUGHPUT, (1.7e9, number, {"elapsed_s": 1.0}))]))
            node.polls[-1](seen)
            node.tick()

    def fullest():
        entries = [e.value() for e in house.entries(opened[1][1], "points") if e.type == EntryType.FIGURES]
        return entries[-1]["values"].get("rocm_max_used_mem(GB)")

    numbers = iter(range(1, 1000))
    until(lambda: step(next(numbers)) or fullest() == 150.0, "the other node's is in the sample")
    for node, run, channel in opened:
        run.end(channel, "clean")
        node.finish()
    log = (tmp_path / "exp/logs/pretrain/rank-1/info.log").read_text()
    assert " rank-? rocm max mem usage/usage_ratio: 150.00GB/78.12% |" in log
    other.kill()
