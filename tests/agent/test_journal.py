"""The journal: whole entries or none, for any number of readers, whatever a crash or a disk did to it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rankside_agent.journal import Entry, EntryType, Journal, Position, Reader, segments

Info = Callable[..., dict[str, Any]]
Logged = Callable[..., bytes]


def everything(folder: Path, position: Position | None = None) -> list[Entry]:
    """All entries from `position` on."""
    reader = Reader(folder, position)
    found = list(rest(reader))
    reader.close()
    return found


def rest(reader: Reader, most: int = 1 << 20) -> Iterator[Entry]:
    while entries := reader.read(most):
        yield from entries


def told(entry: Entry) -> tuple[int, int, bytes, dict[str, Any]]:
    """An entry without its place."""
    return entry.type, entry.channel, entry.payload, entry.info


def sequence(entries: list[Entry]) -> list[int]:
    return [seq for entry in entries if entry.type == EntryType.BATCH for seq, _, _ in entry.frames()]


def varied(folder: Path, info: Info, logged: Logged, segment_bytes: int = 1 << 20) -> Journal:
    """Two channels and an entry of every kind."""
    journal = Journal(folder, segment_bytes)
    journal.open_channel(1, info(0))
    journal.batch(1, 1, 2, 2, logged(1, "one", "two"))
    journal.open_channel(2, info(1, last=5))
    journal.module(1, "sft")
    journal.batch(1, 3, 3, 1, logged(3, "three"))
    journal.batch(2, 6, 6, 1, logged(6, "x" * 150))
    journal.note(2, 1.7e9, 30, "WARNING", "odd")
    journal.end_channel(1, {"time": 1.7e9, "status": "finished", "how": "clean"})
    journal.batch(2, 7, 9, 0, b"")
    return journal


def in_segments(folder: Path, info: Info, logged: Logged) -> Journal:
    """The same and some more, over several segments."""
    journal = varied(folder, info, logged, 600)
    for seq in range(10, 50):
        journal.batch(2, seq, seq, 1, logged(seq, "x" * 150))
    assert len(segments(folder)) > 3
    return journal


# -- writing and reading --------------------------------------------------------------------------------


def test_what_was_appended_is_read_in_order_with_what_its_channel_was(
    tmp_path: Path, info: Info, logged: Logged
):
    varied(tmp_path, info, logged)
    entries = everything(tmp_path)
    kinds = [EntryType(entry.type).name for entry in entries]
    assert kinds == ["OPEN", "BATCH", "OPEN", "MODULE", "BATCH", "BATCH", "NOTE", "END", "BATCH"]
    assert [entry.info["label"] for entry in entries] == list("001001101")
    assert sequence(entries) == [1, 2, 3, 6]
    assert entries[6].value() == [1.7e9, 30, "WARNING", "odd"]


def test_a_module_holds_for_later_entries_only(tmp_path: Path, info: Info, logged: Logged):
    varied(tmp_path, info, logged)
    first, second = [e for e in everything(tmp_path) if e.channel == 1 and e.type == EntryType.BATCH]
    assert (first.info["module"], second.info["module"]) == ("pretrain", "sft")


def test_a_header_equals_what_replaying_all_before_it_gives(tmp_path: Path, info: Info, logged: Logged):
    journal = in_segments(tmp_path, info, logged)
    replayed = Reader(tmp_path)
    list(rest(replayed))
    assert replayed.state.header() == journal.state.header()
    for number in segments(tmp_path):
        fresh, upto = Reader(tmp_path, Position(number, 0)), Reader(tmp_path)
        fresh.read(1)
        while upto.position < fresh.position:
            upto.read(1)
        assert fresh.state.header() == upto.state.header()


def test_a_reader_opened_at_any_place_reads_the_same_rest_with_the_same_infos(
    tmp_path: Path, info: Info, logged: Logged
):
    in_segments(tmp_path, info, logged)
    whole = everything(tmp_path)
    for at, entry in enumerate(whole):
        again = everything(tmp_path, entry.after)
        assert again == whole[at + 1 :]


@pytest.mark.parametrize("most", [1, 13, 100, 700, 1 << 20])
def test_steps_of_any_size_read_the_same(tmp_path: Path, info: Info, logged: Logged, most: int):
    in_segments(tmp_path, info, logged)
    assert list(rest(Reader(tmp_path), most)) == everything(tmp_path)


def test_an_entry_larger_than_a_step_is_read_whole(tmp_path: Path, info: Info, logged: Logged):
    journal = Journal(tmp_path)
    journal.open_channel(1, info())
    journal.batch(1, 1, 1, 1, logged(1, "x" * 500_000))
    journal.batch(1, 2, 2, 1, logged(2, "small"))
    assert sequence(list(rest(Reader(tmp_path), 1000))) == [1, 2]


def test_a_header_longer_than_any_message_is_read_whole_and_not_begun_with_every_entry(
    tmp_path: Path, info: Info
):
    journal = Journal(tmp_path, 8 << 20)
    for index in range(1, 3001):
        journal.open_channel(index, info(0, channel=f"channel-{index}", config={"text": "x" * 3000}))
    for _ in range(3):
        journal.note(7, 1.7e9, 20, "INFO", "still here")
    last = everything(tmp_path)[-1]
    assert last.after.segment == 2
    assert (last.value()[3], last.info["channel"]) == ("still here", "channel-7")


READ_ALL = """
import sys
from pathlib import Path
from rankside_agent.journal import EntryType, Reader
reader, found = Reader(Path(sys.argv[1])), []
while not found or found[-1] < int(sys.argv[2]):
    for entry in reader.read(int(sys.argv[3])):
        assert entry.info["label"] == "0"
        if entry.type == EntryType.BATCH:
            found += [seq for seq, _, _ in entry.frames()]
