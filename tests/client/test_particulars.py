"""What the last rank tells of its start: which parameters were given, packages, versions; nothing secret."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from types import SimpleNamespace

import pytest

from rankside import launch, particulars, wire

SECRET = "hunter2hunter2"


def test_packages_are_those_that_importlib_finds():
    known = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower() + f"=={d.version}" for d in distributions()}
    found = particulars.packages(sys.path)
    assert found == sorted(found)
    assert set(found) >= {text for text in known if text.startswith(("pyzmq==", "msgpack==", "pytest=="))}


def test_of_two_of_one_name_the_first_on_the_path_counts(here):
    for folder, name in (
        ("a", "Some_Thing-1.0+cu121.dist-info"),
        ("b", "some.thing-2.0.dist-info"),
        ("b", "old-1.5-py3.11.egg-info"),
        ("b", "without.egg-info"),
        ("b", "module.py"),
    ):
        (here / folder / name).mkdir(parents=True)
    found = particulars.packages([str(here / "a"), str(here / "b"), "", "relative", "/nonexistent", "/a\0b"])
    assert found == ["old==1.5", "some-thing==1.0+cu121", "without==unknown"]


def test_a_large_folder_beside_is_looked_into_a_little(here, monkeypatch):
    monkeypatch.setattr(particulars, "_MOST_BESIDE", 3)
    for number in range(20):
        (here / f"p{number}-1.0.dist-info").mkdir()
    assert len(particulars.packages([str(here)])) == 3


def test_the_versions_are_those_of_what_runs(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert particulars.versions()["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "torch" not in particulars.versions()
    torch = SimpleNamespace(__version__="2.5.0", version=SimpleNamespace(hip="6.2", cuda=None))
    monkeypatch.setitem(sys.modules, "torch", torch)
    told = particulars.versions()
    assert (told["torch"], told["hip"], "cuda" in told) == ("2.5.0", "6.2", False)


def test_values_with_secrets_in_them_are_hidden(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", SECRET)
    values = {"wandb_project": f"of-{SECRET}", "wandb_entity": "me", "log_interval": 5}
    given = {"wandb_project": "exp.yaml", "log_interval": f"/{SECRET}/exp.yaml"}
    found = particulars.tell(values, given)
    assert found["hidden"] == {"wandb_project": "of-***"}
    assert found["given"] == {"wandb_project": "exp.yaml", "log_interval": "/***/exp.yaml"}
    assert SECRET not in str(found)


def test_it_is_bounded_and_can_be_packed(here, monkeypatch):
    monkeypatch.setattr(particulars, "MOST_PACKAGES", 1000)
    for number in range(100):
        (here / f"package_of_some_length_{number}-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(here)])
    found = particulars.tell({"a": 1}, {"a": "\udcff" * 9000})
    assert found["packages"][-1] == "[rankside: cut here, 100 packages in all]"
    assert particulars.checked(found) == found
    assert len(wire.pack(found)) < 5000
    assert launch.checked_launch({**launch.launch([], {}), **found})["packages"] == found["packages"]


@pytest.mark.parametrize(
    "told",
    [
        {"packages": "x"},
        {"packages": {"a": "b"}},
        {"packages": [1]},
        {"packages": ["x" * 5000]},
        {"packages": ["a\0b"]},
        {"packages": ["x" * 400] * 9000},
        {"given": []},
        {"given": {"a": 1}},
        {"versions": {1: "a"}},
        {"versions": {str(number): "" for number in range(20_000)}},
    ],
)
def test_a_strangers_is_refused_where_it_is_something_else(told):
    with pytest.raises(ValueError, match=next(iter(told))):
        launch.checked_launch(told)


def test_an_older_client_tells_less():
    assert particulars.checked({"argv": []}) == {}
