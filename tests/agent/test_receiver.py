"""The socket against strangers: nothing is believed or built, and a good rank beside them is served."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import socket as sockets
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from rankside import wire
from rankside.identity import Hello
from rankside.wire import Kind, Message
from rankside_agent import receiver as receivers
from rankside_agent.ownership import Endpoint
from rankside_agent.receiver import Receiver

House = Any  # of conftest.py
MakeHello = Callable[..., Hello]
Logged = Callable[..., bytes]
Until = Callable[..., None]


class Peer:
    """One connection."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.socket = door.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(door.target)

    def send(self, *parts: bytes) -> None:
        while not self.socket.poll(0, zmq.POLLOUT):
            self._door.turn()
        self.socket.send_multipart(parts, zmq.NOBLOCK)

    def hello(self, hello: Hello, first: int = 1, **more: Any) -> None:
        self.send(
            Message.HELLO, wire.pack({"protocol": wire.PROTOCOL, "first": first, **hello.packed(), **more})
        )

    def answer(self) -> tuple[bytes, Any]:
        """The next answer; a number where it is an acknowledgement."""
        self._door.until(lambda: self.socket.poll(0), "an answer")
        kind, payload = self.socket.recv_multipart()
        if kind == Message.ACK:
            return kind, wire.SEQ.unpack(payload)[0]
        return kind, wire.unpack(payload) if payload else None


