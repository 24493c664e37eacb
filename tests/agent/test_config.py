"""The agent's settings: defaults that need no file, and errors that name file, key and what is allowed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rankside.endpoint import default_endpoint
from rankside.settings import ConfigError, check_limits
from rankside_agent.config import Settings, SettingsError, load


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RANKSIDE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.yaml"


def test_nothing_need_be_set():
    settings = load(None)
    assert settings == Settings()
    assert settings.resolved_endpoint() == default_endpoint()
    assert settings.resolved_state_dir() == Path(f"/var/tmp/rankside-{os.getuid()}/node")


def test_a_file_is_read_and_the_command_line_is_on_top(file: Path, monkeypatch: pytest.MonkeyPatch):
    file.write_text("rotation_bytes: 5000\nkeep_rotated: null\ngzip_rotated: true\nspool_dirs: [/a, /b]\n")
    settings = load(str(file), rotation_bytes=6000, endpoint=None)
    assert (settings.rotation_bytes, settings.gzip_rotated, settings.spool_dirs) == (6000, True, ("/a", "/b"))
    monkeypatch.setenv("RANKSIDE_CONFIG", str(file))
    assert load(None).rotation_bytes == 5000


@pytest.mark.parametrize("content", ["", "# only a remark\n", "{}", "null", "endpoint:\nrotation_bytes:\n"])
def test_an_empty_file_or_an_empty_value_means_the_defaults(file: Path, content: str):
    file.write_text(content)
    assert load(str(file)) == Settings()


@pytest.mark.parametrize(
    ("content", "key", "allowed"),
    [
        ("rotation_bytes: 10", "rotation_bytes", "4096"),
        ("rotation_bytes: 10MB", "rotation_bytes", "integer"),
        ("rotation_bytes: -1", "rotation_bytes", "4096"),
        ("rotation_bytes: 1.5", "rotation_bytes", "integer"),
        ("keep_rotated: -1", "keep_rotated", "0"),
        ("keep_rotated: some", "keep_rotated", "integer"),
        ("gzip_rotated: perhaps", "gzip_rotated", "boolean"),
        ("journal_limit_bytes: 5", "journal_limit_bytes", "1048576"),
        ("segment_bytes: 5", "segment_bytes", "65536"),
        ("stop_grace_seconds: -1", "stop_grace_seconds", "0"),
        ("stop_grace_seconds: .nan", "stop_grace_seconds", "0"),
        ("lost_after_seconds: 0", "lost_after_seconds", "1"),
        ("allowed_roots: /data", "allowed_roots", "tuple"),
        ("spool_dirs: {a: b}", "spool_dirs", "tuple"),
        ("endpoint: 5", "endpoint", "string"),
        ("rotation_byte: 5000", "rotation_byte", "rotation_bytes"),
        ("on: 5", "True", "string"),
        ("5: 5", "5", "string"),
    ],
)
def test_a_bad_value_is_refused_with_file_key_and_what_is_allowed(
    file: Path, content: str, key: str, allowed: str
):
    file.write_text(content)
    with pytest.raises(SettingsError) as caught:
        load(str(file))
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert key in message
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "content", [b"a: [", b"- 1\n- 2\n", b"just text", b"\xff\xfe\x00", b"a: !!python/object:x {}"]
)
def test_a_file_that_is_no_configuration_is_refused_by_name(file: Path, content: bytes):
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=str(file)):
        load(str(file))


def test_a_file_that_is_not_there_or_a_folder_is_refused_by_name(tmp_path: Path):
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(SettingsError, match=str(path)):
            load(str(path))


def test_a_bad_override_is_refused_too():
    with pytest.raises(SettingsError, match="settings: rotation_bytes: 1"):
        load(None, rotation_bytes=1)


@pytest.mark.parametrize("named", ["auto", ""])
def test_auto_is_this_users_own_endpoint(monkeypatch: pytest.MonkeyPatch, named: str):
    monkeypatch.setenv("RANKSIDE_ENDPOINT", named)
    assert load(None).resolved_endpoint() == default_endpoint()
    assert load(None, endpoint="ipc:///x/a.sock").resolved_endpoint() == "ipc:///x/a.sock"


def test_an_endpoint_is_written_as_ranks_write_it_and_refused_in_the_same_words(monkeypatch):
    monkeypatch.setenv("RANKSIDE_ENDPOINT", "/x/a.sock")
    assert load(None).resolved_endpoint() == "ipc:///x/a.sock"
    assert load(None, endpoint="/y/a.sock").resolved_endpoint() == "ipc:///y/a.sock"
    for bad in ("a.sock", "ipc://a.sock", "http://h:1"):
        with pytest.raises(ValueError) as by_agent:
            load(None, endpoint=bad).resolved_endpoint()
        with pytest.raises(ConfigError) as by_rank:
            check_limits(1, 0, bad)
        assert str(by_rank.value) == f"init(): {by_agent.value}"


def test_another_endpoint_has_a_state_folder_of_its_own(monkeypatch: pytest.MonkeyPatch):
    one, other = (load(None, endpoint=f"ipc:///{name}/a.sock").resolved_state_dir() for name in "xy")
    assert len({one, other, load(None).resolved_state_dir()}) == 3
    monkeypatch.setenv("RANKSIDE_STATE_DIR", "/s")
    assert load(None).resolved_state_dir() == Path("/s")
    assert load(None, state_dir="/t").resolved_state_dir() == Path("/t")


def test_settings_cannot_be_changed_later():
    settings: Any = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.rotation_bytes = 5000