print(found == list(range(1, int(sys.argv[2]) + 1)), reader.skipped, reader.lost)
"""


def test_readers_in_threads_and_processes_read_all_while_it_is_written(
    tmp_path: Path, info: Info, logged: Logged
):
    last = 6000
    journal = Journal(tmp_path, 1 << 16)
    journal.open_channel(1, info())
    steps = ("50", "5000", str(1 << 20))
    children = [
        subprocess.Popen(
            [sys.executable, "-c", READ_ALL, str(tmp_path), str(last), most],
            stdout=subprocess.PIPE,
            text=True,
        )
        for most in steps[:2]
    ]
    found: dict[str, list[int]] = {most: [] for most in steps}

    def follow(most: str) -> None:
        reader = Reader(tmp_path)
        while not found[most] or found[most][-1] < last:
            found[most] += sequence(reader.read(int(most)))

    threads = [threading.Thread(target=follow, args=(most,), daemon=True) for most in steps]
    for thread in threads:
        thread.start()
    for first in range(1, last, 10):
        texts = [f"line {first + more} {'x' * (first % 300)}" for more in range(10)]
        journal.batch(1, first, first + 9, 10, logged(first, *texts))
    for thread in threads:
        thread.join(60)
    assert len(segments(tmp_path)) > 10
    assert all(numbers == list(range(1, last + 1)) for numbers in found.values())
    assert [child.communicate(timeout=60)[0].split() for child in children] == [["True", "0", "0"]] * 2


def test_only_the_newest_segment_is_read_at_start(tmp_path: Path, info: Info, logged: Logged):
    journal = Journal(tmp_path, 1 << 16)
    journal.open_channel(1, info())
    for first in range(1, 2001):
        journal.batch(1, first, first, 1, logged(first, "x" * 1000))
    journal.close()
    count = len(segments(tmp_path))
    assert count > 25
    before = _bytes_read()
    again = Journal(tmp_path, 1 << 16)
    assert again.state.channels[1].last == 2000
    assert _bytes_read() - before < 2 << 16


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


# -- letting go -----------------------------------------------------------------------------------------


def test_dropping_old_segments_keeps_the_rest_and_what_was_known(tmp_path: Path, info: Info, logged: Logged):
    journal = in_segments(tmp_path, info, logged)
    whole = everything(tmp_path)
    newest = segments(tmp_path)[-1]
    assert journal.drop_before(newest - 1) == newest - 2
    kept = [entry for entry in whole if entry.after.segment >= newest - 1]
    assert everything(tmp_path) == kept
    assert Journal(tmp_path, 600).state.header() == journal.state.header()


def test_the_newest_segment_is_never_dropped(tmp_path: Path, info: Info, logged: Logged):
    journal = varied(tmp_path, info, logged)
    assert journal.drop_before(99) == 0
    journal.batch(2, 10, 10, 1, logged(10, "on"))
    assert sequence(everything(tmp_path)) == [1, 2, 3, 6, 10]


def test_a_reader_whose_segments_were_dropped_counts_them_and_what_they_held(
    tmp_path: Path, info: Info, logged: Logged
):
    journal = Journal(tmp_path, 600)
    journal.open_channel(1, info())
    reader = Reader(tmp_path)
    assert len(reader.read()) == 1
    for first in range(1, 21):
        journal.batch(1, first, first, 1, logged(first, "x" * 200))
    journal.drop_before(segments(tmp_path)[-1])
    seen = sequence(list(rest(reader)))
    # what lies in the segment it holds open can still be read; between that and the newest is a hole
    assert seen == [*range(1, seen[0] if seen[0] > 1 else 1), *seen]
    assert reader.lost == 20 - len(seen) > 0
    assert reader.skipped == segments(tmp_path)[-1] - 2


def test_an_ended_channel_can_be_forgotten_and_later_headers_are_without_it(
    tmp_path: Path, info: Info, logged: Logged
):
    journal = varied(tmp_path, info, logged)
    journal.forget(1)
    journal._segment_bytes = 1
    journal.batch(2, 10, 10, 1, logged(10, "on"))
    assert set(Journal(tmp_path).state.channels) == {2}


# -- a torn or damaged end ------------------------------------------------------------------------------


class Damage:
    """A journal of one segment, and what each damage to it must leave."""

    def __init__(self, folder: Path, logged: Logged) -> None:
        varied(folder, _short_info, logged).close()
        self.whole = everything(folder)
        (self.path,) = folder.glob("*.seg")
        self.data = self.path.read_bytes()
        self.header_end = 13 + int.from_bytes(self.data[:4], "little")
        self.logged = logged

    def check(self, folder: Path, data: bytes, whole_until: int) -> None:
        """Written as `data`, which is undamaged up to `whole_until`."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "00000001.seg").write_bytes(data)
        kept = [entry for entry in self.whole if entry.after.offset <= whole_until]
        if whole_until < self.header_end:
            kept = []
        journal = Journal(folder)
        known = journal.state.channels.get(2)
        assert (known.last if known else 0) == max([0, *self._lasts(kept)])
        index = 2 if known else 9
        if not known:
            journal.open_channel(9, {"module": "pretrain", "last": 0})
        journal.batch(index, 10, 10, 1, self.logged(10, "on"))
        found = everything(folder)
        assert [told(entry) for entry in found[: len(kept)]] == [told(entry) for entry in kept]
        assert sequence(found[-1:]) == [10]
        assert len(found) == len(kept) + (1 if known else 2)
        # a reader that was anywhere before goes on with the rest, and misses nothing new
        for entry in (self.whole[0], self.whole[-1]):
            later = everything(folder, entry.after)
            assert sequence(later[-1:]) == [10]
        journal.close()

    @staticmethod
    def _lasts(kept: list[Entry]) -> list[int]:
        numbers = []
        for entry in kept:
            if entry.channel == 2 and entry.type == EntryType.OPEN:
                numbers.append(int(entry.value()["last"]))
            elif entry.channel == 2 and entry.type == EntryType.BATCH:
                numbers.append(int.from_bytes(entry.payload[8:16], "little"))
        return numbers


