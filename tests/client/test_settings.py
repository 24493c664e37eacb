"""What init was given: files, dicts and keywords, in this order, checked with place and choices."""

from __future__ import annotations

import getpass
import json
import os
import sys

import hypothesis
import pytest
from hypothesis import strategies as st

import rankside
from rankside import settings
from rankside.parameters import PARAMETERS
from rankside.place import find_place
from rankside.settings import ConfigError, resolve

DEFAULTS = {name: row.default for name, row in PARAMETERS.items()}
YAML = """
work_group: amd
team: amd
log_interval: 5
disable_tensorboard: false
profile_ranks: [0, 7]
metrics:
  log_freq: 3
  enable_wandb: true
profiling:
  enable_profiling: yes
"""


def test_without_anything_every_parameter_has_its_default():
    assert resolve(None, {}) == (DEFAULTS, (), (), {}, {})


def test_a_yaml_file_flat_and_nested(here):
    pytest.importorskip("yaml")
    path = here / "run.yaml"
    path.write_text(YAML)
    changed = {
        "log_interval": 5,
        "disable_tensorboard": False,
        "profile_ranks": [0, 7],
        "metrics.log_freq": 3,
        "metrics.enable_wandb": True,
        "profiling.enable_profiling": True,
        "framework": "torchtitan",
    }
    for given in (path, str(path)):
        found = resolve(given, {})
        assert found.values == {**DEFAULTS, **changed}
        assert found.notes == (f"{path}: unknown parameters ignored: team",)


def test_a_json_file(here):
    path = here / "run.json"
    path.write_text(json.dumps({"log_interval": 5, "metrics": {"log_freq": 3}}))
    changed = {"log_interval": 5, "metrics.log_freq": 3, "framework": "torchtitan"}
    assert resolve(path, {}).values == {**DEFAULTS, **changed}


def test_keywords_come_before_the_file_or_dict():
    found = resolve({"log_interval": 5, "log_progress": True}, {"log_interval": 7})
    assert found.values == {**DEFAULTS, "log_interval": 7, "log_progress": True}


@pytest.mark.parametrize(
    ("given", "framework"),
    [
        ({}, "megatron"),
        ({"log_throughput": True}, "megatron"),
        ({"metrics": {"save_for_all_ranks": True}}, "megatron"),
        ({"metrics": {"enable_wandb": True}}, "torchtitan"),
        ({"profiling.profile_freq": 5}, "torchtitan"),
        ({"profiling.profile_freq": 5, "framework": "megatron"}, "megatron"),
        ({"framework": "torchtitan"}, "torchtitan"),
    ],
)
def test_whoever_names_torchtitans_parameters_trains_with_it(given, framework):
    assert resolve(given, {}).values["framework"] == framework
    assert resolve(None, given).values["framework"] == framework


def test_it_is_known_what_was_given_and_where(here):
    path = here / "run.json"
    path.write_text(json.dumps({"log_interval": 5, "metrics": {"log_freq": 3}}))
    found = resolve(path, {"log_interval": 7, "profile_ranks": [0]})
    assert found.given == {
        "log_interval": "init()",
        "metrics.log_freq": str(path),
        "profile_ranks": "init()",
    }
    assert resolve({"log_interval": 100}, {}).given == {"log_interval": "config"}


def test_nested_and_dotted_names_are_the_same():
    for given in ({"metrics": {"log_freq": 3}}, {"metrics.log_freq": 3}):
        assert resolve(given, {}).values["metrics.log_freq"] == 3
        assert resolve(None, given).values["metrics.log_freq"] == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"log_interval": 0}, "config: log_interval: 0 is not allowed; choices: a whole number from 1"),
        ({"profile": "maybe"}, "config: profile: 'maybe' is not allowed; choices: true, false"),
        (
            {"file_sink_level": "LOUD"},
            "config: file_sink_level: 'LOUD' is not allowed; choices: TRACE, DEBUG",
        ),
        ({"metrics": {"log_freq": "x"}}, "config: metrics.log_freq: 'x' is not allowed"),
        ({"profile_ranks": "0"}, "config: profile_ranks: '0' is not allowed; choices: a list of whole"),
        ({"timing_log_option": "min"}, "choices: max, minmax, all"),
        ({"log_interval": None}, "config: log_interval: None is not allowed"),
        ({"profile_step_end": 2**70}, "profile_step_end: "),
        *(
            ({"metrics": {"save_tb_folder": folder}}, "metrics.save_tb_folder: ")
            for folder in ("/tmp/tb", "..", "a/../../b", "", "a\0b", 3)
        ),
        ({"framework": "jax"}, "config: framework: 'jax' is not allowed; choices: megatron, torchtitan"),
        ({"log_interval": "1.5"}, "config: log_interval: '1.5' is not allowed"),
        ({"metrics.save_tb_folder": "/tb"}, "choices: a folder inside exp_root: a relative path without .."),
    ],
)
def test_a_bad_value_is_refused_with_its_place_and_the_choices(given, told):
    with pytest.raises(ConfigError) as error:
        resolve(given, {})
    assert told in str(error.value)


