"""Values made plain: numbers out of whatever holds one, readable text out of everything else."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import math
import threading
import time
from collections import OrderedDict, UserDict
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside import record, wire
from rankside.record import MAX_TEXT, Packer, cut, halves, named, numbers, spared, tree


class Tensor:
    """What a tensor looks like to one who does not import torch; `item` counts its calls."""

    def __init__(self, value: Any, shape: tuple[int, ...] = (), slow: float = 0.0) -> None:
        self.value, self.shape, self.slow, self.asked = value, shape, slow, 0

    def numel(self) -> int:
        return math.prod(self.shape)

    def item(self) -> Any:
        self.asked += 1
        time.sleep(self.slow)
        return self.value


class Unwilling:
    """An object that raises whatever it is asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("not me")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class Mood(enum.Enum):
    GOOD = 1


def through(values: Any) -> tuple[dict[str, float], dict[str, str]]:
    """The way of metrics: packed by the caller, unpacked and split by the agent."""
    return numbers(wire.unpack(Packer().pack(values)))


# -- numbers -------------------------------------------------------------------------------------------


def test_numbers_of_every_kind_that_one_value_may_have():
    given_values = {
        "bf16": Tensor(0.5),
        "shape [1]": Tensor(2.0, (1,)),
        "shape [1, 1]": Tensor(3, (1, 1)),
        "true": True,
        "int": 7,
        "float": 0.25,
        "decimal": Decimal("1.5"),
        "fraction": Fraction(1, 4),
        "nan": float("nan"),
        "inf": float("-inf"),
        "big": 2**70,
        "big item": Tensor(2**80),
        "flag": Tensor(True),
    }
    good, refused = through(given_values)
    assert refused == {}
    assert math.isnan(good.pop("nan"))
    assert good == {
        "bf16": 0.5,
        "shape [1]": 2.0,
        "shape [1, 1]": 3,
        "true": 1,
        "int": 7,
        "float": 0.25,
        "decimal": 1.5,
        "fraction": 0.25,
        "inf": float("-inf"),
        "big": 2.0**70,
        "big item": 2.0**80,
        "flag": 1,
    }


def test_what_is_no_number_is_refused_with_its_reason_and_the_rest_goes():
    good, refused = through(
        {
            "first": 1,
            "shape [4]": Tensor(None, (4,)),
            "none": None,
            "text": "nan",
            "bytes": b"1",
            "list": [1.0],
            "dict": {"a": 1},
            "complex": 1j,
            "object": object(),
            "text item": Tensor("3"),
            "none item": Tensor(None),
            "huge": 10**400,
            "empty": Tensor(0, (0,)),
            "last": 2,
        }
    )
    assert good == {"first": 1, "last": 2}
    assert refused.pop("shape [4]") == "Tensor of shape [4]"
    assert "NoneType" in refused["none"]
    assert "str" in refused["text"]
    assert set(refused) == {
        *("none", "text", "bytes", "list", "dict", "complex", "object"),
        *("text item", "none item", "huge", "empty"),
    }


def test_item_is_asked_once_and_only_for_what_is_sent():
    once, never = Tensor(1.0, slow=0.05), Tensor(None, (1000,), slow=0.05)
    started = time.perf_counter()
    assert through({"once": once, "never": never})[0] == {"once": 1.0}
    assert (once.asked, never.asked) == (1, 0)
    assert time.perf_counter() - started < 1


def test_an_item_that_raises_costs_only_its_own_value():
    class OnMeta(Tensor):
        def item(self) -> Any:
            raise NotImplementedError("Cannot copy out of meta tensor;\nno data!")

    good, refused = through({"meta": OnMeta(0), "loss": 1.5})
    assert good == {"loss": 1.5}
    assert refused == {"meta": "OnMeta: NotImplementedError: Cannot copy out of meta tensor; no data!"}


def test_numpy_scalars_and_one_element_arrays():
    np = pytest.importorskip("numpy")
    good, refused = through(
        {
            "float32": np.float32(2),
            "float64": np.float64(0.1),
            "float16": np.float16(0.5),
            "longdouble": np.longdouble(1.25),
            "int64": np.int64(3),
            "uint64": np.uint64(2**64 - 1),
            "bool": np.bool_(True),
            "array [1]": np.array([4.0]),
            "array []": np.array(5),
            "array [4]": np.zeros(4),
            "array [0]": np.zeros(0),
            "text": np.str_("nan"),
            "date": np.datetime64("2026-01-02"),
            "object": np.array([None], dtype=object),
        }
    )
    assert good == {
        "float32": 2.0,
        "float64": 0.1,
        "float16": 0.5,
        "longdouble": 1.25,
        "int64": 3,
        "uint64": 2**64 - 1,
        "bool": 1,
        "array [1]": 4.0,
        "array []": 5,
    }
    assert all(type(value) in (int, float) for value in good.values())
    assert sorted(refused) == ["array [0]", "array [4]", "date", "object", "text"]
    assert refused["array [4]"] == "ndarray of shape [4]"


