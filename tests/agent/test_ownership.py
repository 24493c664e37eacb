"""One agent an endpoint and a state folder; nothing is taken from the living, nobody reaches it unasked."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from rankside.endpoint import listens
from rankside_agent.ownership import Endpoint, Lock, Taken

Context = zmq.Context  # type: ignore[type-arg]


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path of our own: a socket's has 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bind() -> Iterator[Callable[[str], Endpoint]]:
    made: list[Endpoint] = []

    def make(target: str) -> Endpoint:
        endpoint = Endpoint(zmq.Context(), target)
        made.append(endpoint)
        return endpoint

    yield make
    for endpoint in made:
        if not endpoint.socket.closed:
            endpoint.close()


def test_a_lock_knows_whether_another_process_would_find_it_held(place: Path):
    lock = Lock(place / "lock", "a folder")
    assert lock.intact()
    (place / "lock").unlink()
    assert not lock.intact()
    (place / "lock").touch()
    assert not lock.intact()
    lock.release()


def test_the_socket_is_its_users_alone(place: Path, bind: Callable[[str], Endpoint]):
    endpoint = bind(f"ipc://{place}/sub/a.sock")
    assert stat.S_IMODE((place / "sub" / "a.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((place / "sub").stat().st_mode) == 0o700
    assert endpoint.intact()
    assert (place / "sub" / "a.sock.lock").read_text() == f"{os.getpid()}\n"


SERVE = """
import sys, zmq
from rankside_agent.ownership import Endpoint
endpoint = Endpoint(zmq.Context(), sys.argv[1])
print("serving", flush=True)
sys.stdin.readline()
endpoint.close()
"""


@pytest.fixture
def other(place: Path) -> Iterator[subprocess.Popen[str]]:
    """Another agent that serves there."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, f"ipc://{place}/a.sock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_agent_is_refused_with_the_owners_pid_and_the_first_keeps_its_ranks(
    place: Path, other: subprocess.Popen[str]
):
    inode = (place / "a.sock").stat().st_ino
    for _ in range(2):
        with pytest.raises(Taken, match=rf"another agent \(pid {other.pid}\)"):
            Endpoint(zmq.Context(), f"ipc://{place}/a.sock")
    assert (place / "a.sock").stat().st_ino == inode
    assert listens(f"ipc://{place}/a.sock")


def test_a_dead_agents_socket_is_taken_over(
    place: Path, other: subprocess.Popen[str], bind: Callable[[str], Endpoint]
):
    other.kill()
    other.wait(30)
    assert (place / "a.sock").exists()
    assert not listens(f"ipc://{place}/a.sock")
    assert bind(f"ipc://{place}/a.sock").intact()
    assert listens(f"ipc://{place}/a.sock")


def test_the_agent_that_leaves_never_removes_the_socket_of_the_one_that_comes(
    place: Path, bind: Callable[[str], Endpoint]
):
    for _ in range(20):
        first = bind(f"ipc://{place}/a.sock")
        first.close()
        assert not (place / "a.sock").exists()
        second = bind(f"ipc://{place}/a.sock")
        assert second.intact()
        assert listens(f"ipc://{place}/a.sock")
        second.close()


def test_a_removed_or_replaced_socket_is_noticed_and_not_removed_by_us(
    place: Path, bind: Callable[[str], Endpoint]
):
    endpoint = bind(f"ipc://{place}/a.sock")
    (place / "a.sock").unlink()
    assert not endpoint.intact()
    shutil.rmtree(place)
    assert not endpoint.intact()
    place.write_text("not even a folder")
    assert not endpoint.intact()
    place.unlink()
    place.mkdir(mode=0o700)


# -- what may not be bound ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "tcp://*:5555",
        "tcp://0.0.0.0:5555",
        "tcp://[::]:5555",
        "tcp://10.0.0.1:5555",
        "tcp://127.0.0.1.example.org:5555",
        "tcp://localhost.example.org:5555",
        "tcp://eth0:5555",
        "tcp://",
        "inproc://x",
        "auto",
        "",
        "a.sock",
        "ipc://a.sock",
        "/tmp/",
    ],
)
def test_nothing_but_a_path_or_this_host_is_bound(target: str):
    with pytest.raises(
        ValueError, match=r"endpoint: .*choices: auto, /a/path or ipc:///a/path, tcp://host:port"
    ):
        Endpoint(zmq.Context(), target)


