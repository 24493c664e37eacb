"""Where the agent is looked for, and that one is started once."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import pytest

from rankside import endpoint

FAKE = """
    import os, socket, sys, time
    with open("started", "a") as file: file.write(f"{os.getpid()} {sys.argv[1:]} {os.getcwd()}\\n")
    time.sleep(0.3)  # eight others look meanwhile
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.environ["RANKSIDE_ENDPOINT"].removeprefix("ipc://"))
    server.listen(100)
    while os.path.exists("started") and not os.path.exists("stop"): time.sleep(0.02)
    """


@pytest.fixture
def listening():
    """Listen on a path, as an agent would."""
    made = []

    def listen(path: Path, backlog: int = 10) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(backlog)
        made.append(server)
        return server

    yield listen
    for each in made:
        each.close()


@pytest.fixture
def fake_command(here):
    """A command that stands for the agent's; it ends when the test does."""
    path = here / "fake_agent.py"
    path.write_text(textwrap.dedent(FAKE))
    yield [sys.executable, str(path)]
    (here / "stop").touch()


# -- choosing ------------------------------------------------------------------------------------------


def test_the_argument_comes_before_the_environment_and_that_before_what_is_there(
    here, monkeypatch, listening
):
    service = here / "service.sock"
    monkeypatch.setattr(endpoint, "SERVICE_SOCKET", str(service))
    monkeypatch.setattr(endpoint, "default_endpoint", lambda: "ipc:///mine")
    monkeypatch.setenv("RANKSIDE_ENDPOINT", "ipc:///named")
    assert endpoint.choose("ipc:///given") == ("ipc:///given", False)
    assert endpoint.choose(None) == ("ipc:///named", False)
    assert endpoint.choose("auto") == ("ipc:///mine", True)
    monkeypatch.delenv("RANKSIDE_ENDPOINT")
    assert endpoint.choose(None) == ("ipc:///mine", True)
    monkeypatch.setenv("RANKSIDE_ENDPOINT", "")
    assert endpoint.choose(None) == ("ipc:///mine", True)
    server = listening(service)
    assert endpoint.choose(None) == (f"ipc://{service}", False)
    server.close()  # its file stays: a stale socket is no service
    assert service.exists()
    assert endpoint.choose(None) == ("ipc:///mine", True)


def test_a_bare_path_is_a_socket_s(monkeypatch):
    monkeypatch.setenv("RANKSIDE_ENDPOINT", "/run/x/agent.sock")
    assert endpoint.choose(None) == endpoint.choose("ipc:///run/x/agent.sock")
    assert endpoint.choose(None) == ("ipc:///run/x/agent.sock", False)
    assert endpoint.spool_group(None) == endpoint.spool_group("ipc:///run/x/agent.sock")


@pytest.mark.parametrize(
    "given",
    [
        *("a.sock", "ipc://a.sock", "ipc://@abstract", "ipc://", "/", "/run/x/", "/a\0b", " /a"),
        *(
            "tcp://host",
            "tcp://:5555",
            "tcp://host:0",
            "tcp://host:65536",
            "tcp://host:port",
            "inproc://x",
            "x",
            "",
            7,
            None,
            b"/a",
        ),
    ],
)
def test_what_is_no_endpoint_is_refused_with_the_choices(given):
    with pytest.raises(
        ValueError, match=r"^endpoint: .* is not allowed; choices: auto, /a/path or ipc:///a/"
    ):
        endpoint.named(given)


def test_a_path_that_no_socket_can_have_is_refused():
    assert endpoint.named("/" + "x" * 106).endswith("x")
    with pytest.raises(ValueError, match="107 bytes"):
        endpoint.named("/" + "x" * 107)


def test_somebody_listens_only_where_connections_are_taken(here, listening):
    path = here / "a.sock"
    assert not endpoint.listens(f"ipc://{path}")
    server = listening(path)
    assert endpoint.listens(f"ipc://{path}")
    server.close()
    assert path.exists()
    assert not endpoint.listens(f"ipc://{path}")
    (here / "file").write_text("no socket")
    assert not endpoint.listens(f"ipc://{here}/file")
    assert not endpoint.listens(f"ipc://{here}")
    assert not endpoint.listens("ipc://" + "x" * 300)
    assert endpoint.listens("tcp://127.0.0.1:1")  # only an answer tells


