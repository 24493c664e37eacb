"""Experiments as Primus writes them: sections, presets, variables, extends; every fault names its place."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankside.parameters import PARAMETERS
from rankside.place import find_place
from rankside.settings import ConfigError, resolve

pytest.importorskip("yaml")

EXAMPLES = Path(__file__).parents[2] / "configs" / "examples"
DEFAULTS = {name: row.default for name, row in PARAMETERS.items()}
SECRET = "hunter2hunter2"
EXPERIMENT = """
work_group: ${PRIMUS_TEAM:amd}
user_name: ${PRIMUS_USER:root}
exp_name: ${PRIMUS_EXP_NAME:llama-pretrain}
workspace: ${PRIMUS_WORKSPACE:./output}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama.yaml
    overrides:
      log_interval: 5
      train_iters: 50
"""


@pytest.fixture
def write(here):
    """A file with this text."""

    def at(name: str, text: str) -> Path:
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return at


def changed(found) -> dict:
    return {name: value for name, value in found.values.items() if value != DEFAULTS[name]}


def refused(config, module_name="pretrain", environ=None) -> str:
    with pytest.raises(ConfigError) as error:
        resolve(config, {}, module_name, environ if environ is not None else {})
    return str(error.value)


def tried(config, environ):
    """What it comes to, or the error: nothing but a ConfigError is one."""
    try:
        return resolve(config, {}, "pretrain", environ), None
    except ConfigError as error:
        return None, error


def module(body: str, name: str = "pre_trainer") -> str:
    return f"modules:\n  {name}:\n    overrides:\n      {body}\n"


# -- whose it is ---------------------------------------------------------------------------------------


def test_an_experiment_says_whose_it_is_and_where_its_files_go(write):
    found = resolve(write("exp.yaml", EXPERIMENT), {}, "pretrain", {})
    place = find_place(None, None, None, None, None, {}, found.names)
    assert place == (os.path.abspath("output/amd/root/llama-pretrain"), "llama-pretrain", "amd", "root")


def test_the_environment_is_in_it_and_what_init_was_given_goes_before(write):
    environ = {
        "PRIMUS_TEAM": "core",
        "PRIMUS_USER": "ann",
        "PRIMUS_WORKSPACE": "/w",
        "PRIMUS_EXP_NAME": "007",
    }
    names = resolve(write("exp.yaml", EXPERIMENT), {}, "pretrain", environ).names
    assert find_place(None, None, None, None, None, environ, names).exp_root == "/w/core/ann/007"
    assert find_place("mine", None, "/x", "t", "u", environ, names).exp_root == "/x/t/u/mine"
    assert find_place(None, "/root/of/run", None, None, None, environ, names)[:2] == ("/root/of/run", "007")


def test_a_flat_file_or_a_dict_may_say_it_too(write):
    names = {"work_group": "t", "user_name": "7", "exp_name": "e", "workspace": "/w"}
    flat = write("run.yaml", "work_group: t\nuser_name: 7\nexp_name: e\nworkspace: /w\nlog_interval: 5\n")
    for config in (flat, {**names, "user_name": 7, "log_interval": 5}):
        found = resolve(config, {}, environ={"PRIMUS_USER": "not this"})
        assert (found.names, changed(found), found.notes) == (names, {"log_interval": 5}, ())


@pytest.mark.parametrize("value", ["no", "[a]", "{a: 1}"])
def test_a_name_that_is_none_is_refused(write, value):
    path = write("exp.yaml", f"user_name: {value}\n")
    assert refused(path).startswith(f"{path}: user_name: ")
    assert refused(path).endswith("is not allowed; choices: a text")


def test_init_takes_an_experiment(start, write, here, monkeypatch):
    for name in ("PRIMUS_TEAM", "PRIMUS_USER", "PRIMUS_EXP_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRIMUS_WORKSPACE", str(here / "w"))
    path = write("exp.yaml", BOTH + EXPERIMENT.partition("modules:")[0])
    mon = start(exp_root=None, config=path, module_name="sft", log_progress=True)
    assert mon.exp_root == f"{here}/w/amd/root/llama-pretrain"
    assert mon.config["log_interval"] == 7
    given = mon._hello.launch["given"]
    assert (given["log_interval"], given["log_progress"]) == (str(path), "init()")
    assert any(text.startswith("pyzmq==") for text in mon._hello.launch["packages"])


# -- which section counts ------------------------------------------------------------------------------

BOTH = """
modules:
  pre_trainer: {framework: megatron, overrides: {log_interval: 5}}
  post_trainer: {framework: torchtitan, overrides: {log_interval: 7}}
