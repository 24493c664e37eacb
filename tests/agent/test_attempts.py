"""Attempts: what one start of a job shares, and no two starts do; agreed through the run's folder alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rankside.identity import Hello
from rankside_agent.attempts import Claim, Claims, Here, claim, key_of

MakeHello = Callable[..., Hello]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "exp"


def joined(root: Path, hello: Hello, alive: bool = False, known: int = 0, same: int = 0) -> int:
    return claim(root, hello, Here(alive, known, same))


def attempts(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "snapshot").iterdir())


# -- which attempt --------------------------------------------------------------------------------------


def test_the_ranks_of_one_start_share_an_attempt_and_a_restart_is_the_next(root: Path, hello: MakeHello):
    assert [joined(root, hello(rank)) for rank in range(4)] == [1] * 4
    again = [joined(root, hello(rank, job="job-2", channel=f"again-{rank}")) for rank in range(4)]
    assert again == [2] * 4
    assert attempts(root) == ["attempt-1", "attempt-2"]


def test_the_same_process_asking_again_has_its_place(root: Path, hello: MakeHello):
    assert joined(root, hello(0)) == 1
    assert joined(root, hello(0)) == 1


def test_a_second_process_of_the_same_rank_is_a_new_start_even_under_the_same_name(
    root: Path, hello: MakeHello
):
    assert joined(root, hello(0)) == 1
    assert joined(root, hello(1)) == 1
    assert joined(root, hello(0, channel="another process")) == 2
    assert joined(root, hello(1, channel="its neighbour")) == 2


def test_a_launcher_and_a_worker_of_the_same_number_do_not_take_each_others_place(
    root: Path, hello: MakeHello
):
    assert joined(root, hello(0)) == joined(root, hello(0, role="master", channel="launcher")) == 1


def test_without_a_certain_name_a_late_rank_joins_only_while_others_live(root: Path, hello: MakeHello):
    assert joined(root, hello(0, shared_job=False)) == 1
    assert joined(root, hello(1, shared_job=False)) == 1  # a moment later
    facts = root / "snapshot/attempt-1/attempt.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "started": time.time() - 3600}))
    assert joined(root, hello(2, shared_job=False), alive=True) == 1
    assert joined(root, hello(3, shared_job=False)) == 2


def test_with_a_certain_name_a_late_rank_joins_at_any_time(root: Path, hello: MakeHello):
    assert joined(root, hello(0)) == 1
    facts = root / "snapshot/attempt-1/attempt.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "started": time.time() - 86400}))
    assert joined(root, hello(7)) == 1


def test_a_clock_that_was_set_back_does_not_part_a_start(root: Path, hello: MakeHello):
    assert joined(root, hello(0, shared_job=False)) == 1
    facts = root / "snapshot/attempt-1/attempt.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "started": time.time() + 3600}))
    assert joined(root, hello(1, shared_job=False)) == 1


def test_a_number_this_node_has_used_alone_is_not_used_again(root: Path, hello: MakeHello):
    assert joined(root, hello(0), known=4) == 5


def test_a_start_that_this_node_has_numbered_alone_keeps_its_number(root: Path, hello: MakeHello):
    assert joined(root, hello(1), known=4, same=4) == 4
    assert joined(root, hello(2)) == 4


def test_a_number_of_this_node_alone_that_the_folder_has_passed_is_not_kept(root: Path, hello: MakeHello):
    for job in ("job-1", "job-2"):
        joined(root, hello(0, job=job, channel=job))
    assert joined(root, hello(1, job="job-3"), known=2, same=2) == 3


@pytest.mark.parametrize(("alive", "number"), [(True, 4), (False, 5)])
def test_a_start_without_a_certain_name_keeps_it_while_its_ranks_live(
    root: Path, hello: MakeHello, alive: bool, number: int
):
    assert joined(root, hello(1, shared_job=False), alive, known=4, same=4) == number


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"', '{"job": 5}', None])
def test_an_attempt_that_cannot_be_read_is_left_alone_and_the_next_begun(
    root: Path, hello: MakeHello, content: str | None
):
    folder = root / "snapshot" / "attempt-3"
    folder.mkdir(parents=True)
    if content is not None:
        (folder / "attempt.json").write_text(content)
    assert joined(root, hello(0)) == 4


@pytest.mark.parametrize("name", ["attempt-x", "attempt-", "attempt-9999999999999", "attempt-1.old", "notes"])
def test_other_things_in_the_folder_are_not_attempts(root: Path, hello: MakeHello, name: str):
    (root / "snapshot" / name).mkdir(parents=True)
    assert joined(root, hello(0)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "../../../../escaped"},
        {"role": "/abs"},
        {"label": "../../escaped"},
        {"label": "x" * 3000},
        {"channel": "../../escaped"},
        {"channel": "c" * 3000},
        {"host": "../../escaped"},
        {"role": "r" * 3000, "label": "\ud800"},
    ],
)
def test_no_name_of_a_strangers_choice_leaves_the_folder(
    root: Path, hello: MakeHello, tmp_path: Path, fields: dict[str, str]
):
    claims = Claims(root, (), "test")
    found = ask(claims, hello(0, **fields))
    claims.stop()
    assert (found.attempt, found.problem) == (1, "")
    assert [path.name for path in tmp_path.iterdir()] == ["exp"]
    assert sorted(path.name for path in root.iterdir()) == ["logs", "snapshot"]
    assert len(list((root / "snapshot/attempt-1/ranks").iterdir())) == 1
    assert attempts(root) == ["attempt-1", "key"]


# -- races ----------------------------------------------------------------------------------------------

RACE = """
import sys
from pathlib import Path
from rankside.identity import Hello
from rankside_agent.attempts import Here, claim
root, node, jobs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def hello(job, rank):
    name, label, job = f"{node}-{job}-{rank}", str(rank), f"job-{job}"
    who = ("u", "t", "m", "worker", rank, label, 8, rank, node, "", 1, None)
    return Hello(name, str(root), "exp", *who, job, True, 1.0, "/x")
