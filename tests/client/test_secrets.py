"""Nothing secret leaves: by its name, by its form, by its value; and what is no secret stays readable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside.secret_names import secret_parameter, secret_variable
from rankside.secrets import known_values, masked_argv, masked_params, masked_text, safe_environ

SECRET_NAMES = """
    hf_token wandb_api_key aws_secret_access_key db-password apiKey APIKey hfToken HF_TOKEN hftoken key auth
    token dbpassword password1 api_key_2 wandb.key github_pat access_tokens api_keys credentials oauth jwt
    AWS_ACCESS_KEY_ID awsAccessKeyId logger.wandb.token mysql_pwd db_pass slack_webhook user_token
    hf_token_value client-secret PRIVATE_KEY passphrase
"""
MODEL_NAMES = """
    num_key_value_heads tokenizer_model max_tokens pad_token_id key_query_norm eos_token text_key monkey
    token_type_ids moe_token_dispatcher_type special_tokens keys compass author use_key_padding_mask
    calculate_per_token_loss TOKENIZERS_PARALLELISM pass_rate authors sort_key lr 7
"""
SECRET_VARIABLES = """
    WANDB_API_KEY HF_TOKEN hf_token DB_PASSWORD AWS_SECRET_ACCESS_KEY MYSQL_PWD SSHPASS GITHUB_PAT
    SSH_AUTH_SOCK GOOGLE_APPLICATION_CREDENTIALS AUTHORIZATION PASSPHRASE SLACK_WEBHOOK_URL SENTRY_DSN
    NPM_CONFIG__AUTH