"""


@pytest.mark.parametrize(
    ("module_name", "interval", "section"),
    [
        ("pretrain", 5, "pre_trainer"),
        ("pre_trainer", 5, "pre_trainer"),
        ("sft", 7, "post_trainer"),
        ("posttrain", 7, "post_trainer"),
        ("post", 7, "post_trainer"),
    ],
)
def test_the_section_of_the_module_is_taken_and_said(write, module_name, interval, section):
    found = resolve(write("exp.yaml", BOTH), {}, module_name)
    assert found.values["log_interval"] == interval
    assert f"section modules.{section} is taken" in found.remarks[0]


def test_a_section_of_its_own_goes_before_the_common_one(write):
    text = "modules:\n  post_trainer: {log_interval: 7}\n  sft_trainer: {log_interval: 9}"
    assert resolve(write("exp.yaml", text), {}, "sft").values["log_interval"] == 9


def test_the_only_trainer_is_taken_for_any_module(write):
    found = resolve(write("exp.yaml", module("log_interval: 5", "post_trainer")), {}, "pretrain")
    assert found.values["log_interval"] == 5
    assert "no section for module pretrain, section modules.post_trainer is taken" in found.remarks[0]


@pytest.mark.parametrize("text", [BOTH, "modules: {}", "modules:", "modules: {bench: {}}"])
def test_where_none_can_be_told_the_choices_are(write, text):
    path = write("exp.yaml", text)
    said = refused(path, "evaluation")
    assert said.startswith(f"{path}: modules: holds no section for module evaluation; choices: ")


@pytest.mark.parametrize(
    "text", ["modules: 3", "modules: {pre_trainer: 3}", "modules: [3]", "modules: {p_trainer: [1]}"]
)
def test_sections_that_are_none_are_refused(write, text):
    assert "choices: names and values" in refused(write("exp.yaml", text))


def test_sections_as_a_list_say_their_names(write):
    text = "modules:\n  - {name: pre_trainer, framework: torchtitan, params: {metrics: {log_freq: 3}}}\n"
    found = resolve(write("exp.yaml", text), {})
    assert changed(found) == {"metrics.log_freq": 3, "framework": "torchtitan"}


def test_a_section_without_presets_may_hold_parameters_itself(write):
    text = (
        "modules:\n  pre_trainer: {framework: megatron, log_interval: 5, overrides: {log_progress: true}}\n"
    )
    found = resolve(write("exp.yaml", text), {})
    assert changed(found) == {"log_interval": 5, "log_progress": True}


@pytest.mark.parametrize(
    ("framework", "form", "said"),
    [
        ("megatron", "megatron", False),
        ("light-megatron", "megatron", False),
        ("megatron_bridge", "megatron", False),
        ("torchtitan", "torchtitan", False),
        ("maxtext", "megatron", False),
        ("jaxly", "megatron", True),
    ],
)
def test_the_framework_decides_the_form_of_the_training_line(write, framework, form, said):
    found = resolve(write("exp.yaml", f"modules:\n  pre_trainer: {{framework: {framework}}}"), {})
    assert found.values["framework"] == form
    assert any("jaxly is not known; its training line has" in text for text in found.remarks) is said


def test_a_dict_may_be_an_experiment(write):
    config = {"exp_name": "${NAME:e}", "modules": {"pre_trainer": {"overrides": {"log_interval": "${N:5}"}}}}
    found = resolve(config, {}, environ={"N": "9"})
    assert (found.values["log_interval"], found.names) == (9, {"exp_name": "e"})


# -- presets -------------------------------------------------------------------------------------------


def test_presets_beside_the_experiment_lie_below_its_overrides(write):
    write("pre_trainer.yaml", "log_interval: 3\nlog_progress: true\ntrain_iters: 7\nunknown_of_primus: 1")
    write("llama.yaml", "log_interval: 4\nlog_throughput: true")
    found = resolve(write("exp.yaml", EXPERIMENT), {})
    assert changed(found) == {"log_interval": 5, "log_progress": True, "log_throughput": True}
    assert "unknown_of_primus" not in str(found.notes)
    assert found.given["log_progress"].endswith("/pre_trainer.yaml")


def test_where_both_presets_say_a_value_the_modules_counts(write):
    write("pre_trainer.yaml", "log_avg_reset_interval: 3")
    write("llama.yaml", "log_avg_reset_interval: 4")
    assert resolve(write("exp.yaml", EXPERIMENT), {}).values["log_avg_reset_interval"] == 3


def test_presets_of_primus_are_found_from_a_file_in_its_tree(write):
    write(
        "tree/primus/configs/modules/megatron/pre_trainer.yaml", "extends: [../base.yaml]\nlog_progress: true"
    )
    write("tree/primus/configs/modules/base.yaml", "file_sink_level: ERROR")
    write("tree/primus/configs/models/megatron/llama.yaml", "log_throughput: true")
    found = resolve(write("tree/examples/megatron/configs/MI300X/exp.yaml", EXPERIMENT), {})
    assert changed(found) == {
        **{"log_interval": 5, "log_progress": True, "log_throughput": True},
        "file_sink_level": "ERROR",
    }


def test_presets_of_an_installed_primus_are_found(write, here, monkeypatch):
    write("site/primus/__init__.py", "raise RuntimeError('nobody imports it for this')")
    write("site/primus/configs/modules/megatron/pre_trainer.yaml", "log_progress: true")
    write("site/primus/configs/models/megatron/llama.yaml", "")
    monkeypatch.syspath_prepend(here / "site")
    assert resolve(write("exp.yaml", EXPERIMENT), {}).values["log_progress"] is True


def test_without_primus_its_presets_are_passed_over_and_that_is_said(write):
    found = resolve(write("exp.yaml", EXPERIMENT), {})
    (remark,) = found.remarks
    assert "no Primus is here to have llama.yaml and pre_trainer.yaml: defaults count" in remark


def test_a_preset_that_should_be_there_and_is_not_is_refused_with_the_places(write, here):
    path = write("exp.yaml", EXPERIMENT.replace("pre_trainer.yaml", "presets/mine.yaml"))
    assert refused(path) == (
        f"{path}: modules.pre_trainer.config: 'presets/mine.yaml' cannot be found; "
        f"choices: {here}/presets/mine.yaml"
    )
    (here / "primus" / "configs" / "modules").mkdir(parents=True)
    said = refused(write("a/exp.yaml", EXPERIMENT))
    assert "modules.pre_trainer.model: 'llama.yaml' cannot be found; choices: " in said
    assert f"{here}/primus/configs/models/megatron/llama.yaml" in said


def test_a_bad_value_in_a_preset_names_that_file(write, here):
    write("pre_trainer.yaml", "log_interval: never")
    said = refused(write("exp.yaml", EXPERIMENT))
    assert (
        said
        == f"{here}/pre_trainer.yaml: log_interval: 'never' is not allowed; choices: a whole number from 1"
    )


def test_nulls_stand_for_defaults(write):
    write("pre_trainer.yaml", "log_interval: 3\nwandb_project: p")
    text = EXPERIMENT.replace("log_interval: 5", "log_interval: null\n      wandb_project: ${P:null}")
    assert changed(resolve(write("exp.yaml", text), {})) == {}


# -- extends and includes ------------------------------------------------------------------------------


def test_a_file_goes_before_those_it_extends_and_later_ones_before_earlier(write):
    write(
        "base/one.yaml",
        "log_interval: 1\nlog_avg_skip_iterations: 1\nmetrics: {log_freq: 1, enable_wandb: true}",
    )
    write("base/two.yaml", "extends: one.yaml\nlog_interval: 2\nmetrics: {log_freq: 2}")
    write("three.yaml", "log_avg_skip_iterations: 3\nlog_avg_reset_interval: 3")
    path = write("exp.yaml", "extends:\n  - base/two.yaml\n  - three.yaml\nlog_avg_reset_interval: 4\n")
    found = resolve(path, {})
    assert found.values["metrics.enable_wandb"] is True
    names = ("log_interval", "log_avg_skip_iterations", "log_avg_reset_interval", "metrics.log_freq")
    assert [found.values[name] for name in names] == [2, 3, 4, 2]
    assert [Path(found.given[name]).name for name in names] == [
        "two.yaml",
        "three.yaml",
        "exp.yaml",
        "two.yaml",
    ]


def test_of_an_included_file_groups_are_replaced_whole(write):
    write("base.yaml", "log_interval: 2\nmetrics: {log_freq: 2, enable_wandb: true}")
    found = resolve(write("exp.yaml", "includes: [base.yaml]\nmetrics: {log_freq: 3}"), {})
    assert changed(found) == {"log_interval": 2, "metrics.log_freq": 3, "framework": "torchtitan"}


def test_a_missing_file_is_refused_by_its_name(write, here):
    assert refused(here / "none.yaml") == f"{here}/none.yaml: No such file or directory"
    for word in ("extends", "includes"):
        asked = write("exp.yaml", f"{word}: [gone.yaml]")
        assert refused(asked) == f"{asked}: {word}: {here}/gone.yaml: No such file or directory"
    assert refused(write("exp.yaml", "extends: ['']")).endswith(
        "exp.yaml: extends: is not allowed; choices: a path, a list of paths"
    )
    assert refused(here) == f"{here}: Is a directory"


@pytest.mark.parametrize("text", ["extends: exp.yaml", "extends: [a.yaml]", "includes: [./a.yaml]"])
def test_a_circle_is_refused_where_it_closes(write, here, text):
    write("a.yaml", "extends: [b.yaml]")
    write("b.yaml", "extends: [exp.yaml]")
    assert "leads in a circle" in refused(write("exp.yaml", text))


def test_a_file_that_two_others_extend_is_no_circle_and_is_read_once(write):
    """Each extends the one before twice: without a memory, more files than there are atoms."""
    write("0.yaml", "log_interval: 5")
    for number in range(1, 50):
        write(f"{number}.yaml", f"extends: [{number - 1}.yaml, {number - 1}.yaml]")
    assert resolve(write("exp.yaml", "extends: [49.yaml]"), {}).values["log_interval"] == 5


# -- variables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "environ", "value"),
    [
        ("${N}", {"N": "7"}, 7),
        ("${N:5}", {}, 5),
        ("${N:5}", {"N": "7"}, 7),
        ("${N:1e3}", {}, 1000),
        ("${A:1}${B:2}", {"B": "3"}, 13),
        ("' ${N} '", {"N": "7"}, 7),
    ],
)
def test_variables_are_replaced_and_numbers_stay_numbers(write, text, environ, value):
    assert (
        resolve(write("run.yaml", f"log_interval: {text}"), {}, environ=environ).values["log_interval"]
        == value
    )


def test_a_text_stays_a_text_and_a_default_may_be_empty(write):
    path = write(
        "run.yaml", "wandb_project: ${P:007}\nwandb_exp_name: a-${E:}-${H:http://h:1}\nprofile: ${T:yes}"
    )
    assert changed(resolve(path, {}, environ={})) == {
        "wandb_project": "007",
        "wandb_exp_name": "a--http://h:1",
        "profile": True,
        "disable_tensorboard": False,
    }


@pytest.mark.parametrize(
    "body", ["log_interval: ${NOT_SET}", "other: ${NOT_SET}", "list: [1, {a: 'x${NOT_SET}'}]"]
)
def test_a_variable_that_is_not_set_is_refused_with_its_key(write, body):
    path = write("exp.yaml", module(body))
    said = refused(path)
    key = {"log": "log_interval", "oth": "other", "lis": "list.1.a"}[body[:3]]
    assert said.startswith(
        f"{path}: modules.pre_trainer.overrides.{key}: the variable NOT_SET is not set; choices:"
    )


def test_in_a_dict_only_what_is_ours_is_looked_at():
    circle: dict = {}
    circle["self"] = circle
    found = resolve(
        {"log_interval": "${N:5}", "other": "${NOT_SET}", "args": circle, 7: object()}, {}, environ={}
    )
    assert found.values["log_interval"] == 5
    assert found.notes == ("config: unknown parameters ignored: other, args, 7",)


# -- faults --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "key", "choices"),
    [
        ("log_interval: 0", "log_interval", "a whole number from 1"),
        ("timing_log_option: most", "timing_log_option", "max, minmax, all"),
        ("stderr_sink_level: LOUD", "stderr_sink_level", "TRACE, DEBUG"),
        ("metrics: {log_freq: [1]}", "metrics.log_freq", "a whole number from 1"),
        ("metrics.log_freq: x", "metrics.log_freq", "a whole number from 1"),
        ("profile_ranks: 3", "profile_ranks", "a list of whole numbers from 0"),
        ("log_interval: {a: 1}", "log_interval", "a whole number from 1"),
        ("framework: jax", "framework", "megatron, torchtitan"),
    ],
)
def test_a_bad_value_is_refused_with_file_key_and_choices(write, body, key, choices):
    path = write("exp.yaml", module(body))
    said = refused(path)
    assert said.startswith(f"{path}: modules.pre_trainer.overrides.{key}: ")
    assert f"is not allowed; choices: {choices}" in said


def test_unknown_names_are_one_remark_with_the_likely_ones_named(write):
    names = "\n      ".join(["log_intervall: 5", *(f"megatron_{number}: 1" for number in range(300))])
    (note,) = resolve(write("exp.yaml", f"exp_nam: x\n{module(names)}"), {}).notes
    assert "log_intervall (did you mean log_interval?)" in note
    assert note.endswith("298 more")


@pytest.mark.parametrize(
    "text",
    [
        "log_interval: ${TOKEN_OF_MINE}",
        "log_interval: {api_key: hunter2hunter2}",
        "log_interval: [--api-key, hunter2hunter2]",
        "log_interval: https://ann:hunter2hunter2@h",
        "exp_name: {password: hunter2hunter2}",
        "hunter2hunter2: 1",
        "extends: ['${TOKEN_OF_MINE}.yaml']",
        "extends: {password: hunter2hunter2}",
        "modules: {pre_trainer: {config: 'a/${TOKEN_OF_MINE}'}}",
        "modules: {pre_trainer: {config: '${TOKEN_OF_MINE}'}}",
        "modules: {pre_trainer: {framework: '${TOKEN_OF_MINE}'}}",
        "modules: '${TOKEN_OF_MINE}'",
        "password: hunter2hunter2: x",
        "password: 'hunter2hunter2",
        "password: !!float hunter2hunter2",
        "password: !!hunter2hunter2 x",
        "api_key: [hunter2hunter2",
    ],
)
def test_no_secret_gets_into_an_error_or_a_remark(write, text):
    environ = {"TOKEN_OF_MINE": SECRET, "HF_TOKEN": SECRET}
    found, error = tried(write("exp.yaml", text), environ)
    assert SECRET not in str((error, found and found.notes, found and found.remarks))
    assert error is None or (error.__suppress_context__ and error.__cause__ is None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "a: &a [*a]"),
        ("a.yaml", "a: &a {b: *a}"),
        ("a.yaml", "? [1, 2]\n: 3"),
        ("a.yaml", "<<: 3"),
        ("a.yaml", "a: 2024-99-99"),
        ("a.yaml", "[" * 5000),
        ("a.yaml", "a: 1" + "0" * 5000),
        ("a.yaml", "\x00"),
        ("a.yaml", "a: b: c"),
        ("a.yaml", "&x a: *y"),
        ("a.yaml", "--- a\n--- b"),
        ("a.json", "[" * 100_000),
        ("a.json", '{"log_interval": 1' + "0" * 5000 + "}"),
        ("a.json", '{"extends": "\\ud800"}'),
        ("a.json", '{"extends": "a\\u0000b"}'),
        ("a.json", '{"log_interval": NaN}'),
        ("a.toml", "a = hunter2hunter2"),
        ("a.toml", "[a]\n[a]"),
    ],
)
def test_files_that_make_no_sense_are_refused_or_passed_over(write, name, text):
    path = write(name, text)
    _, error = tried(path, {})
    assert error is None or str(path.parent) in str(error)
    assert SECRET not in str(error)


def test_a_few_bytes_that_stand_for_billions_of_values_are_refused(write):
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "too many values" in refused(write("a.yaml", "\n".join(levels)))


def test_a_file_without_an_end_is_refused():
    assert refused("/dev/zero") == "/dev/zero: is not a regular file"


@pytest.mark.parametrize("config", [5, b"run.yaml", ["run.yaml"], object(), "", "a\0b", "\ud800"])
def test_what_is_neither_a_path_nor_a_dict_is_refused(config):
    assert refused(config)


def test_yaml_is_needed_for_yaml_alone(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert resolve(write("run.json", '{"log_interval": 5}'), {}).values["log_interval"] == 5
    assert resolve({"modules": {"pre_trainer": {"log_interval": 5}}}, {}).values["log_interval"] == 5
    assert "pip install pyyaml" in refused(write("run.yaml", "a: 1"))


# -- TorchTitan's own ----------------------------------------------------------------------------------


def test_a_toml_file_is_torchtitans(write):
    path = write("job.toml", '[metrics]\nlog_freq = 3\n[job]\ndescription = "x"\n')
    if sys.version_info < (3, 11):
        assert refused(path) == f"{path}: reading TOML needs Python 3.11; or give YAML, or a dict"
        return
    found = resolve(path, {})
    assert changed(found) == {"metrics.log_freq": 3, "framework": "torchtitan"}
    assert found.notes == (f"{path}: unknown parameters ignored: job",)
    assert resolve(write("plain.toml", "[training]\nsteps = 3"), {}).values["framework"] == "torchtitan"
    assert "bad.toml: is no TOML (at line 1, column " in refused(write("bad.toml", "a = 1 2"))


# -- examples ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_every_example_loads_without_a_doubtful_name(name):
    if name.endswith(".toml") and sys.version_info < (3, 11):
        pytest.skip("TOML")
    module_name = "sft" if "sft" in name else "pretrain"
    found = resolve(EXAMPLES / name, {}, module_name, {})
    assert found.given
    assert "did you mean" not in str(found.notes)
    assert found.values["framework"] == name.partition("-")[0]


def test_the_examples_are_of_a_run_each(here):
    shutil.copytree(EXAMPLES, here / "elsewhere")
    found = resolve(here / "elsewhere" / "megatron-llama2_7B-sft.yaml", {}, "sft", {})
    assert found.names == {
        **{"work_group": "amd", "user_name": "root"},
        **{"exp_name": "llama2_7B-sft", "workspace": "./output"},
    }
    assert (found.values["log_interval"], found.values["disable_mlflow"]) == (5, False)


# -- anything ------------------------------------------------------------------------------------------

WORDS = (
    "modules",
    "pre_trainer",
    "overrides",
    "params",
    "config",
    "model",
    "framework",
    "metrics",
    "extends",
)
NAMES = st.sampled_from(
    [*PARAMETERS, *WORDS, "includes", "exp_name", "workspace", "user_name", "platform", "x"]
)
LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates()),
    st.sampled_from(["${A}", "${A:5}", "${B:", "null", "megatron", "pre_trainer.yaml", "exp.yaml", "a/b"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
CHECKS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def survives(config) -> None:
    found, error = tried(config, {"A": "7"})
    assert found or str(error)
    if found:
        assert found.values.keys() == PARAMETERS.keys()
        find_place(None, None, None, None, None, {}, found.names)


@CHECKS
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_dict_of_anything_is_taken_or_refused(given):
    survives(given)


@CHECKS
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_yaml_file_of_anything_is_taken_or_refused(here, given):
    import yaml

    (here / "exp.yaml").write_text(yaml.safe_dump(given, allow_unicode=False), encoding="utf-8")
    survives(here / "exp.yaml")


@CHECKS
@given(st.sampled_from(["a.yaml", "a.json", "a.toml"]), st.text(max_size=60) | st.binary(max_size=60))
def test_bytes_of_anything_are_taken_or_refused(here, name, given):
    data = given if isinstance(given, bytes) else given.encode("utf-8", "surrogatepass")
    (here / name).write_bytes(data)
    survives(here / name)