print("ready", flush=True)
sys.stdin.readline()
for job in range(jobs):
    ranks = range(4) if node == "a" else range(4, 8)
    print(*(claim(root, hello(job, rank), Here(False, 0)) for rank in ranks), flush=True)
    sys.stdin.readline()
"""


def test_two_nodes_that_start_together_agree_on_every_attempt(root: Path):
    jobs = 30
    nodes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(root), node, str(jobs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in "ab"
    ]
    for node in nodes:
        assert _hear(node) == "ready"
    for job in range(jobs):
        for node in nodes:
            _tell(node)
        assert [_hear(node) for node in nodes] == [" ".join([str(job + 1)] * 4)] * 2
    for node in nodes:
        _tell(node)
        node.communicate(timeout=30)
    assert len(attempts(root)) == jobs, "and nothing of the losers is left"


def _hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_many_threads_that_start_together_agree(root: Path, hello: MakeHello):
    gate, found = threading.Barrier(16), []

    def run(rank: int) -> None:
        gate.wait(30)
        found.append(joined(root, hello(rank)))

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [1] * 16


# -- the thread that asks -------------------------------------------------------------------------------


def ask(claims: Claims, hello: Hello) -> Claim:
    """The answer of the claims' own thread."""
    answered, found = threading.Event(), []

    def done(answer: Claim) -> None:
        found.append(answer)
        answered.set()

    claims.ask(hello, Here(False, 0), done)
    assert answered.wait(30)
    return found[0]


@pytest.fixture
def claims(root: Path) -> Iterator[Claims]:
    made = Claims(root, (), "test")
    yield made
    made.stop()


def test_a_folder_that_cannot_be_written_is_a_problem_and_no_exception(
    root: Path, hello: MakeHello, claims: Claims
):
    root.parent.mkdir(exist_ok=True)
    root.write_text("a file")
    found = ask(claims, hello(0))
    assert found.attempt == 0
    assert "exp" in found.problem
    root.unlink()
    assert ask(claims, hello(0)) == Claim(1)


@pytest.mark.parametrize("bad", ["\ud800/x", "/x\0y", "/" + "x" * 5000])
def test_a_folder_that_cannot_exist_is_a_problem_and_the_thread_lives_on(hello: MakeHello, bad: str):
    claims = Claims(Path(bad), (), "test")
    for _ in range(2):
        found = ask(claims, hello(0))
        assert found.attempt == 0
        assert found.problem
    claims.stop()


def test_below_an_allowed_root_all_is_well_and_elsewhere_it_is_refused_with_the_roots(
    tmp_path: Path, hello: MakeHello
):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    inside = Claims(allowed / "exp", (str(allowed),), "in")
    outside = Claims(tmp_path / "exp", (str(allowed),), "out")
    assert ask(inside, hello(0)) == Claim(1)
    refused = ask(outside, hello(0)).refused
    assert str(tmp_path / "exp") in refused
    assert str(allowed) in refused
    assert not (tmp_path / "exp").exists()
    inside.stop(), outside.stop()


def _through_parent(tmp_path: Path) -> Path:
    return tmp_path / "allowed" / ".." / "exp"


def _through_link(tmp_path: Path) -> Path:
    (tmp_path / "allowed" / "link").symlink_to(tmp_path)
    return tmp_path / "allowed" / "link" / "exp"


def _by_prefix(tmp_path: Path) -> Path:
    return tmp_path / "allowed-not"


def _logs_linked_away(tmp_path: Path) -> Path:
    (tmp_path / "allowed" / "exp").mkdir()
    (tmp_path / "allowed" / "exp" / "logs").symlink_to(tmp_path)
    return tmp_path / "allowed" / "exp"


def _snapshot_linked_away(tmp_path: Path) -> Path:
    (tmp_path / "allowed" / "exp").mkdir()
    (tmp_path / "allowed" / "exp" / "snapshot").symlink_to(tmp_path)
    return tmp_path / "allowed" / "exp"


