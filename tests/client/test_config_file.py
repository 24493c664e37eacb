"""Files that are no configuration, or not quite: refused at once, with file, key and what may be."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

import rankside
from rankside.settings import ConfigError, resolve

pytest.importorskip("yaml")


@pytest.fixture
def write(here):
    def at(name, text):
        path = here / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return at


def refused(config, environ=None, **overrides):
    with pytest.raises(ConfigError) as error:
        resolve(config, overrides, environ={} if environ is None else environ)
    return str(error.value)


# -- what is no file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.yaml", "run.json", "run.toml", "run"])
def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(here, write, name):
    os.mkfifo(here / name)
    assert refused(here / name) == f"{here}/{name}: is not a regular file"
    for word in ("extends", "includes"):
        asked = write("asks.yaml", f"{word}: {name}")
        assert refused(asked) == f"{asked}: {word}: {here}/{name}: is not a regular file"


def test_a_device_a_folder_and_what_is_missing_are_told_apart(here, write):
    (here / "folder").mkdir()
    for target, told in {
        "/dev/zero": "is not a regular file",
        "folder": "Is a directory",
        "gone": "No such file or directory",
    }.items():
        link = here / f"to-{os.path.basename(target)}"
        link.symlink_to(target)
        assert refused(link) == f"{link}: {told}"
        asked = write("asks.yaml", f"extends: [{link.name}]")
        assert refused(asked) == f"{asked}: extends: {link}: {told}"


@pytest.mark.parametrize("config", ["", " ", "\n"])
def test_an_empty_name_is_not_this_folder(config):
    assert refused(config) == f"init(): config: {config!r} is not allowed; choices: a path, a dict"


def test_a_name_that_no_file_can_have_is_shown_so_that_it_can_be_read():
    assert refused("a\0b") == "a\\x00b: cannot be a file"


class Unreadable(Mapping):
    """A mapping that has names and no values."""

    def __getitem__(self, name):
        raise RuntimeError("out of order")

    def __iter__(self):
        return iter(["log_interval", "metrics"])

    def __len__(self):
        return 2


def test_a_mapping_that_raises_is_told_of(here):
    told = "init(): config: a Unreadable whose names and values cannot be read: RuntimeError"
    assert refused(Unreadable()) == told
    with pytest.raises(ConfigError, match="RuntimeError"):
        rankside.init(exp_root=here / "exp", config=Unreadable())
    told = "config: metrics: its names and values cannot be read: RuntimeError"
    assert refused({"metrics": Unreadable()}) == told


# -- what is in it -------------------------------------------------------------------------------------


def test_a_file_that_is_too_large_is_refused_unread(write):
    path = write("run.yaml", "\n".join(f"k{number}: 0" for number in range(400_000)))
    assert refused(path) == f"{path}: has more than 524288 bytes; this is no configuration"


def test_merges_that_stand_for_billions_are_refused(write):
    levels = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{f'*a{n - 1}, ' * 20}]}}" for n in range(1, 12))]
    assert "merges stand for too many values" in refused(write("run.yaml", "\n".join(levels)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.toml", "log_interval = 7"),
        ("run.yaml", "log_interval: 7"),
        ("run.json", '{"log_interval": 7}'),
        ("run", "log_interval: 7"),
    ],
)
def test_the_mark_that_windows_puts_before_a_text_is_no_part_of_it(write, name, text):
    if name.endswith("toml"):
        pytest.importorskip("tomllib")
    assert resolve(write(name, b"\xef\xbb\xbf" + text.encode()), {}).values["log_interval"] == 7


def test_a_name_that_stands_twice_is_refused(write):
    path = write("run.yaml", "log_interval: 3\nframework: megatron\nlog_interval: 4")
    assert refused(path) == f"{path}: the name 'log_interval' stands twice, in lines 1 and 3"
    asked = write("asks.yaml", "extends: run.yaml")
    assert refused(asked) == f"{path}: the name 'log_interval' stands twice, in lines 1 and 3"
    path = write("run.json", '{"metrics": {"log_freq": 1, "log_freq": 2}}')
    assert refused(path) == f"{path}: the name 'log_freq' stands twice in one group"


def test_a_preset_may_hold_one_for_primus_has_it_so(write):
    write("preset.yaml", "log_interval: 3\nlog_interval: 4")
    path = write("exp.yaml", "modules: {pre_trainer: {framework: megatron, config: preset.yaml}}")
    assert resolve(path, {}).values["log_interval"] == 4


# -- secrets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["token.yaml", "api_key.yaml", "my-secret/a.yaml", "password", "hf_token.json"]
)
def test_a_file_whose_name_is_a_secret_s_keeps_its_name_and_the_key(write, name):
    path = write(name, '{"log_interval": "five"}')
    told = f"{path}: log_interval: 'five' is not allowed; choices: a whole number from 1"
    assert refused(path) == told
    path = write(name, '{"metrics": {"log_freq": "five"}}')
    assert refused(path).startswith(f"{path}: metrics.log_freq: 'five' is not allowed")
    assert refused(f"{path}.gone") == f"{path}.gone: No such file or directory"


def test_values_are_masked_all_the_same(write):
    secret = "hunter2hunter2"
    for value in (f"token={secret}", f"https://a:{secret}@host", f"--api-key {secret}", {"api_key": secret}):
        assert secret not in refused({"log_interval": value})
        assert secret not in refused({"metrics": value if isinstance(value, str) else [value]})
    environ = {"MY_PASSWORD": secret}
    assert "***" in refused({"log_interval": f"x{secret}"}, environ)
    assert secret not in refused(write(f"{secret}.yaml", "log_interval: five"), environ)


def test_a_project_that_is_named_as_a_secret_is_told_of():
    environ = {"MY_PASSWORD": "hunter2hunter2"}
    found = resolve({"wandb_project": "hunter2hunter2", "wandb_entity": "team"}, {}, environ=environ)
    (told,) = found.remarks
    assert told.startswith("config: wandb_project: holds the value of a secret variable")
    assert "hunter2" not in told
    assert resolve({"wandb_project": "llama"}, {}, environ=environ).remarks == ()