def test_numpys_times_and_masked_values_are_no_numbers_and_named():
    np = pytest.importorskip("numpy")
    good, refused = through(
        {
            "masked": np.ma.masked,
            "masked array": np.ma.array([7.0], mask=[True]),
            "shown": np.ma.array([7.0], mask=[False]),
            "shown, no mask": np.ma.array([8.0]),
            "time ns": np.datetime64("2026-01-01", "ns"),
            "time s": np.datetime64("2026-01-01", "s"),
            "span ns": np.timedelta64(5, "ns"),
            "span Y": np.timedelta64(5, "Y"),
            "times": np.array(["2026-01-01"], dtype="datetime64[ns]"),
        }
    )
    assert good == {"shown": 7.0, "shown, no mask": 8.0}
    assert refused["masked"] == "MaskedConstant whose value is masked"
    assert refused["time ns"] == "datetime64 of type datetime64[ns]"
    assert sorted(refused) == ["masked", "masked array", "span Y", "span ns", "time ns", "time s", "times"]


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    good, refused = through(
        {
            "a": torch.tensor(0.5, dtype=torch.bfloat16),
            "d": torch.tensor([1.5]),
            "e": torch.zeros(4),
            "i": torch.tensor(2.0, requires_grad=True),
            "int": torch.tensor(3),
            "bool": torch.tensor(True),
            "half": torch.tensor(0.25, dtype=torch.float16),
            "complex": torch.tensor(1j),
            "meta": torch.tensor(1.0, device="meta"),
            "parameter": torch.nn.Parameter(torch.tensor(4.0)),
        }
    )
    assert good == {"a": 0.5, "d": 1.5, "i": 2.0, "int": 3, "bool": 1, "half": 0.25, "parameter": 4.0}
    assert refused.pop("e") == "Tensor of shape [4]"
    assert sorted(refused) == ["complex", "meta"]


def test_metrics_that_are_no_mapping_are_refused_as_a_whole():
    assert numbers([1]) == ({}, {"": "list is no mapping of names to numbers"})


# -- names and parts of metrics ------------------------------------------------------------------------


def test_names_that_are_no_texts_become_texts():
    odd = {("loss", "train"): 1, 7: 2, None: 3, Mood.GOOD: 4, Tensor(9): 5, b"x": 6, "plain": 7}
    good, refused = through(named(odd))
    assert refused == {}
    assert good == {
        "('loss', 'train')": 1,
        "7": 2,
        "None": 3,
        "<Mood.GOOD: 1>": 4,
        "9": 5,
        "b'x'": 6,
        "plain": 7,
    }


def test_a_value_that_cannot_be_packed_does_not_take_the_others_with_it():
    endless: list[Any] = []
    endless.append(endless)
    values = {"loss": 1.5, "endless": endless, "text": "nan", "big": 2**64, "tensor": Tensor(2.0), 3: True}
    values["unwilling"] = Unwilling()
    with pytest.raises(ValueError, match="recursion"):
        Packer().pack(values)
    good, refused = through(spared(values))
    assert good == {"loss": 1.5, "big": 2.0**64, "tensor": 2.0, "3": 1}
    assert sorted(refused) == ["endless", "text", "unwilling"]
    assert "RuntimeError: not me" in refused["unwilling"]


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_halves_together_are_the_whole(values):
    left, right = halves(values)
    assert left
    assert right
    assert {**left, **right} == values


# -- packing -------------------------------------------------------------------------------------------


def test_threads_may_pack_at_the_same_time():
    pack, wrong = Packer().pack, []

    def work(number: int) -> None:
        for i in range(3000):
            value = [number, i, "x" * (i % 50), {"n": i / 7}]
            if wire.unpack(pack(value)) != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


def test_a_pack_may_come_in_the_middle_of_another():
    pack, inner = Packer().pack, []

    class Logs:
        def item(self) -> float:
            inner.append(pack((1.0, "from inside", {"a": Tensor(3)})))
            return 2.0

    assert wire.unpack(pack({"before": 1, "odd": Logs(), "after": "x" * 500})) == {
        "before": 1,
        "odd": 2.0,
        "after": "x" * 500,
    }
    assert wire.unpack(inner[0]) == [1.0, "from inside", {"a": 3}]