def test_tcp_on_this_host_is_bound_and_a_second_one_is_refused(bind: Callable[[str], Endpoint]):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bind(f"tcp://127.0.0.1:{port}")
    with pytest.raises(Taken, match=f"tcp://127.0.0.1:{port}: "):
        Endpoint(zmq.Context(), f"tcp://127.0.0.1:{port}")


def test_a_path_that_is_too_long_is_refused_with_the_limit(place: Path):
    with pytest.raises(ValueError, match="has more than the 107 bytes"):
        Endpoint(zmq.Context(), f"ipc://{place}/{'x' * 100}")


@pytest.mark.parametrize("target", ["ipc://a.sock", "ipc://./a.sock", "ipc://@abstract", "ipc://"])
def test_a_relative_path_is_refused(target: str):
    with pytest.raises(ValueError, match="is not allowed; choices: auto, /a/path"):
        Endpoint(zmq.Context(), target)


def test_a_folder_others_may_write_to_is_refused_before_anything_is_opened_in_it(place: Path):
    victim = place / "victim"
    victim.write_text("precious")
    folder = place / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "a.sock.lock").symlink_to(victim)
    with pytest.raises(ValueError, match="must be this user's own, and writable by nobody else"):
        Endpoint(zmq.Context(), f"ipc://{folder}/a.sock")
    assert victim.read_text() == "precious"
    folder.chmod(0o755)


@pytest.mark.parametrize("kind", ["file", "folder", "link to a file", "dangling link"])
def test_what_is_no_socket_stays_where_it_is(place: Path, kind: str):
    path = place / "a.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(place / "elsewhere")
        if kind == "link to a file":
            (place / "elsewhere").write_text("precious")
    with pytest.raises(ValueError, match="exists and is no socket"):
        Endpoint(zmq.Context(), f"ipc://{path}")
    assert os.path.lexists(path)


def test_after_a_refusal_the_endpoint_is_free(place: Path, bind: Callable[[str], Endpoint]):
    (place / "a.sock").write_text("in the way")
    with pytest.raises(ValueError):
        Endpoint(zmq.Context(), f"ipc://{place}/a.sock")
    (place / "a.sock").unlink()
    assert _other_can_bind(place)


def _other_can_bind(place: Path) -> bool:
    command = [sys.executable, "-c", SERVE, f"ipc://{place}/a.sock"]
    return subprocess.run(command, input="\n", text=True, capture_output=True).stdout == "serving\n"


# -- locks ----------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from rankside_agent.ownership import Lock, Taken
try:
    lock = Lock(Path(sys.argv[1]), "the state folder")
except Taken as taken:
    print(taken, flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_lock_ends_with_its_process_however_that_dies(tmp_path: Path):
    path = tmp_path / "state" / "lock"
    first = hold(path)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    with pytest.raises(Taken, match=rf"the state folder is served by another agent \(pid {first.pid}\)"):
        Lock(path, "the state folder")
    first.kill()
    first.communicate()
    lock = Lock(path, "the state folder")
    assert path.read_text() == f"{os.getpid()}\n"
    second = hold(path)
    assert second.communicate(timeout=30)[0].strip().endswith(f"(pid {os.getpid()})")
    lock.release()
    third = hold(path)
    assert third.communicate("\n", timeout=30)[0] == "held\n"


def test_a_state_folder_that_is_made_is_its_users_alone(tmp_path: Path):
    Lock(tmp_path / "state" / "lock", "it").release()
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / "lock").stat().st_mode) == 0o600


def test_an_agent_without_room_for_its_state_says_where_and_ends(place: Path):
    code = f"""
import resource
from rankside_agent.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
main(["agent", "--endpoint", {str(place / "a.sock")!r}, "--state-dir", {str(place / "state")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"{place}/state" in done.stderr
    assert "File too large" in done.stderr