def _short_info(rank: int, last: int = 0) -> dict[str, Any]:
    return {"label": str(rank), "module": "pretrain", "last": last}


@pytest.fixture
def damage(tmp_path: Path, logged: Logged) -> Damage:
    return Damage(tmp_path / "sound", logged)


def test_cut_at_any_byte_it_opens_with_every_whole_entry_and_goes_on(damage: Damage, tmp_path: Path):
    for length in range(len(damage.data)):
        damage.check(tmp_path / "cut", damage.data[:length], length)


@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_damaged_at_any_byte_it_opens_with_every_entry_before_and_goes_on(
    damage: Damage, tmp_path: Path, flip: int
):
    for at in range(0 if flip == 1 else 3, len(damage.data), 1 if flip == 1 else 7):
        data = bytearray(damage.data)
        data[at] ^= flip
        damage.check(tmp_path / "flipped", bytes(data), at)


def test_zeros_that_a_lost_write_left_are_no_entries(damage: Damage, tmp_path: Path):
    for length in range(0, len(damage.data), 5):
        zeroed = damage.data[:length].ljust(len(damage.data) + 4096, b"\0")
        damage.check(tmp_path / "zeros", zeroed, _same_until(zeroed, damage.data))


def _same_until(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))


def test_a_reader_beyond_a_cut_end_reads_what_is_written_after_it(tmp_path: Path, info: Info, logged: Logged):
    journal = varied(tmp_path, info, logged)
    ahead = journal.end
    journal.close()
    os.truncate(tmp_path / "00000001.seg", ahead.offset - 1)
    again = Journal(tmp_path)
    for seq in range(10, 40):
        again.batch(2, seq, seq, 1, logged(seq, "x" * 40))
    assert sequence(everything(tmp_path, ahead)) == list(range(10, 40))