"""
PLAIN_VARIABLES = "TOKENIZERS_PARALLELISM PATH PWD OLDPWD HOME RANK GIT_AUTHOR_NAME WANDB_PROJECT"
HUGGING = "hf_" + "aB3" * 12


@pytest.mark.parametrize(
    "name",
    SECRET_NAMES.split(),
)
def test_names_of_secret_parameters(name):
    assert secret_parameter(name)


@pytest.mark.parametrize(
    "name",
    MODEL_NAMES.split(),
)
def test_names_of_a_model_are_none(name):
    assert not secret_parameter(name)


@pytest.mark.parametrize(
    "name",
    SECRET_VARIABLES.split(),
)
def test_variables_that_are_left_out(name):
    assert secret_variable(name)


@pytest.mark.parametrize("name", PLAIN_VARIABLES.split())
def test_variables_that_stay(name):
    assert not secret_variable(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://ann:hunter2@h/x", "https://***@h/x"),
        ("https://hunter2@h/x?a=b@c", "https://***@h/x?a=b@c"),
        ("https://ann:hun/ter2@h/x", "https://***@h/x"),
        ("mysql://ann:hun@ter2@h:3306/d", "mysql://***@h:3306/d"),
        ("a https://ann:hunter2@h and http://bob:hunter2@i", "a https://***@h and http://***@i"),
        ("ann:hunter2@proxy:3128", "***@proxy:3128"),
        ("https://h/?token=hunter2&x=1&sig=hunter2", "https://h/?token=***&x=1&sig=***"),
        ("export HF_TOKEN=hunter2; python", "export HF_TOKEN=***; python"),
        ("train --api-key hunter2 --lr 3", "train --api-key *** --lr 3"),
        ("key: password=hunter2", "key: password=***"),
        ("the key api_key=hunter2", "the key api_key=***"),
        ("password: hunter2", "password: ***"),
        ("Config(api_key='hun ter2', lr=0.1)", "Config(api_key='***', lr=0.1)"),
        ("{'api_keys': ['hunter2', 'b'], 'x': 1}", "{'api_keys': ***, 'x': 1}"),
        (r"x {\"api_key\": \"hun ter2\"}", r"x {\"api_key\": \"***\"}"),
        ("Account=a;AccountKey=hunter2==;E=1", "Account=a;AccountKey=***;E=1"),
        ("curl -H 'Authorization: Basic hunter2='", "curl -H 'Authorization: *** ***'"),
        ("Bearer hunter2.hunter2", "Bearer ***"),
        (f"login {HUGGING} now", "login *** now"),
        ("ghp_" + "a1" * 18, "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("x=sk-proj-" + "a" * 30, "x=***"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIx.abc-def", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----", "***"),
        ("-----BEGIN PRIVATE KEY-----\nhunter2", "***"),
        ("https://hooks.slack.com/services/T0/B0/hunter2", "https://hooks.slack.com/***"),
    ],
)
def test_a_text_without_its_secrets(text, masked):
    assert masked_text(text) == masked
    assert masked_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        *("http://host:8080/a@b", "git@github.com:o/r.git", "mailto:ann@example.org", "path//name@v1"),
        *("rocm/pytorch:latest@sha256:abcd", "the key: value", "eos_token=</s>", "max_tokens=5", "a: b"),
        *('{"a": 1.0,  "b":2}', "[1, 2", "", "{", "]", "task-" + "a" * 40, "hf_transformers_model"),
        *("--lr 3", "train --use-token --lr 3", "num_key_value_heads=8", "api_key=None", "é\ud800"),
    ],
)
def test_a_text_without_secrets_stays(text):
    assert masked_text(text) == text


def test_json_in_a_text_is_looked_into():
    text = json.dumps({"credentials": {"a": {"x": "hunter2"}, "b": ["hunter2"]}, "lr": 1})
    assert json.loads(masked_text(text)) == {"credentials": {"a": {"x": "***"}, "b": ["***"]}, "lr": 1}
    assert "hunter2" not in masked_text("[" * 90_000 + '"password=hunter2"' + "]" * 90_000)


def test_the_value_of_a_secret_variable_is_found_wherever_it_stands():
    environ = {
        "MY_TOKEN": "quite/secret+1",
        "DATABASE": "postgres://ann:alsosecret@h/d",
        "SHORT_KEY": "abc",
        "SSH_KEY_FILE": "/home/ann/.ssh/id",
        "KEY_STORE": "/usr/lib/keys",
        "NOTE": "say quite/secret+1 or quite%2Fsecret%2B1, alsosecret",
        "PATH": "/usr/lib/keys:/home/ann/.ssh/id:abc",
    }
    known = known_values(environ)
    assert set(known) == {"quite/secret+1", "quite%2Fsecret%2B1", "alsosecret"}
    assert safe_environ(environ) == {
        "DATABASE": "postgres://***@h/d",
        "NOTE": "say *** or ***, ***",
        "PATH": "/usr/lib/keys:/home/ann/.ssh/id:abc",
    }
    assert masked_params({"x": ["a quite/secret+1"]}, known) == {"x": ["a ***"]}
    assert masked_argv(["--name", "quite/secret+1"], known) == ["--name", "***"]


def test_a_password_with_an_at_sign_is_found_whole():
    told = {"ONE": "http://bob:p@ssw0rdX@h:1/x@y", "TWO": "http://a:passwort1@h,http://b:passwort2@h"}
    known = known_values(told)
    assert set(known) == {"p@ssw0rdX", "p%40ssw0rdX", "passwort1", "passwort2"}
    assert masked_text("no login for bob with p@ssw0rdX", known) == "no login for bob with ***"


def test_parameters_are_masked_at_any_depth_and_numbers_and_flags_stay():
    given = {
        "a": {"hf_token": "x", "none": None, "credentials": {"u": "a", "p": ["b", 1, {"c": "d"}]}},
        "env": [{"name": "HF_TOKEN", "value": "x"}, {"name": "LR", "value": "x"}],
        "items": [["HF_TOKEN", "x"], ["token", "sentence"]],
        "cmd": ["python", "--hf-token", "x", "--lr", "3"],
        "hf_token": None,
        "wandb_key": True,
        "num_key": 8,
        "db_password": 123456,
        "secret_scale": 0.5,
        "api_key": "",
        "url": "https://u:p@h",
        HUGGING: 1,
        7: "x",
    }
    assert masked_params(given) == {
        "a": {"hf_token": "***", "none": None, "credentials": {"u": "***", "p": ["***", 1, {"c": "***"}]}},
        "env": [{"name": "HF_TOKEN", "value": "***"}, {"name": "LR", "value": "x"}],
        "items": [["HF_TOKEN", "***"], ["token", "sentence"]],
        "cmd": ["python", "--hf-token", "***", "--lr", "3"],
        "hf_token": None,
        "wandb_key": True,
        "num_key": 8,
        "db_password": "***",
        "secret_scale": 0.5,
        "api_key": "",
        "url": "https://***@h",
        "***": 1,
        7: "x",
    }


def test_a_command_line_without_its_secrets():
    given = [
        "t.py",
        "--api-key=x",
        "--hf-token",
        "x",
        "--lr",
        "3",
        "KEY=x",
        "++a.b.token=x",
        "--api-keys",
        "x",
    ]
    given += [
        "y",
        "--v",
        "--password",
        "-x",
        "--max-tokens",
        "5",
        "--token",
        "--v",
        "--db-pass",
        "12345",
        "-v",
    ]
    told = ["t.py", "--api-key=***", "--hf-token", "***", "--lr", "3", "KEY=***", "++a.b.token=***"]
    told += ["--api-keys", "***", "***", "--v", "--password", "***", "--max-tokens", "5", "--token", "--v"]
    told += ["--db-pass", "***", "-v"]
    assert masked_argv(given) == told


NAMES = st.sampled_from(("api_key", "HF_TOKEN", "dbPassword", "client-secret", "a.b.auth_token"))
SECRETS = st.from_regex(r"[A-Za-z][A-Za-z0-9_/+%]{7,30}Q9", fullmatch=True)
ARGUMENTS = st.sampled_from(("{n}={s}", "--{n}={s}", "--{n} {s}", "++x.{n}={s}"))
TEXTS = st.sampled_from(
    ('{{"{n}": "{s}"}}', "{{'{n}': '{s}'}}", "x {n}: {s}", "?a=1&{n}={s}&b", "f({n}={s!r})")
)


@given(NAMES, SECRETS, ARGUMENTS | TEXTS, st.text("ab '\"=:&{}[]-\\", max_size=20))
def test_no_form_of_an_assignment_lets_a_secret_through(name, secret, form, before):
    text = form.format(n=name, s=secret)
    for around in (text, f"{before} {text}"):
        assert secret not in masked_text(around)
    assert secret not in str(masked_params({"x": [text], name: {"deep": [secret]}}))


@given(NAMES, SECRETS, ARGUMENTS)
def test_no_argument_lets_a_secret_through(name, secret, form):
    assert secret not in str(masked_argv(["t.py", *form.format(n=name, s=secret).split(), "--lr", "1"]))


LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_is_plain_can_be_masked(value):
    json.dumps(masked_params(value))


@pytest.mark.parametrize(
    "piece", ["//a:b", "key=[", "sort_key=", 'key="', "a", "-", "eyJaaaaaaaaa.", "pass", "{"]
)
def test_a_long_text_is_no_trap(piece):
    """Each of these would take hours with a pattern that goes back over what it has read."""
    masked_text(piece * (200_000 // len(piece)))