def test_a_bad_value_names_the_file_it_stands_in(here):
    path = here / "run.json"
    path.write_text('{"profile": 9}')
    with pytest.raises(ConfigError, match=f"{path}: profile: 9 is not allowed"):
        resolve(path, {})
    with pytest.raises(ConfigError, match=r"init\(\): profile: 9 is not allowed"):
        resolve(None, {"profile": 9})


def test_a_folder_inside_is_taken_as_it_is():
    for folder in ("tb", "tb/mine", ".", "a..b"):
        assert resolve({"metrics.save_tb_folder": folder}, {}).values["metrics.save_tb_folder"] == folder


def test_profiling_turns_tensorboard_on_and_says_so_where_it_was_off():
    for given in ({"profile": True}, {"profile": "yes", "disable_tensorboard": True}):
        found = resolve(given, {})
        assert found.values["disable_tensorboard"] is False
        assert found.remarks == ("profile is true: disable_tensorboard is set to false",)
    found = resolve({"profile": True, "disable_tensorboard": False}, {})
    assert (found.values["disable_tensorboard"], found.remarks) == (False, ())


def test_null_is_allowed_where_it_is_the_default():
    assert resolve({"wandb_project": None, "sink_level": None}, {}).values == DEFAULTS


def test_unknown_names_are_one_remark_with_the_likely_ones_named():
    given = {f"megatron_{number}": 1 for number in range(300)} | {"log_intervall": 3, "disable_wanbd": True}
    (note,) = resolve(given, {}).notes
    assert note.startswith("config: unknown parameters ignored: ")
    assert "log_intervall (did you mean log_interval?)" in note
    assert "disable_wanbd (did you mean disable_wandb?)" in note
    assert note.endswith("297 more")
    (note,) = resolve({"a_b": 1, 7: 2}, {}).notes
    assert note == "config: unknown parameters ignored: a_b, 7"
    (note,) = resolve({"metrics": {"log_fre": 1}}, {}).notes
    assert "metrics.log_fre (did you mean metrics.log_freq?)" in note


@pytest.mark.parametrize("value", [3, "fast", True, ["log_freq"]])
def test_a_section_that_is_given_a_plain_value_is_refused_with_what_it_may_hold(here, value):
    told = f"metrics: {value!r} is not allowed, it is a section; it may hold enable_wandb, enable_tensor"
    (here / "run.json").write_text(json.dumps({"metrics": value}))
    for config, overrides, place in (
        ({"metrics": value}, {}, "config"),
        (here / "run.json", {}, f"{here}/run.json"),
        (None, {"metrics": value}, "init()"),
    ):
        with pytest.raises(ConfigError) as error:
            resolve(config, overrides)
        assert str(error.value).startswith(f"{place}: {told}")
    assert resolve({"metrics": None, "profiling": {}}, {}).values == DEFAULTS


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("run.json", "{", "Expecting property name"),
        ("run.json", "[1]", "holds a list; names and values are wanted"),
        ("run.yaml", "a: [1", "expected ',' or ']'"),
        ("run.yaml", "just text", "holds a str; names and values are wanted"),
        ("run.yaml", "a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_its_name(here, name, text, told):
    path = here / name
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        resolve(path, {})
    assert str(path) in str(error.value)
    assert told in str(error.value)


def test_a_missing_file_is_refused(here):
    with pytest.raises(ConfigError, match="No such file"):
        resolve(here / "none.yaml", {})
    (here / "latin").write_bytes(b"\xff\xfe: 1")
    with pytest.raises(ConfigError, match="latin"):
        resolve(here / "latin", {})


def test_an_empty_file_changes_nothing(here):
    pytest.importorskip("yaml")
    (here / "run.yaml").write_text("")
    assert resolve(here / "run.yaml", {}).values == DEFAULTS


def test_yaml_without_its_package_says_what_to_do(here, monkeypatch):
    (here / "run.yaml").write_text("a: 1")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="pip install pyyaml; or give a dict"):
        resolve(here / "run.yaml", {})


# -- places --------------------------------------------------------------------------------------------


def test_a_place_is_built_as_primus_builds_it():
    found = find_place("llama", None, "/w", "amd", "ann", environ={})
    assert found == ("/w/amd/ann/llama", "llama", "amd", "ann")


