"""PCI addresses and UUIDs in all the forms in which GPUs are named."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankside_agent.gpu.identity import amd_ids, is_uuid, pci, pci_text, same_uuid, unique_id

ID = "5242a82c8b870fbb"
AS_LETTERS = str(uuid.UUID(bytes=ID.encode()))  # as torch prints the UUID that HIP fills with the digits
AS_NUMBER = str(uuid.UUID(bytes=bytes.fromhex(ID) + bytes(8)))
AS_REVERSED = str(uuid.UUID(bytes=bytes.fromhex(ID)[::-1] + bytes(8)))
NVIDIA = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


@pytest.mark.parametrize(
    "told", ["0000:3B:00.0", "0000:3b:00.0", "00000000:3B:00.0", "3b:00.0", " 0000:3b:00 "]
)
def test_an_address_has_one_form(told):
    assert pci_text(told) == "0000:3b:00.0"


@pytest.mark.parametrize(
    "told", ["", "3b", "0000:3b:00.9", "0000:3b:20.0", "card0", "3b:0g", None, 59, b"3b:00"]
)
def test_what_is_no_address_is_none(told):
    assert pci_text(told) is None


def test_addresses_are_compared_without_the_function_and_without_a_domain_that_was_not_told():
    card = pci("0001:63:00.0")
    assert card.same_device(pci("0001:63:00.3"))
    assert card.same_device(pci("63:00"))
    assert not card.same_device(pci("0000:63:00.0"))
    assert not card.same_device(pci("0001:64:00.0"))


@pytest.mark.parametrize(
    "told",
    [
        ID,
        ID.upper(),
        f"GPU-{ID}",
        f"gpu-{ID}",
        f"0x{ID}",
        AS_LETTERS,
        AS_LETTERS.replace("-", ""),
        AS_NUMBER,
        AS_REVERSED,
    ],
)
def test_every_form_of_an_amd_id_names_the_card(told):
    assert same_uuid(told, ID, "amd")
    assert not same_uuid(told, "5242a82c8b870fbc", "amd")


def test_a_serial_number_loses_no_leading_zeros():
    assert amd_ids("0xabc") == {"0000000000000abc"}
    assert unique_id(0xABC) == "0000000000000abc"


@pytest.mark.parametrize(
    "told", ["", "GPU-XX", "0x0", "0" * 16, "0" * 32, "N/A", None, 5, "g" * 32, "1" * 33]
)
def test_what_names_no_card_matches_none(told):
    assert amd_ids(told) == frozenset()
    assert not is_uuid(told, "amd")
    assert not same_uuid(told, ID, "amd")
    assert not same_uuid(told, told, "amd")


@pytest.mark.parametrize("told", [NVIDIA, NVIDIA[4:], NVIDIA.upper()])
def test_nvidias_uuid_is_matched_with_and_without_its_prefix(told):
    assert same_uuid(told, NVIDIA, "nvidia")
    assert not same_uuid(told, NVIDIA[:-1] + "7", "nvidia")


@given(st.text(max_size=40))
def test_no_text_raises(told):
    pci_text(told), amd_ids(told), same_uuid(told, ID, "nvidia"), is_uuid(told, None)


@given(st.integers(1, (1 << 64) - 1))
def test_every_id_is_found_in_what_torch_prints(number):
    own = unique_id(number)
    assert same_uuid(str(uuid.UUID(bytes=own.encode())), own, "amd")