def test_a_reader_of_a_segment_whose_header_was_destroyed_reads_what_is_written_after_it(
    tmp_path: Path, info: Info, logged: Logged
):
    journal = in_segments(tmp_path, info, logged)
    ahead = journal.end
    journal.close()
    newest = tmp_path / f"{ahead.segment:08d}.seg"
    newest.write_bytes(b"\0" * newest.stat().st_size)
    again = Journal(tmp_path, 600)
    assert again.state.channels[2].info["label"] == "1"
    again.batch(2, 50, 50, 1, logged(50, "on"))
    assert sequence(everything(tmp_path, ahead)) == [50]
    assert sequence(everything(tmp_path))[-1] == 50


def test_damage_in_an_older_segment_costs_its_rest_which_is_counted(
    tmp_path: Path, info: Info, logged: Logged
):
    journal = Journal(tmp_path, 2000)
    journal.open_channel(1, info())
    for seq in range(1, 41):
        journal.batch(1, seq, seq, 1, logged(seq, "x" * 200))
    second = tmp_path / "00000002.seg"
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 1
    second.write_bytes(data)
    reader = Reader(tmp_path)
    found = sequence(list(rest(reader)))
    assert reader.skipped == 1
    assert found[-1] == 40
    assert reader.lost == 40 - len(found) > 0


def test_a_journal_begun_anew_is_read_from_its_start(tmp_path: Path, info: Info, logged: Logged):
    varied(tmp_path, info, logged)
    assert sequence(everything(tmp_path, Position(7, 300))) == [1, 2, 3, 6]


# -- no room, no descriptors ----------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB; only root can have one."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]).returncode:
        pytest.skip("needs root to mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_what_a_removed_folder_held_is_read_once_by_readers_of_before_and_of_after(
    tmp_path: Path, info: Info, logged: Logged
):
    folder = tmp_path / "journal"
    journal = varied(folder, info, logged)
    before = Reader(folder)
    seen = list(rest(before))
    place = before.position
    journal.batch(2, 10, 10, 1, logged(10, "unseen"))
    shutil.rmtree(folder)
    assert not journal.intact()
    journal.batch(2, 11, 11, 1, logged(11, "into what nobody finds"))
    journal.begin_again()
    assert journal.intact()
    journal.batch(2, 12, 12, 1, logged(12, "found again"))
    assert sequence(list(rest(before))) == [10, 11, 12]
    assert sequence(everything(folder, place)) == [10, 11, 12]
    assert sequence(everything(folder)) == [*sequence(seen), 10, 11, 12]