def test_a_frozen_agent_with_a_full_queue_still_listens(here, listening):
    path, waiting = here / "a.sock", []
    listening(path, backlog=0)
    for _ in range(3):
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(str(path))
    assert endpoint.listens(f"ipc://{path}")
    for each in waiting:
        each.close()


# -- folders -------------------------------------------------------------------------------------------


def test_the_runtime_folder_is_this_users_alone(here):
    folder = endpoint.runtime_dir(here)
    assert folder == here / f"rankside-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert endpoint.runtime_dir(here).stat().st_mode & 0o777 == 0o700


def test_a_symlink_or_a_file_in_its_place_is_refused(here):
    name = here / f"rankside-{os.getuid()}"
    (here / "elsewhere").mkdir()
    name.symlink_to(here / "elsewhere")
    with pytest.raises(PermissionError, match="is not a folder of uid"):
        endpoint.runtime_dir(here)
    name.unlink()
    name.write_text("")
    with pytest.raises(OSError, match="exists"):
        endpoint.runtime_dir(here)


def test_a_folder_of_somebody_elses_is_refused(here):
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    name = here / "rankside-0"
    name.mkdir()
    os.chown(name, 12345, 12345)
    with pytest.raises(PermissionError, match="set RANKSIDE_ENDPOINT"):
        endpoint.runtime_dir(here)
    with pytest.raises(PermissionError, match="set RANKSIDE_SPOOL_DIR"):
        endpoint.own(name)


def test_a_spool_root_of_our_choosing_must_be_ours_and_a_named_one_is_its_users_to_share(here, monkeypatch):
    (here / "target").mkdir()
    (here / "link").symlink_to(here / "target")
    endpoint.own_default(here / "link")  # RANKSIDE_SPOOL_DIR is set
    monkeypatch.delenv("RANKSIDE_SPOOL_DIR")
    with pytest.raises(PermissionError):
        endpoint.own_default(here / "link")
    endpoint.own_default(here / "fresh")
    assert (here / "fresh").stat().st_mode & 0o777 == 0o700


def test_spools_lie_in_memory_first_and_where_they_are_told_to(monkeypatch, here):
    assert endpoint.spool_roots() == [here / "spool"]
    monkeypatch.delenv("RANKSIDE_SPOOL_DIR")
    monkeypatch.setenv("TMPDIR", str(here))
    monkeypatch.setattr(tempfile, "tempdir", None)
    uid = os.getuid()
    assert endpoint.spool_roots() == [Path(f"/dev/shm/rankside-{uid}"), here / f"rankside-spool-{uid}"]


def test_agents_on_other_endpoints_have_spools_of_their_own(monkeypatch):
    groups = [endpoint.spool_group(name) for name in ("ipc:///a", "ipc:///b", "tcp://h:1")]
    assert len({*groups, "node"}) == 4
    assert all(len(group) < 20 and "/" not in group for group in groups)
    monkeypatch.setenv("RANKSIDE_ENDPOINT", "ipc:///a")
    assert endpoint.spool_group(None) == groups[0]
    monkeypatch.delenv("RANKSIDE_ENDPOINT")
    default = f"ipc:///tmp/rankside-{os.getuid()}/agent.sock"
    for name in (None, "auto", default, f"ipc://{endpoint.SERVICE_SOCKET}"):
        assert endpoint.spool_group(name) == "node"


# -- starting ------------------------------------------------------------------------------------------