def test_a_failed_pack_leaves_nothing_behind():
    pack, endless = Packer().pack, []
    endless.append(endless)
    for _ in range(3):
        with pytest.raises(ValueError, match="recursion"):
            pack({"a": "x" * 1000, "b": endless})
        assert wire.unpack(pack({"a": 1})) == {"a": 1}


@given(st.text(st.characters(codec=None), max_size=50), st.integers(0, 40))
def test_any_text_can_be_packed_surrogates_too(text, place):
    text = text[:place] + "\ud83d" + text[place:]
    assert wire.unpack(Packer().pack((1, text))) == [1, text]


# -- cut -----------------------------------------------------------------------------------------------


def test_a_text_that_fits_is_left_alone():
    for text in ("", "x", "é" * 100, "x" * MAX_TEXT, "\ud800" * (MAX_TEXT // 3)):
        assert cut(text) is text


@pytest.mark.parametrize("character", ["x", "é", "€", "😀", "\ud800", "a€"])
@pytest.mark.parametrize("over", range(1, 5))
def test_a_text_that_is_too_long_says_how_long_it_was(character, over):
    text = character * (MAX_TEXT // len(character.encode("utf-8", "surrogatepass")) + over)
    short = cut(text)
    assert len(short.encode("utf-8", "surrogatepass")) <= MAX_TEXT
    kept, _, mark = short.partition(" ... [rankside: cut here, ")
    assert mark == f"{len(text)} characters in all]"
    assert text.startswith(kept)
    assert len(kept.encode("utf-8", "surrogatepass")) > MAX_TEXT - 110


@given(st.text(st.sampled_from("aé€😀\ud800"), min_size=1).filter(bool), st.integers(150, 400))
def test_a_cut_is_never_inside_a_character(text, most):
    text *= 500
    short = cut(text, most)
    assert len(short.encode("utf-8", "surrogatepass")) <= most
    assert text.startswith(short.partition(" ... [")[0])


def test_64_megabytes_are_cut_without_being_encoded_whole():
    tracemalloc = pytest.importorskip("tracemalloc")
    text = "€" * (64 << 20)
    tracemalloc.start()
    short = cut(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert f"{64 << 20} characters in all" in short
    assert peak < 16 << 20


# -- parameters ----------------------------------------------------------------------------------------


def test_every_kind_of_parameter_becomes_something_readable():
    class Dtype:
        def __repr__(self) -> str:
            return "torch.bfloat16"

    class NoRepr:
        def __repr__(self) -> str:
            raise RuntimeError("no\nrepr")

    args = argparse.Namespace(
        dtype=Dtype(),
        function=lambda x: x,
        path=Path("/data/llama"),
        raw=b"\xff",
        chosen={3},
        inner=argparse.Namespace(lr=0.1, deep=SimpleNamespace(beta=0.9)),
        nan=float("nan"),
        no_repr=NoRepr(),
        big=2**70,
        tensor=Tensor(0.5),
        vector=Tensor(None, (3,)),
        none=None,
        flag=True,
        pair=(1, "two"),
        mood=Mood.GOOD,
        kind=int,
    )
    args.itself = args
    setattr(args, "odd name", 1)
    found = tree({**vars(args), 12: "int key", ("a", 1): "tuple key"})
    assert wire.unpack(Packer().pack(found)) is not None
    assert math.isnan(found.pop("nan"))
    assert found.pop("function").startswith("<function ")
    assert found.pop("vector").startswith("<")
    assert found.pop("no_repr") == "<NoRepr: its repr raised RuntimeError: no repr>"
    assert found.pop("itself")["itself"] == "<itself>"
    assert found == {
        "dtype": "torch.bfloat16",
        "path": "/data/llama",
        "raw": "b'\\xff'",
        "chosen": [3],
        "inner": {"lr": 0.1, "deep": {"beta": 0.9}},
        "big": str(2**70),
        "tensor": "0.5",
        "none": None,
        "flag": True,
        "pair": [1, "two"],
        "mood": "<Mood.GOOD: 1>",
        "kind": "<class 'int'>",
        "odd name": 1,
        "12": "int key",
        "('a', 1)": "tuple key",
    }


def test_cycles_through_any_container_end():
    cycle: dict[str, Any] = {"list": []}
    cycle["list"].append(cycle)
    assert tree(cycle) == {"list": ["<itself>"]}
    shared = [1]
    assert tree({"a": shared, "b": shared}) == {"a": [1], "b": [1]}


def test_what_lies_too_deep_becomes_text():
    value: Any = "bottom"
    for _ in range(100):
        value = {"down": value}
    found = tree(value)
    for _ in range(6):
        found = found["down"]
    assert isinstance(found, str)


def test_mappings_that_are_no_dicts():
    assert tree(MappingProxyType({"a": 1})) == {"a": 1}
    assert tree(OrderedDict(a=UserDict(b=2))) == {"a": {"b": 2}}


def test_a_container_that_raises_costs_only_itself():
    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("closed")

    class Stubborn(str):
        def __str__(self) -> str:
            raise RuntimeError("no")

    found = tree({"good": 1, "broken": Broken(a=1), "unwilling": Unwilling(), "stubborn": Stubborn("yes")})
    assert found.pop("unwilling").startswith("<Unwilling")
    assert found == {"good": 1, "broken": "<Broken: RuntimeError: closed>", "stubborn": "yes"}


def test_a_long_value_and_a_long_name_are_cut():
    found = tree({"k" * 5000: "v" * (2 << 20)})
    ((name, value),) = found.items()
    assert len(name) <= record.MAX_NAME
    assert "5000 characters in all" in name
    assert f"{2 << 20} characters in all" in value


def test_containers_beyond_reason_are_cut_and_say_so_and_their_neighbours_are_whole():
    found = tree({"rows": list(range(1000)), "names": {str(n): n for n in range(1000)}, "lr": 0.1}, items=100)
    rows, names = found["rows"], found["names"]
    assert rows[:3] == [0, 1, 2]
    assert rows[-1] == names["..."] == "... [rankside: cut here, 1000 items in all]"
    assert 0 < len(rows) + len(names) <= 102
    assert found["lr"] == 0.1


def test_so_much_text_together_and_no_more():
    found = tree({"a": "x" * 5000, "b": ["y" * 5000] * 3, "c": "short"}, characters=6000)
    assert found["a"] == "x" * 5000
    assert all(text.endswith("5000 characters in all]") for text in found["b"])
    assert found["c"] == "short"


class Asked(Exception):
    """A repr that reads all of a million values."""


class Sized:
    def __init__(self, *held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return 1_000_000

    def __repr__(self) -> str:
        raise Asked


class Shaped:
    shape, dtype = (1000, 30), "float64"

    def __repr__(self) -> str:
        raise Asked


class Holds:
    def __init__(self, *held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        return f"Holds{self.held!r}"


def test_a_repr_that_reads_much_is_not_asked():
    assert tree(Sized()) == "<Sized of 1000000 items, its text is left out>"
    assert tree(Shaped()) == "<Shaped of shape [1000, 30], float64, its text is left out>"
    assert tree(Holds([Shaped()])) == tree(Holds(list(range(1000)))) == "<Holds, its text is left out>"
    assert tree(Holds(1, "two")) == "Holds(1, 'two')"


def test_small_values_of_the_library_are_readable():
    @dataclasses.dataclass
    class Config:
        lr: float = 0.1
        betas: tuple[float, ...] = (0.9, 0.99)

    found = tree(
        [
            datetime(2026, 1, 2),
            timedelta(seconds=3),
            Decimal("1.5"),
            Fraction(1, 3),
            ValueError("v"),
            Config(),
        ]
    )
    assert found[:5] == [
        "datetime.datetime(2026, 1, 2, 0, 0)",
        "datetime.timedelta(seconds=3)",
        "Decimal('1.5')",
        "Fraction(1, 3)",
        "ValueError('v')",
    ]
    assert found[5].endswith("Config(lr=0.1, betas=(0.9, 0.99))")


NASTY = st.deferred(
    lambda: (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters(codec=None), max_size=20)
        | st.binary(max_size=20)
        | st.complex_numbers()
        | st.decimals()
        | st.fractions()
        | st.datetimes()
        | st.builds(Tensor, st.integers() | st.text(), st.sampled_from([(), (1,), (2,), (0,)]))
        | st.builds(Unwilling)
        | st.builds(object)
        | st.sampled_from([Mood.GOOD, int, len, ..., NotImplemented, range(3), memoryview(b"abc")[::2]])
        | st.lists(NASTY, max_size=3)
        | st.tuples(NASTY)
        | st.frozensets(st.integers(), max_size=3)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.tuples(st.text()), NASTY, max_size=3)
    )
)


@given(NASTY)
def test_any_value_becomes_a_tree_that_travels(value):
    wire.unpack(Packer().pack(tree(value)))


@given(st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), NASTY, max_size=4))
def test_any_metrics_keep_their_numbers(values):
    good, refused = through(spared(values))
    assert len(good) + len(refused) == len(named(values))
    for key, value in values.items():
        if type(value) in (int, float) and isinstance(key, str) and -(2**63) <= value < 2**64:
            assert good[key] == value