@pytest.mark.parametrize(
    "way", [_through_parent, _through_link, _by_prefix, _logs_linked_away, _snapshot_linked_away]
)
def test_no_way_around_the_allowed_roots(tmp_path: Path, hello: MakeHello, way: Callable[[Path], Path]):
    (tmp_path / "allowed").mkdir()
    claims = Claims(way(tmp_path), (str(tmp_path / "allowed"),), "test")
    before = sorted(tmp_path.rglob("*"))
    assert "outside the allowed roots" in ask(claims, hello(0)).refused
    assert sorted(tmp_path.rglob("*")) == before
    claims.stop()


def test_an_allowed_root_may_itself_be_a_link(tmp_path: Path, hello: MakeHello):
    (tmp_path / "disk").mkdir()
    (tmp_path / "allowed").symlink_to(tmp_path / "disk")
    claims = Claims(tmp_path / "disk" / "exp", (str(tmp_path / "allowed"),), "test")
    assert ask(claims, hello(0)) == Claim(1)
    claims.stop()


HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_folder_that_another_agent_of_this_node_writes_to_is_contended(
    root: Path, hello: MakeHello, claims: Claims
):
    (root / "logs").mkdir(parents=True)
    command = [sys.executable, "-c", HOLD, str(root / "logs" / ".writer-here")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert _hear(other) == "held"
    assert ask(claims, hello(0)) == Claim(1, contended=True)
    other.communicate(timeout=30)
    assert ask(claims, hello(1)) == Claim(1)


def test_two_runs_of_one_agent_on_one_folder_by_way_of_a_link_are_contended(
    root: Path, tmp_path: Path, hello: MakeHello, claims: Claims
):
    assert ask(claims, hello(0)) == Claim(1)
    (tmp_path / "link").symlink_to(tmp_path)
    by_link = Claims(tmp_path / "link" / "exp", (), "link")
    assert ask(by_link, hello(0, job="job-2")).contended
    by_link.stop()
    by_link._thread.join(30)
    third = Claims(tmp_path / "link" / "exp", (), "link")
    assert ask(third, hello(0, job="job-3")).contended, "the end of the second did not take the hold away"
    third.stop()


def test_a_folder_without_room_for_the_hold_still_gives_the_number(root: Path, hello: MakeHello):
    for job in ("job-1", "job-2"):
        joined(root, hello(0, job=job, channel=job))
    (root / "logs").write_text("no room")
    claims = Claims(root, (), "test")
    assert ask(claims, hello(1, job="job-2")) == Claim(2)
    (root / "logs").unlink()
    assert ask(claims, hello(2, job="job-2")) == Claim(2)
    assert list((root / "logs").iterdir()), "held by now"
    claims.stop()


def test_a_run_taken_up_again_at_once_finds_its_folder_free(root: Path, hello: MakeHello):
    for turn in range(20):
        claims = Claims(root, (), "test")
        assert not ask(claims, hello(0, job=f"job-{turn}", channel=f"c-{turn}")).contended
        claims.stop()


def test_one_that_hangs_is_not_waited_for(root: Path, hello: MakeHello, monkeypatch: pytest.MonkeyPatch):
    hung, release = threading.Event(), threading.Event()

    def hang(*_: object) -> int:
        hung.set()
        release.wait(60)
        return 1

    monkeypatch.setattr("rankside_agent.attempts.claim", hang)
    claims = Claims(root, (), "test")
    claims.ask(hello(0), Here(False, 0), lambda _: None)
    assert hung.wait(30)
    before = time.monotonic()
    claims.stop()
    assert time.monotonic() - before < 0.4
    release.set()
    claims._thread.join(30)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small tmpfs")
def test_a_full_disk_keeps_no_rank_out_of_its_own_place(root: Path, hello: MakeHello):
    root.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(root)]).returncode:
        pytest.skip("cannot mount here")
    try:
        assert joined(root, hello(0)) == 1
        ballast = root / "ballast"
        with open(ballast, "wb", buffering=0) as out:
            try:
                while out.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        for _ in range(2):
            with pytest.raises(OSError):
                joined(root, hello(1))
        ballast.unlink()
        assert joined(root, hello(1)) == 1
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


def test_every_attempt_of_an_experiment_has_the_same_key(root: Path, hello: MakeHello):
    keys = []
    for job in ("one", "two"):
        claims = Claims(root, (), "test")
        keys.append(ask(claims, hello(0, job=job)).key)
        claims.stop()
    assert re.fullmatch("[0-9a-f]{12}", keys[0])
    assert keys[0] == keys[1]


def test_many_agents_at_once_agree_on_the_key(root: Path):
    (root / "snapshot").mkdir(parents=True)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: key_of(root), range(200)))) == 1


@pytest.mark.parametrize("left", [b"", b"0123", b"\xff" * 12])
def test_half_a_key_is_made_anew(root: Path, left: bytes):
    (root / "snapshot").mkdir(parents=True)
    (root / "snapshot" / "key").write_bytes(left)
    with pytest.raises(OSError, match="no key"):
        key_of(root)
    assert re.fullmatch("[0-9a-f]{12}", key_of(root))