def test_eight_ranks_that_come_at_once_start_one_agent(here, script, fake_command):
    target = f"ipc://{here}/auto.sock"
    body = """
        import json, sys
        from pathlib import Path
        from rankside import endpoint
        print("ready", flush=True)
        sys.stdin.readline()
        print(endpoint.start_agent(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])))
        """
    ranks = [script(body, target, json.dumps(fake_command), str(here), RANK=str(n)) for n in range(8)]
    for rank in ranks:
        assert rank.line() == "ready"
    for rank in ranks:
        rank.process.stdin.write("go\n")
        rank.process.stdin.flush()
    assert [rank.line() for rank in ranks] == ["None"] * 8
    assert len((here / "started").read_text().splitlines()) == 1
    assert endpoint.listens(target)


def test_a_started_agent_knows_its_endpoint_and_nothing_of_the_rank(here, fake_command, monkeypatch):
    environment = here / "environment"
    program = Path(fake_command[1])
    program.write_text(
        f"import os\nopen({str(environment)!r}, 'w').write(repr(dict(os.environ)))\n" + program.read_text()
    )
    for name in ("RANK", "LOCAL_RANK", "WANDB_SERVICE", "RANKSIDE_DISABLE", "KEPT"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("RANKSIDE_ENDPOINT", "auto")
    assert endpoint.start_agent(f"ipc://{here}/auto.sock", fake_command, here) is None
    found = eval(environment.read_text())
    assert found["RANKSIDE_ENDPOINT"] == f"ipc://{here}/auto.sock"
    assert found["KEPT"] == "7"
    assert found["PYTHONUTF8"] == "1", "a path of any rank's may be spelled in it"
    assert not {"RANK", "LOCAL_RANK", "WANDB_SERVICE", "RANKSIDE_DISABLE"} & set(found)
    assert (here / "started").read_text().split()[-1] == str(here)  # not the training's folder


def test_an_agent_that_ends_at_its_start_is_told_with_its_log(here):
    command = [sys.executable, "-c", "import sys; print('no room'); sys.exit(3)"]
    told = endpoint.start_agent(f"ipc://{here}/auto.sock", command, here)
    assert told == f"the agent ended with 3 at its start; see {here}/agent.log"
    assert (here / "agent.log").read_text() == "no room\n"


def test_one_that_listens_already_is_not_started_again(here, listening):
    listening(here / "auto.sock")
    assert endpoint.start_agent(f"ipc://{here}/auto.sock", ["/nonexistent"], here) is None


def test_giving_up_ends_the_wait(here):
    give_up = threading.Event()
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    threading.Timer(0.3, give_up.set).start()
    assert endpoint.start_agent(f"ipc://{here}/auto.sock", command, here, give_up.is_set) is None
    assert endpoint.start_agent(f"ipc://{here}/auto.sock", ["/nonexistent"], here, give_up.is_set) is None


def test_without_an_installed_agent_it_says_what_to_install(here, monkeypatch):
    monkeypatch.setattr(endpoint, "_agent_command", lambda: None)
    assert "pip install 'rankside[agent]'" in endpoint.start_agent(f"ipc://{here}/auto.sock", None, here)


def test_the_command_on_the_path_is_used_where_the_package_is_elsewhere(here, run, monkeypatch):
    """The agent may be installed in an environment of its own."""
    script = here / "rankside"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    out, _ = run(
        """
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "rankside_agent" else found(name)
        from rankside import endpoint
        print(endpoint._agent_command())
        """,
        PATH=f"{here}:/usr/bin:/bin",
    )
    assert out.strip() == repr([str(script), "agent", "--auto"])


def test_secrets_are_said_only_where_nobody_else_can_listen(here):
    assert endpoint.is_private(f"ipc://{here}/a.sock") is True
    (here / "a.sock").touch()
    assert endpoint.is_private(f"ipc://{here}/a.sock") is True
    assert endpoint.is_private(f"ipc://{here}/none/a.sock") is None
    for open_to_all in ("tcp://127.0.0.1:5555", "ipc:///tmp/a.sock", "ipc://@abstract", "ipc://a.sock"):
        assert endpoint.is_private(open_to_all) is False
    if os.getuid() == 0:
        os.chown(here / "a.sock", 12345, 12345)
        assert endpoint.is_private(f"ipc://{here}/a.sock") is False
    here.chmod(0o770)
    assert endpoint.is_private(f"ipc://{here}/b.sock") is False