class Door:
    """A receiver on a real socket in a folder of its own, turned by hand."""

    def __init__(self, house: House, place: Path) -> None:
        self.house, self.place = house, place
        self.context: zmq.Context[Any] = zmq.Context()
        self.target = f"ipc://{place}/a.sock"
        self.endpoint = Endpoint(self.context, self.target)
        self.reports: list[str] = []
        self.receiver = Receiver(
            self.endpoint.socket,
            house.registry,
            "this agent",
            lambda command: {"asked": command.get("command")},
            self.reports.append,
        )

    @property
    def counts(self) -> dict[str, int]:
        return self.receiver.counts

    def peer(self) -> Peer:
        return Peer(self)

    def turn(self) -> None:
        self.receiver.receive()
        self.house.registry.settle()

    def until(self, true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 30
        while not true():
            self.turn()
            assert time.monotonic() < deadline, f"waited in vain for {what}; {self.reports}"
            time.sleep(0.001)

    def settle(self) -> None:
        """Until everything that was sent has been looked at, and the receiver still answers."""
        peer = self.peer()
        peer.send(Message.COMMAND, wire.pack({"command": "here?"}))
        assert peer.answer() == (Message.REPLY, {"asked": "here?"})
        peer.socket.close()
        while self.endpoint.socket.poll(30):
            self.turn()

    def quiet(self) -> list[Path]:
        """All files there are, once the writers have nothing to do; the hardware's comes when it is known."""
        for run in self.house.registry.runs.values():
            self.until(lambda run=run: run.writer.caught_up(run.logs.end), "the files have what there is")
        return sorted(path for path in self.house.root.rglob("*") if not path.name.startswith("hardware-"))

    def rank(self, hello: Hello) -> Peer:
        """A good rank that was welcomed."""
        peer = self.peer()
        peer.hello(hello)
        assert peer.answer() == (Message.WELCOME, {"last": 0, "agent": "this agent"})
        return peer


@pytest.fixture
def door(house: House) -> Iterator[Door]:
    place = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    made = Door(house, place)
    yield made
    made.endpoint.close()
    made.context.destroy(linger=0)
    shutil.rmtree(place)


@pytest.fixture
def good(door: Door, hello: MakeHello, logged: Logged) -> Iterator[Peer]:
    """A good rank: whatever a test does beside it, it is served to the end and warned of nothing."""
    peer = door.rank(hello(0, channel="good"))
    peer.send(Message.BATCH, logged(1, "before"))
    assert peer.answer() == (Message.ACK, 1)
    yield peer
    peer.send(Message.BATCH, logged(2, "after"))
    assert peer.answer() == (Message.ACK, 2)
    peer.send(Message.BEAT, wire.pack({"dropped": 0, "used": 100, "last": 2}))
    assert peer.answer() == (Message.ACK, 2)
    run, channel = door.house.registry.find("good")
    assert not channel.ended
    mine = [entry for entry in door.house.entries(run) if entry.channel == channel.index and entry.records()]
    assert [seq for entry in mine for seq, _, _ in entry.frames()] == [1, 2]


# -- what a good rank may do ----------------------------------------------------------------------------


def test_a_rank_is_welcomed_acknowledged_and_told_where_it_is(door: Door, hello: MakeHello, logged: Logged):
    peer = door.rank(hello(0))
    peer.send(Message.BATCH, logged(1, *"abc"))
    assert peer.answer() == (Message.ACK, 3)
    again = door.peer()
    again.hello(hello(0))
    assert again.answer() == (Message.WELCOME, {"last": 3, "agent": "this agent"})


def test_many_batches_taken_at_once_are_acknowledged_once(door: Door, hello: MakeHello, logged: Logged):
    peer = door.rank(hello(0))
    for seq in range(1, 31):
        peer.send(Message.BATCH, logged(seq, "x"))
    time.sleep(0.1)  # not waited for: fewer acknowledgements are as good
    acked = 0
    while acked < 30:
        kind, acked = peer.answer()
        assert kind == Message.ACK
    assert door.counts["batches"] == 30


def test_a_batch_that_comes_too_early_is_answered_with_the_place(
    door: Door, hello: MakeHello, logged: Logged
):
    peer = door.rank(hello(0))
    peer.send(Message.BATCH, logged(5, "e"))
    assert peer.answer() == (Message.WELCOME, {"last": 0, "agent": "this agent"})
    assert door.counts["gaps"] == 1
    peer.send(Message.BATCH, logged(1, *"abcde"))
    assert peer.answer() == (Message.ACK, 5)


def test_repeats_are_acknowledged_and_not_stored_twice(door: Door, hello: MakeHello, logged: Logged):
    peer = door.rank(hello(0))
    for _ in range(3):
        peer.send(Message.BATCH, logged(1, *"abc"))
        assert peer.answer() == (Message.ACK, 3)
    run, _ = door.house.registry.find("here-0-a")
    assert [seq for seq, _ in door.house.sequence(run)] == [1, 2, 3]


def test_who_we_do_not_know_is_asked_who_it_is(door: Door, logged: Logged):
    peer = door.peer()
    for kind, payload in ((Message.BATCH, logged(1, "x")), (Message.BEAT, wire.pack({}))):
        peer.send(kind, payload)
        assert peer.answer() == (Message.WHO, None)
    assert not door.house.registry.runs


def test_after_its_run_was_put_away_a_connection_is_a_strangers(door: Door, hello: MakeHello, logged: Logged):
    peer = door.rank(hello(0))
    peer.send(Message.BATCH, logged(1, "x"))
    assert peer.answer() == (Message.ACK, 1)
    run, channel = door.house.registry.find("here-0-a")
    run.end(channel, "lost")  # it was only stopped for long
    door.house.finish()
    peer.send(Message.BATCH, logged(2, "y"))
    assert peer.answer() == (Message.WHO, None)
    peer.hello(hello(0), first=2)
    assert peer.answer() == (Message.WELCOME, {"last": 1, "agent": "this agent"})
    peer.send(Message.BATCH, logged(2, "y"))
    assert peer.answer() == (Message.ACK, 2)


def test_a_rank_taken_for_lost_lives_again_when_it_says_hello(door: Door, hello: MakeHello):
    door.rank(hello(0))
    run, channel = door.house.registry.find("here-0-a")
    run.end(channel, "lost")
    door.rank(hello(0))
    assert not channel.ended


def test_a_rank_that_no_longer_has_what_our_journal_lost_goes_on_and_the_loss_is_told(
    door: Door, hello: MakeHello, logged: Logged
):
    door.rank(hello(0))
    peer = door.peer()
    peer.hello(hello(0), first=8)
    assert peer.answer() == (Message.WELCOME, {"last": 7, "agent": "this agent"})
    peer.send(Message.BATCH, logged(8, "h"))
    assert peer.answer() == (Message.ACK, 8)
    run, _ = door.house.registry.find("here-0-a")
    notes = [entry.value()[3] for entry in door.house.entries(run) if entry.type == 4]
    assert notes == ["7 records are missing: the journal that held them is gone"]


def test_another_protocol_is_refused_with_both_versions_whatever_else_it_says(door: Door, hello: MakeHello):
    for more in ({"protocol": 99}, {"protocol": None}, {"protocol": 99, "channel": None, "pid": "x"}):
        peer = door.peer()
        peer.hello(hello(0), **more)
        kind, said = peer.answer()
        assert kind == Message.REFUSE
        assert f"this agent speaks {wire.PROTOCOL}" in said["reason"]
    assert not door.house.registry.runs


def test_what_was_refused_is_told_why_each_time(door: Door, hello: MakeHello):
    door.house.registry.refused["here-0-a"] = "not here"
    peer = door.peer()
    peer.hello(hello(0))
    assert peer.answer() == (Message.REFUSE, {"reason": "not here"})


@pytest.mark.parametrize(("root", "why"), [("relative", "is not absolute"), ("/\ud800", "PYTHONUTF8=1")])
def test_a_root_that_can_be_no_path_here_is_refused_with_the_reason(
    door: Door, hello: MakeHello, root: str, why: str
):
    peer = door.peer()
    peer.hello(hello(0, exp_root=root))
    kind, told = peer.answer()
    assert kind == Message.REFUSE
    assert why in told["reason"]


def test_a_full_disk_leaves_the_batch_with_its_rank(
    door: Door, hello: MakeHello, logged: Logged, monkeypatch: pytest.MonkeyPatch
):
    peer = door.rank(hello(0))
    run, _ = door.house.registry.find("here-0-a")

    def full(*_: Any) -> None:
        raise OSError(28, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(run.logs, "batch", full)
        peer.send(Message.BATCH, logged(1, "x"))
        door.settle()
    assert not peer.socket.poll(0)
    assert "ranks keep their records" in door.reports[0]
    peer.send(Message.BATCH, logged(1, "x"))
    assert peer.answer() == (Message.ACK, 1)


# -- strangers ------------------------------------------------------------------------------------------


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def nested(levels: int, opener: bytes) -> bytes:
    return opener * levels + b"\xc0"


GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"\xc1",
    "random": random.Random(1).randbytes(1024),
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "truncated map": wire.pack({"a": list(range(100))})[:-20],
    "trailing bytes": wire.pack({}) + b"x",
    "array 32 of 4 G": b"\xdd\xff\xff\xff\xff",
    "map 32 of 4 G": b"\xdf\xff\xff\xff\xff",
    "bin 32 of 4 G": b"\xc6\xff\xff\xff\xff",
    "string 32 of 2 G": b"\xdb\x7f\xff\xff\xffabc",
    "arrays in arrays": nested(100_000, b"\x91"),
    "maps in maps": nested(100_000, b"\x81\xa1x"),
    "arrays in arrays, whole": nested(800, b"\x91"),
    "a million keys": wire.pack(dict.fromkeys(range(300_000))),
    "key that cannot be one": b"\x81\x90\xc0",
    "extension": b"\xd4\x05\x00",
    "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "list": wire.pack([1, 2]),
    "none": wire.pack(None),
    "huge length in a frame": struct.pack("<IIQB", 2**31, 0, 1, 1) + b"x" * 100,
    "frame of no kind": wire.seal(1, 77, b"x"),
    "frame of no length": wire.HEAD.pack(0, 0, 1, 1) * 50,
    "frame with a wrong sum": wire.seal(1, 1, b"x")[:-1] + b"y",
    "frames out of order": wire.seal(2, 1, b"x") + wire.seal(1, 1, b"x"),
}
KINDS = [Message.HELLO, Message.BATCH, Message.BEAT, Message.COMMAND]


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_counted_and_costs_nobody_else_anything(
    door: Door, good: Peer, hello: MakeHello, name: str
):
    stranger = door.peer()
    known = door.rank(hello(1, channel="known"))
    state = door.quiet()
    for kind in (*KINDS, Message.WELCOME, Message.ACK, b"Z", b"", b"HELLO" * 1000):
        stranger.send(kind, GARBAGE[name])
        known.send(kind, GARBAGE[name])
    door.settle()
    assert door.counts["bad messages"] >= 10
    assert len(door.reports) <= 2
    assert door.quiet() == state


def test_a_pickle_is_never_opened(door: Door, good: Peer, tmp_path: Path):
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    stranger = door.peer()
    for kind in KINDS:
        stranger.send(kind, bomb)
        stranger.send(bomb, bomb)
        stranger.send(bomb)
        stranger.send(kind, wire.pack({"command": bomb, "x": bomb}))
    body = wire.seal(1, Kind.LOG, bomb)
    stranger.send(Message.BATCH, body)
    door.settle()
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("parts", [0, 1, 3, 4, 100, 5000])
def test_too_few_or_too_many_parts_are_no_message(door: Door, good: Peer, parts: int):
    stranger = door.peer()
    stranger.send(*([Message.BEAT] * parts or [b""]))
    door.settle()
    assert door.counts["bad messages"] == 1


def test_a_message_over_the_limit_costs_its_sender_the_connection_alone(door: Door, good: Peer):
    stranger = door.peer()
    stranger.send(Message.BATCH, b"x" * (wire.MAX_MESSAGE + 1))
    stranger.send(Message.COMMAND, wire.pack({"command": "late"}))
    door.settle()
    door.settle()
    assert door.counts["batches"] == 1


def test_bytes_that_are_not_even_zeromq_do_no_harm(door: Door, good: Peer):
    chance = random.Random(3)
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01NULL".ljust(53, b"\0")
    for number in range(30):
        with sockets.socket(sockets.AF_UNIX) as raw:
            raw.connect(f"{door.place}/a.sock")
            with suppress(OSError):  # it is shown the door in the middle of it
                raw.sendall(greeting if number % 2 else b"")
                # a frame that says it has 2 GiB, or an exabyte, to come
                raw.sendall(b"\x02" + struct.pack(">Q", 2**31 if number % 3 else 2**60))
                raw.sendall(chance.randbytes(1000))
    door.settle()
    assert not [channel for run in door.house.registry.runs.values() for channel in run.channels][1:]


HOSTILE: dict[str, dict[str, Any]] = {
    "relative root": {"exp_root": "../../etc"},
    "empty root": {"exp_root": ""},
    "root with a NUL": {"exp_root": "/tmp/x\0y"},
    "long root": {"exp_root": "/" + "x" * 10_000_000},
    "root of surrogates": {"exp_root": "/\ud800"},
    "long name": {"exp_name": "x" * 5000},
    "long channel": {"channel": "c" * 10_000},
    "number for a name": {"exp_name": 5},
    "bytes for a name": {"exp_name": b"x"},
    "text for a pid": {"pid": "x"},
    "list for a rank": {"rank": [0]},
    "none for a world": {"world_size": None},
    "text for the configuration": {"config": "x"},
    "first of nothing": {"first": 0},
    "first behind zero": {"first": -1},
    "first of text": {"first": "1"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hello_of_wrong_form_opens_nothing(door: Door, good: Peer, hello: MakeHello, name: str):
    before = door.quiet()
    stranger = door.peer()
    fields = {"channel": "bad", **HOSTILE[name]}
    stranger.send(
        Message.HELLO, wire.pack({"protocol": wire.PROTOCOL, "first": 1, **hello(0).packed(), **fields})
    )
    door.settle()
    door.until(lambda: not door.house.registry._opening, "nothing is under way")
    assert len(door.house.registry.runs) == 1
    assert door.quiet() == before


ODD: dict[str, dict[str, Any]] = {
    "names that climb": {"exp_name": "../../etc", "module": "../..", "label": "../../x", "host": "../h"},
    "names that are absolute": {"exp_name": "/etc", "module": "/etc", "label": "/etc", "role": "/etc"},
    "roles that climb": {"role": "../../../../../x"},
    "names of line breaks": {"user": "u\n[forged]", "team": "\r\n", "module": "a\nb", "node_ip": "\n"},
    "names of nothing": {"exp_name": "", "module": "", "label": "", "host": "", "user": ""},
    "names of dots": {"exp_name": "..", "module": "..", "label": ".", "host": ".."},
    "names of surrogates": {"exp_name": "\ud800", "module": "\udcff", "label": "\ud800"},
    "long names": {"exp_name": "x" * 4000, "module": "m" * 4000, "label": "l" * 4000, "host": "h" * 4000},
    "numbers without end": {"rank": 2**63, "world_size": 2**63, "pid": 2**64 - 1, "started": 1e308},
    "a spool that is everything": {"spool": "/"},
    "a spool that is too long": {"spool": "/" + "s" * 4000},
    "times that are none": {"started": float("nan")},
    "a deep configuration": {"config": {"a": {"b": {"c": ["x"] * 1000}}}},
    "a configuration of odd keys": {"config": {"sink_level": ["x"], "file_sink_level": {}}},
}


@pytest.mark.parametrize("name", ODD)
def test_a_hello_of_hostile_names_stays_within_its_folder(
    door: Door, good: Peer, hello: MakeHello, logged: Logged, until: Until, name: str
):
    (door.house.root / "outside").mkdir()
    stranger = door.peer()
    root = door.house.root / "stranger"
    stranger.hello(hello(**{"rank": 1, "channel": "odd", "exp_root": str(root), **ODD[name]}))
    assert stranger.answer()[0] == Message.WELCOME
    stranger.send(Message.BATCH, logged(1, "a line\nand another"))
    assert stranger.answer() == (Message.ACK, 1)
    run, channel = door.house.registry.find("odd")
    until(lambda: run.writer.caught_up(run.logs.end), "the line is written")
    for _ in range(3):
        door.house.tick()
    assert sorted(path.name for path in door.house.root.iterdir()) == ["exp", "outside", "state", "stranger"]
    assert sorted(path.name for path in root.iterdir()) == ["logs", "snapshot"]
    assert not list((door.house.root / "outside").iterdir())
    (debug,) = [path for path in root.rglob("*debug.log") if path.stat().st_size]
    assert debug.read_bytes().count(b"\n") == 2
    assert debug.relative_to(root).parts[0] == "logs"
    assert len(debug.relative_to(root).parts) in (3, 4)
    run.end(channel, "clean")


def test_another_channels_identity_gives_no_access_to_its_records(
    door: Door, good: Peer, hello: MakeHello, logged: Logged
):
    stranger = door.context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.routing_id = door.house.registry.find("good")[1].identity.replace(b"\0", b"x", 1)
    stranger.connect(door.target)
    stranger.send_multipart([Message.BATCH, logged(2, "forged")])
    door.settle()
    assert door.house.registry.find("good")[1].last == 1


def test_warnings_are_limited_for_one_stranger_and_for_many(door: Door, good: Peer):
    one = door.peer()
    for number in range(500):
        one.send(Message.BATCH, b"x" * number)
        one.send(Message.HELLO, wire.pack([number]))
    door.settle()
    assert len(door.reports) == 1
    for number in range(60):
        peer = door.peer()
        peer.send(Message.COMMAND, wire.pack([number]))
        door.settle()
        peer.socket.close()
    assert len(door.reports) <= 20
    assert door.counts["bad messages"] >= 560
    assert all(len(report) < 500 for report in door.reports)


def test_a_stranger_does_not_make_the_agent_grow(door: Door, good: Peer, hello: MakeHello):
    stranger = door.peer()
    for number in range(3000):
        stranger.send(b"Z" * 1000, os.urandom(1000))
        stranger.send(Message.BATCH, b"x")
        stranger.hello(hello(0, channel=f"bad-{number}", exp_root="relative"))
        if number % 20 == 0:
            door.turn()
    door.settle()
    assert len(door.receiver._peers) == 1
    assert len(door.receiver._warned) <= 2
    assert len(door.house.registry.runs) == 1
    assert not door.house.registry._opening


def test_connections_of_ranks_that_are_no_more_are_let_go(
    door: Door, good: Peer, hello: MakeHello, monkeypatch: pytest.MonkeyPatch
):
    run = door.house.registry.find("good")[0]
    for number in range(700):
        child = hello(0, channel=f"child-{number}", parent="good", pid=number)
        (found,) = door.house.ask(child)
        door.receiver._welcome(b"id-%d" % number, *found, 1)
        run.end(found[1], "clean")
        run.forget(found[1])
    assert len(door.receiver._peers) <= 256


def test_more_ranks_than_are_remembered_are_served_when_others_are_gone(
    door: Door, hello: MakeHello, logged: Logged, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(receivers, "_PEERS", 300)
    door.house.open(hello(0, channel="parent"))
    for number in range(500):
        peer = hello(0, channel=f"child-{number}", parent="parent", pid=number)
        (found,) = door.house.ask(peer)
        door.receiver._welcome(b"id-%d" % number, *found, 1)
        found[0].end(found[1], "clean")
        found[0].forget(found[1])
    late = door.peer()
    late.hello(hello(0, channel="late", parent="parent", pid=9))
    assert late.answer()[0] == Message.WELCOME
    late.send(Message.BATCH, logged(1, "x"))
    assert late.answer() == (Message.ACK, 1)


def test_random_messages_of_any_form(door: Door, good: Peer, hello: MakeHello):
    """Some of them whole, some cut, some with a byte changed."""
    chance = random.Random(11)
    whole = [
        (Message.HELLO, wire.pack({"protocol": 1, "first": 1, **hello(2, channel="x").packed()})),
        (Message.BATCH, wire.seal(1, 1, wire.pack((1.7e9, 20, "INFO", "f", 1, "text")))),
        (Message.BEAT, wire.pack({"dropped": 1, "used": 2, "last": 3})),
        (Message.COMMAND, wire.pack({"command": "status"})),
    ]
    stranger = door.peer()
    for number in range(1500):
        kind, payload = chance.choice(whole)
        data = bytearray(payload)
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        stranger.send(kind, bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]))
        if number % 20 == 0:
            door.turn()
    door.settle()
    assert len(door.reports) < 30
