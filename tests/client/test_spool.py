"""The mapped file: what was taken is there, in order, whatever happens to the process or the disk."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankside import spool as module
from rankside import wire
from rankside.leftover import Leftover
from rankside.spool import Spool
from rankside.wire import Kind

# what fork may do to other threads' locks is what the spool is made for
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
MIB = 1 << 20
LOG, METRICS, EVENT = Kind.LOG, Kind.METRICS, Kind.EVENT


@pytest.fixture
def make(here: Path) -> Iterator[Callable[..., Spool]]:
    """A spool; `limit` 3 MiB gives three segments of one record of the greatest length."""
    made: list[Spool] = []

    def create(name: str = "channel", limit: int = 3 * MIB) -> Spool:
        made.append(Spool(here / name, wire.pack({"channel": name}), limit))
        return made[-1]

    yield create
    for each in made:
        each.close(remove=True)


@pytest.fixture
def small_disk(here: Path) -> Iterator[Path]:
    """A tmpfs of 14 MiB: three segments of a usual spool."""
    folder = here / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def numbered(spool: Spool, count: int, size: int = 0, start: int = 1) -> None:
    for number in range(start, start + count):
        assert spool.append(LOG, b"%d " % number + b"." * size)


def read_all(spool: Spool, most: int = wire.MAX_BATCH) -> list[tuple[int, bytes]]:
    """All that can be read now: (sequence number, body)."""
    found = []
    while (chunk := spool.read(most)) is not None:
        frames = wire.batch(chunk.data)
        assert (frames[0].seq, frames[-1].seq) == (chunk.first, chunk.last)
        found += [(frame.seq, wire.body(chunk.data, frame)) for frame in frames]
    return found


def left(folder: Path, after: int = 0) -> list[tuple[int, bytes]]:
    """What an agent finds there after the process's death."""
    return [(seq, frame[wire.HEAD.size :]) for seq, _, frame in Leftover(folder).frames(after)]


def sequence(found: list[tuple[int, bytes]]) -> list[int]:
    return [seq for seq, _ in found]


def numbers(found: list[tuple[int, bytes]]) -> list[int]:
    return [int(body.split()[0]) for _, body in found]


