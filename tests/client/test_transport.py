"""The thread that carries the spool, against an agent in the test's hands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import zmq

from rankside import endpoint, transport, wire
from rankside.identity import Hello
from rankside.wire import Kind, Message


@pytest.fixture
def quick(monkeypatch):
    """Beats and patience of tenths of a second, where the test is about them."""
    monkeypatch.setattr(transport, "BEAT", 0.05)
    monkeypatch.setattr(transport, "HELLO_AGAIN", 0.1)
    monkeypatch.setattr(transport, "_TROUBLE", 0.05)


def lines(mon: Any, count: int, size: int = 0, start: int = 0) -> None:
    for number in range(start, start + count):
        mon.log(f"line {number}" + "." * size)


# -- one conversation ----------------------------------------------------------------------------------


def test_it_says_hello_and_sends_nothing_before_it_is_welcome(start, fake_agent):
    agent, mon = fake_agent(), start(exp_name="llama")
    lines(mon, 3)
    peer, said = agent.hello()
    assert (said["protocol"], said["first"]) == (wire.PROTOCOL, 1)
    assert Hello.unpacked(said) == mon._hello
    agent.nothing(0.3)
    agent.welcome(peer)
    assert agent.batch() == (peer, 1, 3)


def test_an_acknowledged_spool_is_freed_and_the_rest_follows(start, fake_agent, until):
    agent, mon = fake_agent(), start(spool_bytes=8 << 20)
    agent.serve(lambda: agent.hellos)
    number = 0
    for _ in range(20):  # five times what the spool holds
        lines(mon, 20, size=100_000, start=number)
        number += 20
        agent.serve(lambda so_far=number: agent.held and len(agent.records()) == so_far, "all so far")
        until(lambda: mon._spool.used() < 2 << 20, "freed spool")
    assert [text.split(".")[0] for text in agent.logs()] == [f"line {each}" for each in range(number)]
    assert agent.twice == 0
    assert mon._spool.dropped() == 0


def test_a_burst_goes_in_few_messages_and_a_single_record_needs_no_other(start, fake_agent):
    agent, mon = fake_agent(), start()
    mon.log("single")
    agent.serve(lambda: agent.held and agent.records(), "a single record")
    agent.batches.clear()
    lines(mon, 500)
    agent.serve(lambda: len(agent.records()) == 501, "the burst")
    assert len(agent.batches) < 10


def test_no_message_is_longer_than_an_agent_takes(start, fake_agent):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    for size in (10, 100_000, 5 << 20, 10, 300_000):
        mon.log("x" * size)
    agent.welcome(peer)
    seen = 0
    while seen < 5:
        _, payload = agent.expect(Message.BATCH)
        seen = wire.batch(payload)[-1].seq
        assert len(payload) < wire.MAX_MESSAGE
        assert len(payload) <= wire.MAX_BATCH or len(wire.batch(payload)) == 1


def test_without_acknowledgements_no_more_than_the_window_is_sent(start, fake_agent):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    lines(mon, 3 * transport.WINDOW, size=wire.MAX_BATCH)
    agent.welcome(peer)
    sent = [agent.batch()[1:] for _ in range(transport.WINDOW)]
    assert sent == [(number, number) for number in range(1, transport.WINDOW + 1)]
    agent.nothing(0.3)
    agent.ack(peer, 2)
    assert [agent.batch()[1] for _ in range(2)] == [transport.WINDOW + 1, transport.WINDOW + 2]
    agent.nothing(0.2)


def test_an_idle_rank_gives_signs_of_life(start, fake_agent, quick):
    agent, mon = fake_agent(), start()
    lines(mon, 2)
    agent.serve(lambda: len(agent.beats) > 3, "heartbeats")
    assert agent.beats[-1] == {"dropped": 0, "used": mon._spool.used(), "last": 2}


def test_leaving_delivers_the_goodbye_and_removes_the_spool(start, fake_agent):
    agent, mon = fake_agent(), start(flush_seconds=20)
    lines(mon, 5)
    folder = mon._spool.folder
    closing = threading.Thread(target=mon.close)
    closing.start()
    agent.serve(lambda: not closing.is_alive(), "the end")
    assert [kind for _, kind, _ in agent.records()] == [Kind.LOG] * 5 + [Kind.CLOSE]
    assert not folder.exists()


def test_leaving_an_agent_that_does_not_answer_keeps_the_spool(start, fake_agent, records):
    agent, mon = fake_agent(), start(flush_seconds=0.3)
    lines(mon, 5)
    peer, _ = agent.hello()
    agent.welcome(peer)
    agent.batch()
    mon.close()
    assert len(records()) == 6


def test_a_connection_over_tcp(start, here):
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        router = context.socket(zmq.ROUTER)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        start(endpoint=f"tcp://127.0.0.1:{port}")
        assert router.poll(10_000)
        assert router.recv_multipart()[1] == Message.HELLO
    finally:
        context.destroy(linger=0)


def test_its_thread_has_a_name_and_ends_with_the_process(start):
    start()
    (thread,) = [each for each in threading.enumerate() if each.name == "rankside-transport"]
    assert thread.daemon


# -- sending again -------------------------------------------------------------------------------------


def test_a_welcome_that_lags_behind_makes_it_go_back(start, fake_agent):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    lines(mon, 6, size=wire.MAX_BATCH)
    agent.welcome(peer)
    assert [agent.batch()[1] for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    agent.ack(peer, 2)
    agent.welcome(peer, 2)  # the third was lost: each behind it says so
    agent.welcome(peer, 2)
    agent.welcome(peer, 2)
    assert agent.batch()[1:] == (3, 3)
    agent.nothing(0.3)  # one, until it is taken
    agent.ack(peer, 3)
    assert [agent.batch()[1] for _ in range(3)] == [4, 5, 6]


def test_an_agent_whose_disk_is_full_is_not_stormed(start, fake_agent):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    agent.welcome(peer)
    lines(mon, 40, size=wire.MAX_BATCH)
    batches, deadline = 0, time.monotonic() + 1.5
    while time.monotonic() < deadline:
        if agent.socket.poll(20):
            peer, kind, _ = agent.socket.recv_multipart()
            if kind == Message.BATCH:
                batches += 1
                agent.welcome(peer, 0)
    assert transport.WINDOW < batches < transport.WINDOW + 30
    agent.serve(lambda: agent.held and len(agent.records()) == 40, "all, once there is room")
    assert agent.twice == 0


def test_a_batch_that_an_answering_agent_never_acknowledges_is_sent_again(
    start, fake_agent, quick, monkeypatch
):
    monkeypatch.setattr(transport, "STALLED", 0.2)
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    agent.welcome(peer)
    mon.log("the last for long")
    assert agent.batch()[1:] == (1, 1)
    deadline = time.monotonic() + 10
    while True:  # it lives: heartbeats are answered
        assert time.monotonic() < deadline
        peer, kind, _ = agent.take()
        if kind == Message.BATCH:
            break
        agent.ack(peer, 0)
    agent.ack(peer, 1)
    agent.nothing(0.5)


def test_a_frozen_agent_gets_nothing_twice(start, fake_agent, quick, monkeypatch):
    monkeypatch.setattr(transport, "STALLED", 0.1)
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    agent.welcome(peer)
    mon.log("x")
    agent.batch()
    agent.nothing(0.8)


def test_who_are_you_is_answered_with_where_to_begin(start, fake_agent):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    agent.welcome(peer)
    lines(mon, 3)
    agent.batches_to(3)
    agent.ack(peer, 3)
    lines(mon, 2)
    agent.batches_to(5)
    agent.tell(peer, Message.WHO)
    _, said = agent.hello()
    assert said["first"] == 4
    agent.nothing(0.2)
    agent.welcome(peer, 3)
    assert agent.batches_to(5) == [4, 5]


def test_an_agent_that_took_the_state_over_goes_on_and_nothing_is_lost_or_doubled(start, fake_agent):
    first, mon = fake_agent(), start()
    lines(mon, 10)
    first.serve(lambda: first.held and len(first.records()) == 10)
    lines(mon, 10, start=10)
    first.expect(Message.BATCH)  # taken off the socket, and not journaled: it dies here
    first.close()
    second = fake_agent()
    second.held = first.held
    lines(mon, 10, start=20)
    second.serve(lambda: len(second.records()) == 30, "all")
    assert second.logs() == [f"line {number}" for number in range(30)]
    assert second.twice == 0


def test_an_agent_that_knows_nothing_begins_behind_what_another_took(start, fake_agent, until):
    first, mon = fake_agent(), start()
    lines(mon, 10)
    first.serve(lambda: first.held and len(first.records()) == 10)
    until(lambda: mon._transport._acked == 10, "the acknowledgement")
    first.close()
    second = fake_agent()
    lines(mon, 5, start=10)
    second.serve(lambda: second.held and len(second.records()) == 5, "the rest")
    assert second.hellos[0]["first"] == 11
    assert second.logs() == [f"line {number}" for number in range(10, 15)]


def test_an_acknowledgement_that_is_late_or_repeated_does_no_harm(start, fake_agent):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    agent.welcome(peer)
    lines(mon, 5)
    assert agent.batches_to(5) == [1, 2, 3, 4, 5]
    for last in (5, 5, 3, 0, 1):
        agent.ack(peer, last)
    lines(mon, 2)
    assert agent.batches_to(7) == [6, 7]


def test_an_acknowledgement_of_what_never_was_frees_no_more_than_there_is(start, fake_agent, until):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    agent.welcome(peer, 10**12)
    lines(mon, 3)
    agent.serve(lambda: agent.beats, "a heartbeat")
    assert mon._transport._acked <= 3


# -- finding one ---------------------------------------------------------------------------------------


def test_an_agent_that_comes_later_gets_everything(start, fake_agent, until):
    mon = start()
    lines(mon, 10)
    until(lambda: mon._transport._asked > 0, "an attempt")
    agent = fake_agent()
    lines(mon, 10, start=10)
    agent.serve(lambda: agent.held and len(agent.records()) == 20)
    assert agent.logs() == [f"line {number}" for number in range(20)]


def test_a_socket_file_that_is_removed_ends_no_conversation(start, fake_agent):
    agent, mon = fake_agent(), start()
    lines(mon, 3)
    agent.serve(lambda: agent.held and len(agent.records()) == 3)
    agent.path.unlink()
    lines(mon, 3, start=3)
    agent.serve(lambda: len(agent.records()) == 6)
    agent.close()
    other = fake_agent()
    other.held = agent.held
    lines(mon, 3, start=6)
    other.serve(lambda: len(other.records()) == 9)
    assert other.logs() == [f"line {number}" for number in range(9)]


def test_who_never_answers_is_asked_again_and_then_looked_for_anew(start, fake_agent, quick, monkeypatch):
    monkeypatch.setattr(transport, "LOST", 0.5)
    agent = fake_agent()
    start()
    peers = [agent.hello()[0] for _ in range(2)]
    assert peers[0] == peers[1]
    while peers[-1] == peers[0]:
        peers.append(agent.hello()[0])
    assert len(peers) < 15


def test_a_refusal_is_told_once_and_asked_about_again(start, fake_agent, quick, capfd):
    agent = fake_agent()
    start()
    for _ in range(3):
        peer, _ = agent.hello()
        agent.tell(peer, Message.REFUSE, wire.pack({"reason": "protocol 1, update"}))
    peer, _ = agent.hello()
    assert capfd.readouterr().err == "rankside: the agent refuses this process: protocol 1, update\n"
    agent.welcome(peer)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Message.WELCOME, b""),
        (Message.WELCOME, wire.pack([1])),
        (Message.WELCOME, wire.pack({"last": "x", "agent": 1})),
        (Message.WELCOME, wire.pack({"last": -1, "agent": "a"})),
        (Message.ACK, b"short"),
        (Message.REFUSE, b"\xc1"),
        (Message.REFUSE, wire.pack(7)),
        (Message.REPLY, b"whatever"),
        (b"", b""),
        (b"unknown", b"\0" * 1000),
    ],
)
def test_nonsense_from_an_agent_does_not_end_the_thread(start, fake_agent, quick, kind, payload):
    agent, mon = fake_agent(), start()
    peer, _ = agent.hello()
    agent.tell(peer, kind, payload)
    agent.socket.send_multipart([peer, kind])
    lines(mon, 3)
    agent.serve(lambda: agent.held and len(agent.records()) == 3, "records all the same")
    assert agent.logs() == ["line 0", "line 1", "line 2"]


def test_an_endpoint_that_cannot_be_is_told_once_and_harms_nobody(start, quick, capfd, until, texts):
    mon = start(endpoint="tcp://no such host:1")
    mon.log("x")
    told: list[str] = []
    until(lambda: told.extend(capfd.readouterr().err.splitlines()) or told, "a warning")
    time.sleep(0.3)  # further attempts
    told += capfd.readouterr().err.splitlines()
    assert len(told) == 1
    assert "transport: ZMQError" in told[0]
    mon.close()
    assert texts() == ["x"]


# -- the agent that is started -------------------------------------------------------------------------


@pytest.fixture
def no_agent(here, monkeypatch) -> list[float]:
    """`auto` without any agent that could be started; the times of the attempts."""
    attempts: list[float] = []

    def fail(*_: Any, **__: Any) -> str:
        attempts.append(time.monotonic())
        return "no agent can be started"

    monkeypatch.setattr(endpoint, "default_endpoint", lambda: f"ipc://{here}/a.sock")
    monkeypatch.setattr(endpoint, "SERVICE_SOCKET", str(here / "service.sock"))
    monkeypatch.setattr(endpoint, "start_agent", fail)
    return attempts


def test_starting_an_agent_in_vain_is_told_once_and_tried_ever_more_rarely(
    start, no_agent, quick, until, capfd
):
    start(endpoint="auto")
    until(lambda: len(no_agent) >= 5, "attempts")
    pauses = [later - earlier for earlier, later in pairwise(no_agent)]
    assert pauses[3] > 2 * pauses[0]
    assert capfd.readouterr().err == "rankside: no agent can be started\n"


def test_an_agent_that_somebody_starts_meanwhile_is_found(start, no_agent, quick, until, fake_agent):
    mon = start(endpoint="auto")
    mon.log("x")
    until(lambda: no_agent, "an attempt")
    agent = fake_agent()
    agent.serve(lambda: agent.held and agent.logs() == ["x"], "the record")


def test_leaving_does_not_wait_for_an_agent_that_is_slow_to_start(start, no_agent, monkeypatch, until):
    begun = threading.Event()

    def slow(_target: str, give_up: Callable[[], bool]) -> str | None:
        begun.set()
        while not give_up():
            time.sleep(0.01)
        return None

    monkeypatch.setattr(endpoint, "start_agent", slow)
    mon = start(endpoint="auto", flush_seconds=0.1)
    assert begun.wait(10)
    began = time.monotonic()
    mon.close()
    assert time.monotonic() - began < 1


# -- drops ---------------------------------------------------------------------------------------------


def test_what_was_dropped_while_an_agent_was_frozen_is_told_when_it_goes_on(start, fake_agent):
    agent, mon = fake_agent(), start(spool_bytes=3 << 20)
    mon.log("before")
    agent.serve(lambda: agent.held and agent.records(), "the first")
    lines(mon, 100, size=100_000)  # nobody answers
    dropped = mon._spool.dropped()
    for step in range(20):
        mon.metrics({"loss": 1.5}, step=step)

    def told() -> int:
        return sum(fields[1]["log"] for _, kind, fields in agent.records() if kind == Kind.DROPPED)

    agent.serve(lambda: told() == dropped > 0, "the announcement")
    assert len(agent.logs()) == 101 - dropped
    assert [fields[1] for _, kind, fields in agent.records() if kind == Kind.METRICS] == list(range(20))


def test_what_was_dropped_and_never_told_is_told_before_the_goodbye(start, records):
    mon = start(spool_bytes=3 << 20)
    lines(mon, 100, size=100_000)
    dropped = mon._spool.dropped()
    mon.close()
    *_, told, goodbye = records()
    assert told[1] == {"log": dropped}
    assert goodbye[1] == "finished"