def test_the_environment_fills_what_was_not_given():
    environ = {
        "PRIMUS_TEAM": "amd",
        "PRIMUS_USER": "ann",
        "PRIMUS_EXP_NAME": "llama",
        "PRIMUS_WORKSPACE": "/w",
    }
    assert find_place(None, None, None, None, None, environ) == ("/w/amd/ann/llama", "llama", "amd", "ann")
    assert find_place("mine", None, None, "t", "u", environ).exp_root == "/w/t/u/mine"


def test_a_given_root_is_taken_as_it_is(here):
    assert find_place(None, here / "a b" / "run", None, "t", "u", {}) == (f"{here}/a b/run", "run", "t", "u")
    assert find_place("name", here / "run", None, "t", "u", {}).exp_name == "name"


@pytest.mark.parametrize("name", ["../../etc", "..", ".", "a/../../b", "a\\b", "%2e%2e"])
def test_no_name_leaves_the_workspace(name):
    for found in (find_place(name, None, "/w", "t", "u", {}), find_place("e", None, "/w", name, name, {})):
        assert found.exp_root.startswith("/w/")
        assert ".." not in found.exp_root.split("/")


@pytest.mark.parametrize("name", ["/", "//", "///"])
@pytest.mark.parametrize("which", ["exp_name", "work_group", "user_name", "environment", "file"])
def test_a_name_without_a_folder_is_refused_for_it_would_be_the_folder_above(name, which):
    names = {"exp_name": None, "work_group": "t", "user_name": "u"}
    environ = {"PRIMUS_EXP_NAME": name} if which == "environment" else {}
    told = {"exp_name": name} if which == "file" else {}
    if which in names:
        names = {"exp_name": "e", **names, which: name}
    with pytest.raises(ConfigError, match=r"'/+' names no folder"):
        find_place(workspace="/w", exp_root=None, environ=environ, told=told, **names)


@hypothesis.settings(max_examples=300)
@hypothesis.given(st.text("/.\\%~ a\n\0é\ud800", max_size=12))
def test_whatever_its_name_a_run_lies_below_its_users_folder(name):
    try:
        root = find_place(name, None, "/w", "t", "u", {}).exp_root
    except ConfigError:
        assert not name.strip("/") or set(name) & {"\0", "\n"}
        return
    assert os.path.commonpath([root, "/w/t/u"]) == "/w/t/u"
    assert root != "/w/t/u"
    assert os.path.normpath(root) == root


def test_a_long_name_is_cut_and_one_too_deep_for_the_kernel_is_refused():
    found = find_place("x" * 5000, None, "/w", "t", "u", {})
    assert all(len(part.encode()) <= 200 for part in found.exp_root.split("/"))
    with pytest.raises(ConfigError, match="no file below it"):
        find_place("deep/" * 1000, None, "/w", "t", "u", {})


@pytest.mark.parametrize("char", ["\0", "\n", "\x1b", "\x7f", "\x85"])
@pytest.mark.parametrize("which", ["exp_name", "work_group", "user_name"])
def test_a_control_character_in_a_name_is_refused_with_the_name(here, char, which):
    given = {"exp_name": "e", "workspace": here, which: f"a{char}b"}
    told = f"init(): {which}: {f'a{char}b'!r} is not allowed; choices: a text without control characters"
    for more in ({}, {"exp_root": here / "run"}):
        with pytest.raises(ConfigError) as error:
            rankside.init(**given, **more)
        assert str(error.value) == told


@pytest.mark.parametrize("which", ["exp_root", "workspace"])
def test_a_folder_that_is_no_path_is_refused(which):
    for bad in ("a\0b", 5, b"x", " "):
        with pytest.raises(ConfigError, match=rf"^init\(\): {which}: .* is not allowed; choices: a path$"):
            rankside.init(**{which: bad})


def test_a_name_that_is_too_long_is_refused_at_the_start(here):
    with pytest.raises(ConfigError, match="exp_name is too long"):
        rankside.init(exp_name="x" * 5000, workspace=here)


def test_defaults_of_a_place(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    assert find_place(None, None, "/w", None, None, {}) == (
        "/w/default/ann/experiment",
        "experiment",
        "default",
        "ann",
    )


def test_a_uid_without_a_name_is_a_name_too(monkeypatch):
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert find_place("e", None, "/w", None, None, {}).user.isdecimal()


def test_limits_are_checked():
    settings.check_limits(1, 0, None)
    settings.check_limits(64 << 20, 2.5, "tcp://h:1")
    for bad in ((0, 2, None), (True - 1, 2, None), (1, -1, None), (1, "2", None), (1, 2, 7), (1, 2, "x")):
        with pytest.raises(ConfigError, match="choices"):
            settings.check_limits(*bad)