def forked(work: Callable[[], object]) -> int:
    """Run `work` in a child, which then leaves; its pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- reading and writing -------------------------------------------------------------------------------


def test_records_come_out_numbered_and_in_order(make):
    spool = make()
    assert spool.read() is None
    numbered(spool, 100)
    found = read_all(spool)
    assert sequence(found) == list(range(1, 101))
    assert numbers(found) == list(range(1, 101))
    assert spool.read() is None
    assert spool.last == 100
    assert left(spool.folder) == found


def test_a_chunk_holds_whole_frames_of_about_the_size_asked_for(make):
    spool = make()
    for size in (10, 200, 5000, 1, 20_000, 40, 40):
        spool.append(LOG, b"x" * size)
    chunks = []
    while (chunk := spool.read(1000)) is not None:
        chunks.append(chunk)
    assert [(chunk.first, chunk.last) for chunk in chunks] == [(1, 2), (3, 3), (4, 4), (5, 5), (6, 7)]
    assert all(len(chunk.data) <= 1000 or chunk.first == chunk.last for chunk in chunks)


def test_rewinding_reads_again_from_any_place(make):
    spool = make()
    numbered(spool, 28, size=100_000)
    everything = read_all(spool)
    assert len(left(spool.folder)) == 28
    assert len(list(spool.folder.glob("*.seg"))) == 3
    for acked in range(29):
        spool.rewind(acked)
        assert read_all(spool) == everything[acked:]


def test_reading_goes_on_behind_a_segment_that_was_filled_meanwhile(make):
    spool = make()
    found = []
    for number in range(1, 31):
        numbered(spool, 1, size=90_000, start=number)
        if number % 3 == 0:
            found += read_all(spool)
    assert numbers(found) == list(range(1, 31))


def test_what_is_acknowledged_is_freed_and_used_again(make):
    spool = make()
    number = 0
    for _ in range(50):
        numbered(spool, 8, size=100_000, start=number + 1)
        number += 8
        assert numbers(read_all(spool)) == list(range(number - 7, number + 1))
        spool.free(number)
        spool.prepare()
        assert len(list(spool.folder.glob("*.seg"))) <= 3
    assert spool.dropped() == 0


def test_a_reader_in_a_segment_that_is_freed_and_recycled_goes_on_with_the_next(make):
    spool = make()
    numbered(spool, 10, size=100_000)  # the first segment is full but for a little
    while (chunk := spool.read()) is not None and chunk.last < 10:
        pass
    numbered(spool, 10, size=100_000, start=11)
    spool.free(10)  # read to its end, and no look at the next yet
    numbered(spool, 10, size=100_000, start=21)  # goes into the freed one
    assert numbers(read_all(spool)) == list(range(11, 31))


def test_an_acknowledgement_beyond_what_was_read_skips_it(make):
    spool = make()
    numbered(spool, 25, size=100_000)
    spool.free(20)
    assert numbers(read_all(spool))[-1] == 25


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_calls_loses_and_doubles_nothing(make, seed):
    spool, dice = make(), random.Random(seed)
    accepted: list[bytes] = []
    seen = acked = 0
    for number in range(600):
        call = dice.random()
        if call < 0.6:
            body = b"%d " % number + b"." * dice.choice([1, 100, 30_000, 300_000])
            if spool.append(LOG, body, urgent=dice.random() < 0.5):
                accepted.append(body)
        elif call < 0.8:
            chunk = spool.read(dice.choice([100, 100_000]))
            if chunk is not None:
                assert chunk.first == seen + 1
                bodies = [wire.body(chunk.data, frame) for frame in wire.batch(chunk.data)]
                assert bodies == accepted[chunk.first - 1 : chunk.last]
                seen = chunk.last
        elif call < 0.9:
            acked = dice.randint(acked, seen)
            spool.free(acked)
        elif call < 0.95:
            spool.rewind(acked)
            seen = acked
        else:
            spool.prepare()
    spool.rewind(acked)
    assert [body for _, body in read_all(spool)] == accepted[acked:]
    assert [seq for seq, _ in left(spool.folder, acked)] == list(range(acked + 1, len(accepted) + 1))


def test_threads_may_append_while_another_reads_and_frees(make, until):
    spool, threads, each = make(), 4, 4000
    found: list[tuple[int, bytes]] = []

    def write(name: int) -> None:
        for number in range(each):
            while not spool.append(LOG, b"%d %d" % (name, number) + b"." * 200):
                time.sleep(0.001)

    writers = [threading.Thread(target=write, args=(name,)) for name in range(threads)]
    for writer in writers:
        writer.start()

    def step() -> bool:
        fresh = read_all(spool)
        found.extend(fresh)
        if fresh:
            spool.free(fresh[-1][0])
        spool.prepare()
        return len(found) == threads * each

    until(step, "all records")
    for writer in writers:
        writer.join(10)
    assert sequence(found) == list(range(1, threads * each + 1))
    for name in range(threads):
        mine = [body.split(b".")[0] for _, body in found if body.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(each)]


# -- limit ---------------------------------------------------------------------------------------------


def test_the_last_eighth_is_kept_for_what_matters(make):
    spool = make(limit=64 * MIB)
    plain = sum(1 for _ in iter(lambda: spool.append(LOG, b"x" * MIB, urgent=False), False))
    urgent = sum(1 for _ in iter(lambda: spool.append(METRICS, b"x" * MIB), False))
    assert spool.used() <= 64 * MIB
    assert plain / (plain + urgent) == pytest.approx(7 / 8, abs=0.01)
    assert spool.dropped() == 2
    assert not spool.append(LOG, b"small", urgent=False)


def test_once_tight_no_small_record_slips_past_a_dropped_one(make):
    spool = make()
    while spool.append(LOG, b"x" * 300_000, urgent=False):
        pass
    assert spool.append(METRICS, b"x" * 300_000)  # opens the last segment
    assert not spool.append(LOG, b"small", urgent=False)
    assert spool.append(METRICS, b"small")


def test_drops_are_counted_exactly_and_announced_once_there_is_room(make):
    spool = make()
    accepted = dropped = 0
    for _ in range(100):
        if spool.append(LOG, b"x" * 100_000, urgent=False):
            accepted += 1
        else:
            dropped += 1
    for _ in range(100):
        spool.append(METRICS, b"x" * 100_000)
    refused = spool.dropped() - dropped
    assert dropped == 100 - accepted
    assert dropped > 0
    assert refused > 0
    spool.announce()
    assert kinds(spool).count(Kind.DROPPED) == 0  # no room yet
    spool.free(spool.last)
    spool.announce()
    spool.announce()
    (told,) = [wire.unpack(body)[1] for kind, body in bodies(spool) if kind == Kind.DROPPED]
    assert told == {"log": dropped, "metrics": refused}


def bodies(spool: Spool) -> list[tuple[int, bytes]]:
    return [(kind, frame[wire.HEAD.size :]) for _, kind, frame in Leftover(spool.folder).frames(0)]


def kinds(spool: Spool) -> list[int]:
    return [kind for kind, _ in bodies(spool)]


def test_a_body_of_more_than_a_record_may_hold_is_dropped_and_counted(make):
    spool = make()
    assert spool.append(LOG, b"x" * wire.MAX_BODY)
    assert not spool.append(EVENT, b"x" * (wire.MAX_BODY + 1))
    numbered(spool, 1)
    assert spool.dropped() == 1
    assert sequence(left(spool.folder)) == [1, 2]


def test_the_smallest_limit_still_holds_the_longest_record(make):
    spool = make(limit=1)
    for _ in range(3):
        assert spool.append(LOG, b"x" * wire.MAX_BODY)
    assert not spool.append(LOG, b"x" * wire.MAX_BODY)


def test_the_goodbye_is_the_last_record_and_always_finds_room(make):
    spool = make()
    while spool.append(METRICS, b"x" * 100_000):
        pass
    spool.finish(b"goodbye")
    assert not spool.append(LOG, b"too late")
    assert not spool.append(Kind.METRICS, b"too late")
    spool.announce()
    spool.free(spool.last - 2)
    assert not spool.append(LOG, b"too late")
    assert kinds(spool)[-2:] == [Kind.DROPPED, Kind.CLOSE]
    assert spool.dropped() == 1


def test_records_lost_before_the_spool_was_there_are_told(make):
    spool = make()
    spool.lost_before({int(LOG): 3, int(METRICS): 2})
    spool.announce()
    assert wire.unpack(bodies(spool)[0][1])[1] == {"log": 3, "metrics": 2}


# -- re-entrancy ---------------------------------------------------------------------------------------


def test_records_from_inside_an_append_follow_it(make):
    spool = make()
    spool.on_roll = lambda: [spool.append(EVENT, b"%d inside" % number) for number in range(3)]
    numbered(spool, 20, size=100_000)
    found = left(spool.folder)
    assert sequence(found) == list(range(1, 24))
    assert [body for _, body in found if b"inside" in body] == [b"0 inside", b"1 inside", b"2 inside"]
    assert found[10][1].startswith(b"11 ")  # the record that made the segment roll comes before them


def test_a_flood_from_inside_one_append_is_bounded_and_counted(make):
    spool, taken = make(), []
    spool.on_roll = lambda: taken.extend(spool.append(EVENT, b"x") for _ in range(2000))
    numbered(spool, 12, size=100_000)
    assert taken.count(True) + spool.dropped() == 2000
    assert kinds(spool).count(EVENT) == taken.count(True) >= 1000


def test_a_signal_handler_may_log_at_any_instant(make):
    spool, signals, main = make(limit=256 * MIB), 0, 0

    def on_alarm(_number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        assert spool.append(EVENT, b"signal %d" % signals)

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00005, 0.00005)
        deadline = time.monotonic() + 20
        while signals < 5000 and time.monotonic() < deadline:
            for _ in range(50):
                assert spool.append(LOG, b"main %d" % main + b"." * 150)
                main += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    found = left(spool.folder)
    assert signals >= 1000
    assert sequence(found) == list(range(1, len(found) + 1))
    mine = [body.split(b".")[0] for _, body in found if body.startswith(b"main")]
    theirs = sorted(int(body.split()[1]) for _, body in found if body.startswith(b"signal"))
    assert mine == [b"main %d" % number for number in range(main)]
    assert theirs == list(range(1, signals + 1))  # sorted, for one may interrupt the other, too


def test_a_ctrl_c_while_another_thread_is_in_the_spool_leaves_it_to_that_thread(make):
    spool, inside, done = make(), threading.Event(), threading.Event()

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def hold() -> None:
        with spool._lock:
            inside.set()
            assert done.wait(20)
            assert spool.append(LOG, b"held")

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(20)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            spool.append(LOG, b"interrupted")
    finally:
        signal.signal(signal.SIGALRM, before)
    done.set()
    holder.join(20)
    other = threading.Thread(target=spool.append, args=(LOG, b"another thread's"))
    other.start()
    other.join(20)
    assert not other.is_alive()
    assert [body for _, body in bodies(spool)] == [b"held", b"another thread's"]


STORM = """
    import json, os, random, signal, sys, threading, time
    from pathlib import Path
    from rankside import wire
    from rankside.spool import Spool

    class Storm(BaseException): pass
    armed, strikes, handler_logged = False, 0, 0
    logs_too = sys.argv[2] == "logs"
    spool = Spool(Path(sys.argv[1]), b"x", 3 << 20)

    def strike(number, frame):
        global strikes, handler_logged
        if armed:
            strikes += 1
            if logs_too and spool.append(5, b"handler %d" % handler_logged):
                handler_logged += 1
            raise Storm

    signal.signal(signal.SIGALRM, strike)
    dice, accepted, number, read = random.Random(7), [], 0, []

    def take():
        while (chunk := spool.read()) is not None:
            bodies = [wire.body(chunk.data, frame) for frame in wire.batch(chunk.data)]
            read.extend(body.split(b".")[0].decode() for body in bodies)
        spool.free(spool.last)

    deadline = time.monotonic() + 15
    while strikes < 3000 and time.monotonic() < deadline:
        body = b"main %d" % number + b"." * dice.choice([10, 200, 5000, 60000])
        number += 1
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.random() * 2e-5 + 1e-6)
                armed = True
                if spool.append(1, body):
                    accepted.append("main %d" % (number - 1))
            finally:
                armed = False
        except Storm:
            armed = False
        if number % 20 == 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
            take()
    signal.setitimer(signal.ITIMER_REAL, 0)
    def finish():
        if spool.append(1, b"last"): accepted.append("last")
    other = threading.Thread(target=finish, daemon=True)
    other.start()
    other.join(10)
    take()
    print(json.dumps({"strikes": strikes, "accepted": accepted, "read": read, "last": spool.last,
                      "dropped": spool.dropped(), "handler": handler_logged}))
    """


@pytest.mark.parametrize("handler", ["raises", "logs"])
def test_ctrl_c_at_any_instant_leaves_a_consistent_spool(run, here, handler):
    out, _ = run(STORM, str(here / "storm"), handler)
    told = wire_json(out)
    assert told["strikes"] >= 300
    assert told["read"][-1] == "last"  # the lock is free for other threads
    assert len(told["read"]) == told["last"]  # consecutive, for batch() checked each one
    assert len(set(told["read"])) == len(told["read"])
    assert set(told["accepted"]) <= set(told["read"])
    if handler == "logs":
        assert [text for text in told["read"] if text.startswith("handler")] == [
            f"handler {number}" for number in range(told["handler"])
        ]
    mine = [int(text.split()[1]) for text in told["read"] if text.startswith("main")]
    assert mine == sorted(mine)


def wire_json(text: str) -> dict[str, object]:
    import json

    found: dict[str, object] = json.loads(text)
    return found


# -- death ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", range(20))
def test_a_killed_process_leaves_every_record_whose_call_returned(here, until, attempt):
    folder, progress = here / "killed", here / "progress"
    progress.write_bytes(bytes(8))
    sizes = [1, 50, 300] if attempt % 2 else [100_000, 3, 900_000]  # long ones are cut in their middle

    def work() -> None:
        spool = Spool(folder, b"x", 64 * MIB if attempt % 2 else 600 * MIB)
        fd = os.open(progress, os.O_WRONLY)
        for number in itertools.count(1):
            if not spool.append(LOG, b"%d " % number + b"." * sizes[number % 3]):
                signal.pause()
            os.pwrite(fd, number.to_bytes(8, "little"), 0)

    pid = forked(work)
    until(lambda: int.from_bytes(progress.read_bytes(), "little") >= 1 + attempt * 7, "the first records")
    os.kill(pid, signal.SIGKILL)
    assert status_of(pid) == -signal.SIGKILL
    returned = int.from_bytes(progress.read_bytes(), "little")
    page = Leftover(folder).take()
    assert page is not None
    page.close()
    found = left(folder)
    assert numbers(found) == sequence(found) == list(range(1, len(found) + 1))
    assert returned <= len(found) <= returned + 1


def test_a_torn_tail_is_cut_at_the_last_whole_record(make):
    spool = make()
    numbered(spool, 5, size=20)
    whole = left(spool.folder)
    path = next(spool.folder.glob("*.seg"))
    data = path.read_bytes()
    ends = [frame.end for frame in wire.frames(data, 64)]
    for cut in range(ends[-1] + 1):
        path.write_bytes(data[:cut])
        assert left(spool.folder) == whole[: sum(end <= cut for end in ends)]


def test_a_flipped_byte_anywhere_never_gives_a_wrong_record(make):
    spool = make()
    numbered(spool, 5, size=20)
    whole = left(spool.folder)
    path = next(spool.folder.glob("*.seg"))
    data = path.read_bytes()
    ends = [frame.end for frame in wire.frames(data, 64)]
    for place in range(ends[-1]):
        damaged = bytearray(data[: ends[-1]])
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        if 20 <= place < 64:  # the unused rest of the title
            assert left(spool.folder) == whole
        else:
            assert left(spool.folder) == (whole[: sum(end <= place for end in ends)] if place >= 64 else [])


def test_damage_in_one_segment_leaves_the_others(make):
    spool = make()
    numbered(spool, 30, size=100_000)
    paths = sorted(spool.folder.glob("*.seg"))
    assert len(paths) == 3
    damaged = bytearray(paths[1].read_bytes())
    damaged[200_000] ^= 1
    paths[1].write_bytes(damaged)
    assert numbers(left(spool.folder)) == [*range(1, 12), *range(21, 31)]


@pytest.mark.parametrize("size", [0, 10, 1000, 100_000])
def test_a_recycled_segment_never_gives_what_it_held_before(make, size):
    """Records of one size lie exactly where those before them lay."""
    spool = make()
    number = 0
    for _ in range(6):
        many = min(3000, MIB // 2 // (size + 30))
        numbered(spool, many, size=size, start=number + 1)
        numbered(spool, 5, size=150_000, start=number + many + 1)
        number += many + 5
        read_all(spool)
        spool.free(number)
        numbered(spool, 7, size=size, start=number + 1)
        number += 7
        found = left(spool.folder, number - 7)
        assert numbers(found) == sequence(found) == list(range(number - 6, number + 1))


def test_the_spool_of_a_living_process_is_locked_for_others_and_free_when_it_is_killed(here, make):
    spool = make()

    def locked(folder: Path) -> bool:
        """As another process sees it; a POSIX lock is no lock for its own."""
        return status_of(forked(lambda: Leftover(folder).take() is None or os._exit(7))) == 0

    assert locked(spool.folder)
    ready, tell = os.pipe()
    pid = forked(lambda: (Spool(here / "other", b"x"), os.write(tell, b"1"), signal.pause()))
    os.read(ready, 1)
    assert locked(here / "other")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not locked(here / "other")
    assert locked(spool.folder)


def test_a_forked_child_that_lives_on_does_not_make_its_parent_look_alive(here):
    ready, tell = os.pipe()

    def parent() -> None:
        spool = Spool(here / "parent", b"x")
        child = forked(lambda: (spool.abandon(), signal.pause()))
        os.write(tell, b"%d" % child)
        signal.pause()

    pid = forked(parent)
    child = int(os.read(ready, 20))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        page = Leftover(here / "parent").take()
        assert page is not None
        page.close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_childs_end_does_not_release_its_parents_lock(make):
    spool = make()
    assert status_of(forked(spool.abandon)) == 0
    assert status_of(forked(lambda: Leftover(spool.folder).take() is None or os._exit(7))) == 0


def test_drops_that_were_not_told_are_seen_after_death(here):
    def work() -> None:
        spool = Spool(here / "full", b"x", 3 * MIB)
        while spool.append(METRICS, b"x" * 500_000):
            pass
        spool.own("agent-1")
        for _ in range(9):
            spool.append(LOG, b"x" * 500_000)
        os.kill(os.getpid(), signal.SIGKILL)

    status_of(forked(work))
    page = Leftover(here / "full").take()
    assert page is not None
    assert page.unannounced() == {"log": 9, "metrics": 1}
    assert page.owner() == "agent-1"
    page.close()


def no_room(*_: object) -> object:
    raise OSError(28, "No space left on device")


def test_what_a_full_disk_left_in_memory_alone_is_told_after_death(here, monkeypatch):
    def work() -> None:
        spool = Spool(here / "full", b"x", 6 * MIB)
        monkeypatch.setattr(module, "reserved", no_room)
        numbered(spool, 20, size=200_000)
        os.kill(os.getpid(), signal.SIGKILL)

    status_of(forked(work))
    on_disk = [seq for seq, _, _ in Leftover(here / "full").frames(0)]
    assert 0 < len(on_disk) < 20
    page = Leftover(here / "full").take()
    assert page is not None
    assert page.last_in_memory() == 20
    page.close()


def test_an_announcement_in_memory_alone_counts_as_said_once_an_agent_has_it(make, monkeypatch):
    spool = make()
    while spool.append(METRICS, b"x" * 500_000):
        pass
    spool.free(spool.last)
    monkeypatch.setattr(module, "reserved", no_room)
    while spool._current.path is not None:
        assert spool.append(METRICS, b"x" * 500_000)
    spool._announce()
    assert spool._state.unannounced() == {"metrics": 1}
    spool.free(spool.last)
    assert spool._state.unannounced() == {}


def test_with_room_no_record_counts_as_in_memory(make):
    spool = make()
    numbered(spool, 20, size=100_000)
    assert spool._state.last_in_memory() == 0


def test_a_folder_whose_process_died_while_it_was_made_has_no_hello(here):
    (here / "unfinished").mkdir()
    with pytest.raises(FileNotFoundError):
        Leftover(here / "unfinished").hello()
    with pytest.raises(FileNotFoundError):
        Leftover(here / "unfinished").take()
    assert left(here / "unfinished") == []


# -- leaving -------------------------------------------------------------------------------------------


def test_a_delivered_spool_is_removed(make):
    spool = make()
    numbered(spool, 3)
    spool.close(remove=True)
    assert not spool.folder.exists()


def test_an_undelivered_spool_keeps_its_records_and_no_more_room_than_they_need(make):
    spool = make(limit=64 * MIB)
    numbered(spool, 100, size=30_000)
    spool.prepare()
    assert spool._spare is not None
    whole = left(spool.folder)
    spool.finish(b"goodbye")
    spool.close(remove=False)
    assert left(spool.folder)[:-1] == whole
    assert sum(path.stat().st_blocks * 512 for path in spool.folder.glob("*.seg")) < 3_100_000
    assert Leftover(spool.folder).hello() == wire.pack({"channel": "channel"})


def test_no_call_after_the_end_raises_or_writes(make):
    spool = make()
    spool.finish(b"goodbye")
    spool.close(remove=False)
    assert not spool.append(LOG, b"late")
    assert not spool.append(LOG, b"late", urgent=False)
    assert kinds(spool) == [Kind.CLOSE]


# -- the disk ------------------------------------------------------------------------------------------


def test_a_spare_is_ready_by_the_time_the_segment_is_full(make):
    spool = make()
    numbered(spool, 1)
    spool.prepare()
    assert len(list(spool.folder.glob("*.seg"))) == 1  # an idle process holds no more than it needs
    numbered(spool, 6, size=100_000)
    spool.prepare()
    spool.prepare()
    assert len(list(spool.folder.glob("*.seg"))) == 2
    numbered(spool, 6, size=100_000)
    assert len(list(spool.folder.glob("*.seg"))) == 2
    assert len(left(spool.folder)) == 13


FULL = """
    import json, os, sys, time
    from pathlib import Path
    from rankside import wire
    from rankside.leftover import Leftover
    from rankside.spool import Spool

    disk, stone = Path(sys.argv[1]), Path(sys.argv[1]) / "stone"
    spool, sizes = Spool(disk / "channel", b"x", 64 << 20), [1000, 300_000]
    file = os.open(stone, os.O_WRONLY | os.O_CREAT)  # the disk is full from here on
    try:
        while True: os.write(file, bytes(4096))
    except OSError: pass
    os.close(file)
    taken, read = 0, []

    def append(count):
        global taken
        for _ in range(count):
            if spool.append(1, b"%d " % taken + b"." * sizes[taken % 2]): taken += 1
            spool.prepare()

    def take():
        while (chunk := spool.read()) is not None:
            read.extend(int(wire.body(chunk.data, f).split()[0]) for f in wire.batch(chunk.data))
        spool.free(spool.last)

    append(120)
    in_memory = len([s for s in spool._segments if s.path is None])
    take()
    stone.unlink()
    deadline = time.monotonic() + 10
    while spool._current.path is None and time.monotonic() < deadline:
        append(30); take(); time.sleep(0.05)
    append(4)
    last = taken - 1
    on_disk = [int(frame[wire.HEAD.size:].split()[0]) for _, _, frame in Leftover(spool.folder).frames(0)]
    take()
    print(json.dumps({"taken": taken, "dropped": spool.dropped(), "read": read, "in_memory": in_memory,
                      "recovered": spool._current.path is not None, "last on disk": on_disk[-1] == last}))
    """


def test_a_full_disk_is_no_sigbus_and_memory_serves_until_there_is_room(run, small_disk):
    told = wire_json(run(FULL, str(small_disk))[0])
    assert told["in_memory"] > 2
    assert told["dropped"] == 0
    assert told["read"] == list(range(told["taken"]))
    assert told["recovered"]
    assert told["last on disk"]


def test_no_room_from_the_start_is_an_error_that_leaves_nothing_behind(small_disk):
    (small_disk / "stone").write_bytes(bytes(11 * MIB))
    before = fds()
    for _ in range(5):
        with pytest.raises(OSError, match="No space left"):
            Spool(small_disk / "channel", b"x", 64 * MIB)
    assert fds() == before
    assert not (small_disk / "channel").exists()


def test_a_folder_that_somebody_removes_costs_no_record_and_no_exception(make):
    spool = make()
    numbered(spool, 10, size=100_000)
    shutil.rmtree(spool.folder)
    numbered(spool, 15, size=100_000, start=11)
    assert numbers(read_all(spool)) == list(range(1, 26))
    spool.free(25)
    numbered(spool, 15, size=100_000, start=26)
    assert numbers(read_all(spool)) == list(range(26, 41))


def test_no_memory_either_means_dropped_and_counted(make, monkeypatch):
    spool = make()
    numbered(spool, 10, size=100_000)
    shutil.rmtree(spool.folder)

    def none(*_: object) -> object:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(module.mmap, "mmap", none)
    assert not spool.append(LOG, b"x" * 100_000)
    monkeypatch.undo()
    assert spool.append(LOG, b"x" * 100_000)
    assert spool.dropped() == 1


def test_pages_are_reserved_and_not_only_promised(make):
    spool = make()
    path = next(spool.folder.glob("*.seg"))
    assert path.stat().st_blocks * 512 >= path.stat().st_size
    assert (spool.folder / "state").stat().st_blocks * 512 >= 4096


def test_the_spool_is_its_users_alone(make):
    spool = make()
    assert spool.folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in spool.folder.glob("*.seg"))