def test_a_journal_that_cannot_be_begun_again_has_begun_nothing(tmp_path: Path, info: Info, logged: Logged):
    folder = tmp_path / "journal"
    journal = varied(folder, info, logged)
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "00000002.new").mkdir()  # where the new segment is to be made
    with pytest.raises(OSError):
        journal.begin_again()
    assert not journal.intact()
    assert segments(folder) == []
    (folder / "00000002.new").rmdir()
    journal.begin_again()
    assert sequence(everything(folder)) == [1, 2, 3, 6]


def test_on_a_full_disk_an_append_fails_whole_and_later_ones_work(
    small_disk: Path, info: Info, logged: Logged
):
    journal = Journal(small_disk / "j", 1 << 20)
    journal.open_channel(1, info())
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 20_000)
    seq, failures = 1, 0
    while failures < 3:
        before = journal.end
        if _append(journal, seq, logged(seq, "x" * 3000)):
            seq += 1
        else:
            failures += 1
            assert (journal.end, journal.state.channels[1].last) == (before, seq - 1)
    assert sequence(everything(small_disk / "j")) == list(range(1, seq))
    ballast.unlink()
    journal.batch(1, seq, seq, 1, logged(seq, "again"))
    assert sequence(everything(small_disk / "j")) == list(range(1, seq + 1))
    assert Journal(small_disk / "j").state.channels[1].last == seq


def _append(journal: Journal, seq: int, frames: bytes) -> bool:
    try:
        journal.batch(1, seq, seq, 1, frames)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


def _fill(path: Path) -> None:
    """Until there is no room for a byte."""
    with open(path, "wb", buffering=0) as out:
        try:
            while out.write(b"x" * 4096):
                pass
        except OSError:
            pass


def test_a_full_disk_at_a_roll_over_begins_no_segment_and_later_ones_are_begun(
    small_disk: Path, info: Info, logged: Logged
):
    journal = Journal(small_disk / "j", 2000)
    journal.open_channel(1, info())
    for seq in range(1, 8):
        journal.batch(1, seq, seq, 1, logged(seq, "x" * 300))
    ballast = small_disk / "ballast"
    _fill(ballast)
    for _ in range(3):
        assert not _append(journal, 8, logged(8, "x" * 5000))
    assert not list((small_disk / "j").glob("*.new"))
    ballast.unlink()
    journal.batch(1, 8, 8, 1, logged(8, "x" * 300))
    assert sequence(everything(small_disk / "j")) == list(range(1, 9))


SHORT_WRITES = """
import resource, signal, sys
from pathlib import Path
from rankside import wire
from rankside_agent.journal import EntryType, Journal, Reader
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
journal = Journal(folder)
journal.open_channel(1, {"module": "pretrain", "last": 0})
def append(seq, size):
    journal.batch(1, seq, seq, 1, wire.seal(seq, 1, wire.pack("x" * size)))
append(1, 100)
for room in range(0, 400, 7):
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.end.offset + room, resource.RLIM_INFINITY))
    try:
        append(2, 400)
    except OSError as error:
        pass
    else:
        raise SystemExit("the write was not cut short")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
append(2, 400)
found = [seq for e in Reader(folder).read() if e.type == EntryType.BATCH for seq, _, _ in e.frames()]
print(found, Journal(folder).state.channels[1].last)
"""


