"""What rocm-smi and amd-smi print, of several versions and in each form, and what cannot be read of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.gpu import amd_smi_tree, quantity, rocm_smi_labels
from rankside_agent.gpu.card import Card, Pool
from rankside_agent.gpu.rocm_smi_table import from_table

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu"
MI300X = 206141652992
READERS = [
    rocm_smi_labels.from_json,
    rocm_smi_labels.from_csv,
    rocm_smi_labels.from_text,
    amd_smi_tree.from_json,
    amd_smi_tree.from_csv,
    amd_smi_tree.from_text,
    from_table,
]


def texts(*names: str) -> list[str]:
    return [(FIXTURES / name).read_text() for name in names]


# rocm-smi


def test_json_of_version_5():
    assert rocm_smi_labels.from_json(texts("rocm-smi-5.json")) == [
        Card(
            pci="0000:63:00.0",
            uuid="5242a82c8b870fbb",
            name="Instinct MI210",
            vram=Pool(11005952, 68702699520),
            gtt=Pool(11018240, 540000000000),
            use_percent=0.0,
            power_w=41.0,
            temperature_c=38.0,
            clock_mhz=800.0,
        )
    ]


def test_json_of_version_6_among_warnings_and_out_of_order():
    first, second = rocm_smi_labels.from_json(texts("rocm-smi-6.json"))
    assert first == Card(
        pci="0000:0c:00.0",
        uuid="a000000000000001",
        name="AMD Instinct MI300X OAM",
        vram=Pool(301989888, MI300X),
        use_percent=94.0,
        power_w=142.0,
        temperature_c=42.0,
        clock_mhz=2100.0,
    )
    assert (second.pci, second.vram) == ("0000:22:00.0", Pool(2147483648, MI300X))
    assert (second.power_w, second.temperature_c, second.use_percent) == (None, None, 7.0)


def test_csv_by_its_header_though_total_comes_before_used():
    first, second = rocm_smi_labels.from_csv(texts("rocm-smi-6.csv"))
    assert (first.vram, first.pci, first.use_percent) == (Pool(301989888, MI300X), "0000:0c:00.0", 94.0)
    assert first.name == "AMD Instinct MI300X, OAM"
    assert (second.vram, second.use_percent) == (Pool(2147483648, MI300X), None)


def test_csv_with_its_columns_in_another_order():
    text = "VRAM Total Used Memory (B),device,VRAM Total Memory (B)\n5,card3,10\n"
    assert [card.vram for card in rocm_smi_labels.from_csv([text])] == [Pool(5, 10)]


def test_text_by_its_labels():
    first, second = rocm_smi_labels.from_text(texts("rocm-smi-5.txt"))
    assert (first.pci, first.vram) == ("0000:0c:00.0", Pool(301989888, MI300X))
    assert (first.clock_mhz, first.temperature_c, first.name) == (132.0, 42.0, "AMD Instinct MI300X")
    assert (second.pci, second.vram, second.power_w) == ("0000:22:00.0", None, None)


def test_the_old_table_with_a_header_of_one_line():
    first, second = from_table(texts("rocm-smi-table-5.txt"))
    assert first == Card(use_percent=12.0, power_w=41.0, temperature_c=35.0, clock_mhz=800.0)
    assert second == Card(use_percent=0.0, power_w=None, temperature_c=36.0, clock_mhz=800.0)


def test_the_new_table_with_a_header_and_rows_of_two_lines():
    first, second = from_table(texts("rocm-smi-table-6.txt"))
    assert first == Card(use_percent=94.0, power_w=142.0, temperature_c=42.0, clock_mhz=132.0)
    assert second == Card(use_percent=0.0, power_w=139.0, temperature_c=None, clock_mhz=133.0)


def test_the_tenth_card_comes_after_the_ninth():
    cards = {
        f"card{at}": {"VRAM Total Memory (B)": "100", "VRAM Total Used Memory (B)": str(at)}
        for at in (10, 9, 2)
    }
    found = rocm_smi_labels.from_json([json.dumps(cards)])
    assert [card.vram for card in found] == [Pool(2, 100), Pool(9, 100), Pool(10, 100)]


# amd-smi


def test_json_as_a_list_with_old_names():
    first, second = amd_smi_tree.from_json(texts("amd-smi-metric-list.json", "amd-smi-static.json"))
    assert (first.pci, first.uuid, first.vram) == (
        "0000:0c:00.0",
        "a000000000000001",
        Pool(288 << 20, MI300X),
    )
    assert second == Card(
        pci="0000:22:00.0",
        uuid="a000000000000002",
        name="AMD Instinct MI300X",
        vram=Pool(2 << 30, MI300X),
        use_percent=3.0,
        power_w=139.0,
        temperature_c=41.0,
        clock_mhz=133.0,
    )


def test_json_wrapped_with_new_names_and_values_that_are_texts():
    first, second = amd_smi_tree.from_json(texts("amd-smi-metric-wrapped.json", "amd-smi-static.json"))
    assert first == Card(
        pci="0000:0c:00.0",
        uuid="a000000000000001",
        name="AMD Instinct MI300X",
        vram=Pool(288 << 20, MI300X),
        gtt=Pool(20 << 20, 515000 << 20),
        use_percent=94.0,
        power_w=142.0,
        temperature_c=42.0,
        clock_mhz=132.0,
        ecc_correctable=12,
        ecc_uncorrectable=1,
    )
    assert (second.vram, second.gtt, second.use_percent) == (Pool(2 << 30, MI300X), None, None)


def test_text_by_its_indented_keys():
    first, second = amd_smi_tree.from_text(texts("amd-smi-metric.txt", "amd-smi-static.txt"))
    assert first == Card(
        pci="0000:0c:00.0",
        uuid="a000000000000001",
        name="AMD Instinct MI300X",
        vram=Pool(288 << 20, MI300X),
        gtt=Pool(964 << 20, 13649 << 20),
        use_percent=94.0,
        power_w=142.0,
        temperature_c=42.0,
        clock_mhz=132.0,
        ecc_correctable=12,
        ecc_uncorrectable=1,
    )
    assert second == Card()


def test_csv_by_its_header():
    first, second = amd_smi_tree.from_csv(texts("amd-smi-metric.csv"))
    assert first == Card(vram=Pool(288 << 20, MI300X), use_percent=94.0, power_w=142.0, temperature_c=42.0)
    assert (second.vram, second.use_percent) == (Pool(2 << 30, MI300X), None)


def test_a_partition_has_its_number_and_a_whole_card_none():
    def static(mode):
        parts = [{"compute_partition": mode, "partition_id": at} for at in range(2)]
        return json.dumps([{"gpu": at, "partition": part} for at, part in enumerate(parts)])

    assert [card.partition for card in amd_smi_tree.from_json([static("CPX")])] == [0, 1]
    assert [card.partition for card in amd_smi_tree.from_json([static("SPX")])] == [None, None]


# APUs: the tools do not say that one is


APU = """GPU: 0
    MEM_USAGE:
        TOTAL_VRAM: 512 MB
        USED_VRAM: 489 MB
        FREE_VRAM: 23 MB
        TOTAL_GTT: 13649 MB
        USED_GTT: 964 MB
