"""What is bound to a record goes with it as plain values; what stands in every line does not."""

from __future__ import annotations

import logging

from loguru import logger

from rankside import testing
from rankside.wire import Kind

PRIMUS = {
    "user": "u",
    "team": "t",
    "exp": "e",
    "module_name": "m",
    "node_ip": "i",
    "rank": 0,
    "world_size": 1,
}


def extras_of(seen: testing.Recording) -> list[object]:
    return [fields[6:] for fields in seen._of(Kind.LOG)]


def test_values_bound_to_loguru_and_those_of_one_call():
    with testing.recording() as seen:
        seen.monitor.capture_logging()
        logger.bind(shard=7, layer={"a": [1, 2]}).info("read {}", 3, step=5)
        logger.info("alone")

    assert seen.texts == ["read 3", "alone"]
    assert extras_of(seen) == [[{"shard": 7, "layer": {"a": [1, 2]}, "step": 5}], []]


def test_what_primus_binds_is_in_the_line_already():
    with testing.recording() as seen:
        seen.monitor.capture_logging()
        logger.bind(**PRIMUS).info("said")
        logger.bind(**PRIMUS, shard=7).info("said")

    assert extras_of(seen) == [[], [{"shard": 7}]]


def test_the_extra_of_stdlib():
    with testing.recording() as seen:
        seen.monitor.capture_logging()
        logging.getLogger("a").warning("plain")
        logging.getLogger("a").warning("said", extra={"shard": 7, "rank": 3})

    assert extras_of(seen) == [[], [{"shard": 7}]]


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_odd_values_and_too_many_of_them_cost_no_line():
    with testing.recording() as seen:
        seen.monitor.capture_logging()
        logger.bind(odd=Odd(), function=print).info("one")
        logger.bind(**{f"name {number}": number for number in range(1000)}).info("two")
        logger.bind(big="x" * (2 << 20)).info("three")

    assert seen.texts == ["one", "two", "three"]
    assert [len(found[0]) if found else 0 for found in extras_of(seen)][:2] == [2, 50]


class Chatty:
    def __repr__(self) -> str:
        logging.getLogger("a").warning("in repr", extra={"chatty": self})
        return "chatty"


def test_a_repr_that_logs_with_itself_comes_to_an_end():
    with testing.recording() as seen:
        seen.monitor.capture_logging()
        logging.getLogger("a").warning("said", extra={"chatty": Chatty()})

    assert seen.texts == ["in repr", "said"]
    assert extras_of(seen)[1] == [{"chatty": "chatty"}]


def test_a_long_list_beside_a_line_is_cut():
    with testing.recording() as seen:
        seen.monitor.capture_logging()
        logging.getLogger("a").warning("said", extra={"ids": list(range(1_000_000)), "shard": 7})

    ((extras,),) = extras_of(seen)
    assert extras["shard"] == 7
    assert len(extras["ids"]) <= 1001
    assert "1000000 items in all" in extras["ids"][-1]