def test_a_write_cut_short_at_any_byte_leaves_the_journal_as_it_was(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", SHORT_WRITES, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[1, 2] 2", done.stderr


def test_without_a_free_descriptor_a_reader_raises_and_misses_nothing(
    tmp_path: Path, info: Info, logged: Logged
):
    journal = Journal(tmp_path, 600)
    journal.open_channel(1, info())
    for seq in range(1, 11):
        journal.batch(1, seq, seq, 1, logged(seq, "x" * 200))
    reader, found = Reader(tmp_path), []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    failures = 0
    for round_ in range(200):
        if round_ % 2:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            late = Reader(tmp_path, Position(2, 0))
            found += sequence(reader.read(300))
        except OSError:
            failures += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        late.close()
    assert failures
    assert found == list(range(1, 11))


def test_a_reader_can_go_back(tmp_path: Path, info: Info, logged: Logged):
    in_segments(tmp_path, info, logged)
    whole = everything(tmp_path)
    reader = Reader(tmp_path)
    list(rest(reader))
    for at in (0, 3, len(whole) - 1):
        reader.go_back(whole[at].after)
        assert list(rest(reader)) == whole[at + 1 :]


def test_a_reader_goes_back_in_a_segment_whose_name_is_gone(tmp_path: Path, info: Info, logged: Logged):
    in_segments(tmp_path, info, logged)
    reader = Reader(tmp_path)
    first = reader.read()
    place, then = reader.position, list(rest(reader))
    last = [entry for entry in then if entry.after.segment == reader.position.segment]
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    assert first
    reader.go_back(Position(reader.position.segment, 0))
    assert list(rest(reader)) == last
    reader.go_back(place)  # in another one, which nobody holds
    assert list(rest(reader)) == []


# -- any sequence of events -----------------------------------------------------------------------------


class AnyHistory(RuleBasedStateMachine):
    """Whatever is appended, reopened and dropped: every reader sees what was appended, from where it was."""

    @initialize()
    def begin(self) -> None:
        import tempfile

        self.folder = Path(tempfile.mkdtemp(prefix="rs-journal-"))
        self.journal = Journal(self.folder, 400)
        self.model: list[tuple[int, int, Any]] = []
        self.last: dict[int, int] = {}
        self.readers: list[tuple[Reader, list[tuple[int, int, Any]]]] = []

    @rule()
    def open_channel(self) -> None:
        index = len(self.last) + 1
        self.last[index] = 0
        self.journal.open_channel(index, {"channel": f"c{index}", "module": "m0", "last": 0})
        self.model.append((EntryType.OPEN, index, "m0"))

    @rule(which=st.integers(0, 9), count=st.integers(0, 4))
    def batch(self, which: int, count: int) -> None:
        if not self.last:
            return
        index = which % len(self.last) + 1
        first = self.last[index] + 1
        self.journal.batch(index, first, first + count, count, b"?" * count * 9)
        self.last[index] += count + 1
        self.model.append((EntryType.BATCH, index, self.last[index]))

    @rule(which=st.integers(0, 9), name=st.text(max_size=5))
    def module(self, which: int, name: str) -> None:
        if self.last:
            index = which % len(self.last) + 1
            self.journal.module(index, name)
            self.model.append((EntryType.MODULE, index, name))

    @rule()
    def begin_reading(self) -> None:
        if len(self.readers) < 4:
            reader = Reader(self.folder)
            self.readers.append((reader, []))

    @rule(which=st.integers(0, 3), most=st.integers(1, 500))
    def read_on(self, which: int, most: int) -> None:
        if self.readers:
            reader, seen = self.readers[which % len(self.readers)]
            seen += [_brief(entry) for entry in reader.read(most)]

    @rule(which=st.integers(0, 3))
    def reopen_reader(self, which: int) -> None:
        if self.readers:
            at = which % len(self.readers)
            reader, seen = self.readers[at]
            reader.close()
            self.readers[at] = (Reader(self.folder, reader.position), seen)

    @rule(torn=st.binary(max_size=30))
    def crash(self, torn: bytes) -> None:
        self.journal.close()
        with open(self.folder / f"{self.journal.end.segment:08d}.seg", "ab") as out:
            out.write(torn)
        self.journal = Journal(self.folder, 400)

    @invariant()
    def readers_have_read_a_beginning(self) -> None:
        for _, seen in getattr(self, "readers", []):
            assert seen == self.model[: len(seen)]

    def teardown(self) -> None:
        if not hasattr(self, "readers"):
            return
        for reader, seen in [*self.readers, (Reader(self.folder), [])]:
            seen += [_brief(entry) for entry in rest(reader)]
            assert seen == self.model
            assert reader.skipped == reader.lost == 0
            reader.close()
        assert {i: c.last for i, c in self.journal.state.channels.items()} == self.last
        self.journal.close()
        shutil.rmtree(self.folder)


def _brief(entry: Entry) -> tuple[int, int, Any]:
    if entry.type == EntryType.BATCH:
        return entry.type, entry.channel, int.from_bytes(entry.payload[8:16], "little")
    return entry.type, entry.channel, entry.info["module"]


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