"""


def test_a_vram_too_small_for_any_card_is_a_piece_of_the_hosts_memory():
    (card,) = amd_smi_tree.from_text([APU])
    assert card.apu
    assert card.memory == Pool(964 << 20, 13649 << 20)
    labels = {f"{kind} Total {part}Memory (B)": size for kind, part, size in SIZES}
    (card,) = rocm_smi_labels.from_json([json.dumps({"card0": labels})])
    assert card.apu


SIZES = [
    ("VRAM", "", 512 << 20),
    ("VRAM", "Used ", 489 << 20),
    ("GTT", "", 124 << 30),
    ("GTT", "Used ", 3 << 30),
]


def test_a_card_with_a_large_gtt_is_none():
    text = APU.replace("512 MB", "196592 MB").replace("13649 MB", "1048576 MB")
    assert [card.apu for card in amd_smi_tree.from_text([text])] == [False]


# Quantities


@pytest.mark.parametrize(
    ("told", "size"),
    [
        (288, 288),
        ("288", 288),
        ("288 B", 288),
        ("288 MB", 288 << 20),
        ("288 MiB", 288 << 20),
        ("2.5GB", 5 << 29),
        ({"value": 288, "unit": "MB"}, 288 << 20),
        ({"value": "288", "unit": "KiB"}, 288 << 10),
        ({"value": "N/A", "unit": "MB"}, None),
        ("288 %", None),
        ("N/A", None),
        ("", None),
        (None, None),
        (True, None),
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        ({"value": {"value": 1}}, None),
        ([288], None),
        ("9" * 5000, None),
    ],
)
def test_sizes(told, size):
    assert quantity.size(told) == size


@pytest.mark.parametrize(
    ("told", "number"),
    [("42.0°C", 42.0), ("142.0W", 142.0), ("(132Mhz)", 132.0), ("0%", 0.0), ("N/A", None)],
)
def test_numbers(told, number):
    assert quantity.number(told) == number


def test_a_number_of_thousands_of_digits_is_none():
    assert quantity.number(10**5000) is None


# Garbage

WORDS = st.sampled_from(
    [
        "GPU[0] : ",
        "GPU: 0\n",
        "card0",
        '{"gpu": 0',
        '{"card0": {',
        "[",
        "]}",
        "device,gpu\n",
        ",",
        ":",
        "\n    ",
        "VRAM",
    ]
)


@pytest.mark.parametrize("reader", READERS)
@given(st.lists(st.one_of(st.text(max_size=20), WORDS), max_size=12).map("".join))
def test_no_text_raises(reader, text):
    assert all(isinstance(card, Card) for card in reader([text]))


@pytest.mark.parametrize("reader", READERS)
@given(st.data())
def test_no_text_cut_or_mixed_up_raises(reader, data):
    name = data.draw(st.sampled_from(sorted(path.name for path in FIXTURES.iterdir() if path.is_file())))
    text = (FIXTURES / name).read_text(errors="replace")
    cut = data.draw(st.integers(0, len(text)))
    again = data.draw(st.integers(0, len(text)))
    for card in reader([text[:cut] + text[again:]]):
        assert card.vram is None or 0 <= card.vram.used <= card.vram.total


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["gpu", "gpu_data", "card0", "mem_usage", "total_vram", "used_vram", "value"]),
            inner,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("reader", [rocm_smi_labels.from_json, amd_smi_tree.from_json])
@given(JSON)
def test_no_json_raises(reader, value):
    reader([json.dumps(value)])


@pytest.mark.parametrize("reader", [rocm_smi_labels.from_json, amd_smi_tree.from_json])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"gpu":' * 50_000, "{\n" * 50_000], ids=["lists", "objects", "lines"]
)
def test_deep_nesting_is_no_answer(reader, text):
    assert reader([text]) == []
