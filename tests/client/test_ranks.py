"""Log calls of some ranks only: who says what, with the place it was said."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import rankside
from rankside import ranks

RULE = "-" * 80


@pytest.fixture
def said(start, records):
    """What a rank of four has said: (level, file, text)."""

    def of(rank, call):
        mon = start(rank=rank, world_size=4)
        call()
        found = [(fields[2], fields[3], fields[5]) for fields in records(1, mon)]
        mon.close()
        return found

    return of


@pytest.mark.parametrize(
    ("call", "level", "speaking"),
    [
        (ranks.log_rank_0, "INFO", [0]),
        (ranks.debug_rank_0, "DEBUG", [0]),
        (ranks.warning_rank_0, "WARNING", [0]),
        (ranks.error_rank_0, "ERROR", [0]),
        (ranks.log_rank_last, "INFO", [3]),
        (ranks.log_rank_all, "INFO", [0, 1, 3]),
        (ranks.debug_rank_all, "DEBUG", [0, 1, 3]),
        (ranks.warning_rank_all, "WARNING", [0, 1, 3]),
        (ranks.error_rank_all, "ERROR", [0, 1, 3]),
    ],
)
def test_each_call_is_of_its_ranks_and_level(said, call, level, speaking):
    for rank in (0, 1, 3):
        found = said(rank, lambda: call("{braces} and %s stay", 1, key=2))
        assert found == ([(level, "test_ranks", "{braces} and %s stay")] if rank in speaking else [])


def test_a_text_is_said_once(said):
    found = said(2, lambda: [ranks.log_once("only once, of this test", "warning") for _ in range(3)])
    assert [(level, text) for level, _, text in found] == [("WARNING", "only once, of this test")]


def test_names_and_values_stand_in_columns(said):
    data = {"b": 2, "long_name": None, 3: "x", "group": {"inner": SimpleNamespace(lr=0.1), "none": {}}}
    for given in (data, SimpleNamespace(**{str(key): value for key, value in data.items()})):
        found = said(0, lambda given=given: ranks.log_dict_aligned("Config", given))
        assert [text for *_, text in found] == [
            RULE,
            "Config: (4 parameters)",
            "  3              : x (str)",
            "  b              : 2 (int)",
            "  group.inner.lr : 0.1 (float)",
            "  long_name      : None (NoneType)",
            RULE,
        ]
    assert said(1, lambda: ranks.log_dict_aligned("Config", data)) == []
    assert len(said(1, lambda: ranks.log_dict_aligned("Config", data, rank_filter="rank_all"))) == 7
    found = said(0, lambda: ranks.log_dict_aligned("Config", {}))
    assert [text for *_, text in found] == [RULE, "Config: (empty)", RULE]


def test_a_group_that_holds_itself_ends_somewhere(said):
    data: dict[str, object] = {"a": 1}
    data["again"] = data
    found = said(0, lambda: ranks.log_dict_aligned("Config", data))
    assert found[2][2].startswith("  a ")
    assert len(found) < 30


def test_one_name_and_its_value(said):
    assert said(0, lambda: ranks.log_kv_rank_0("world size", 8))[0][2] == "world size:         8"
    assert said(2, lambda: ranks.log_kv_rank_0("world size", 8)) == []


def test_nothing_raises_whatever_is_said(said):
    class Bad:
        def __str__(self):
            raise RuntimeError

    assert said(0, lambda: ranks.log_rank_0(Bad()))[0][2] == "<Bad: RuntimeError>"
    assert said(0, lambda: ranks.log_dict_aligned("x", 5))[1][2] == "x: (empty)"


def test_without_a_monitor_nothing_happens():
    assert rankside.current().rank is None
    ranks.log_rank_0("nobody hears")
    ranks.log_dict_aligned("nobody", {"hears": 1})


class Unreadable(dict):
    """A mapping that raises when it is looked into."""

    def items(self):
        raise RuntimeError("out of order")


@pytest.mark.parametrize(
    "call",
    [
        lambda: ranks.log_once("a number as a level", 20),
        lambda: ranks.log_once("no level", None),
        lambda: ranks.log_dict_aligned("no filter", {"a": 1}, rank_filter=[]),
        lambda: ranks.log_dict_aligned("no filter", {"a": 1}, rank_filter=None),
        lambda: ranks.log_dict_aligned("no mapping", Unreadable()),
        lambda: ranks.log_dict_aligned(["no", "title"], {"a": 1}, indent=None),
    ],
)
def test_wrong_arguments_are_said_all_the_same(said, call):
    assert "INFO" in [level for level, *_ in said(0, call)]
