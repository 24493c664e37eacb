"""Any file or dict as configuration: it is taken, or refused with a ConfigError; nothing else happens."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankside.parameters import PARAMETERS
from rankside.settings import ConfigError, resolve

NAMES = st.one_of(
    st.sampled_from(sorted(PARAMETERS)),
    st.sampled_from(
        ["extends", "includes", "modules", "pre_trainer", "overrides", "config", "model", "metrics"]
    ),
    st.sampled_from(
        ["workspace", "work_group", "user_name", "exp_name", "framework", "profiling", "platform"]
    ),
    st.text(max_size=12),
    st.integers(),
    st.none(),
)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["${HOME}", "${NOT_SET:1}", "${NOT_SET}", "${", "${:}", "a.yaml", "../a.yaml", "true", "1e400"]
    ),
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.binary(max_size=8), st.dates()
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=6)),
    max_leaves=25,
)
ROOTS = st.dictionaries(NAMES, DOCUMENTS, max_size=8)
ANY_BYTES = st.one_of(
    st.binary(max_size=400), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
EACH = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def is_taken_or_refused(config: object) -> None:
    """No other exception passes."""
    with suppress(ConfigError):
        assert resolve(config, {}, "pretrain", {"HOME": "/home/user"}).values.keys() == PARAMETERS.keys()


@EACH
@given(ROOTS)
def test_any_dict(values):
    is_taken_or_refused(values)


@EACH
@given(ROOTS)
def test_any_document_of_yaml(tmp_path: Path, values):
    path = tmp_path / "a.yaml"
    path.write_text(yaml.dump(values, allow_unicode=True), encoding="utf-8", errors="surrogatepass")
    is_taken_or_refused(path)


@EACH
@given(ROOTS)
def test_any_document_of_json(tmp_path: Path, values):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(values, default=str, skipkeys=True), encoding="utf-8")
    is_taken_or_refused(path)


@pytest.mark.parametrize("suffix", ["yaml", "json", "toml", "txt"])
@EACH
@given(ANY_BYTES)
def test_any_bytes(tmp_path: Path, suffix: str, data: bytes):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(data)
    is_taken_or_refused(path)


@EACH
@given(st.integers(0), st.integers(0, 255))
def test_an_example_with_any_byte_replaced(tmp_path: Path, place: int, byte: int):
    data = bytearray((Path(__file__).parents[2] / "configs" / "run.yaml").read_bytes())
    data[place % len(data)] = byte
    path = tmp_path / "a.yaml"
    path.write_bytes(data)
    is_taken_or_refused(path)
