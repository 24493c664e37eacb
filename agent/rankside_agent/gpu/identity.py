"""What names one GPU for good: its PCI address and its UUID, in the forms in which they can be compared.

Separate because drivers, tools, torch and people write the same GPU in many ways, and a wrong "equal" here is
a wrong card in the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.ASCII)
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
_DIGITS = 16  # of AMD's unique id
_PREFIX = re.compile(r"^(?:gpu-|mig-|0x)")


@dataclass(frozen=True)
class Pci:
    """An address; what its writer left out is None. torch tells no function, and older ones no domain."""

    domain: int | None
    bus: int
    device: int
    function: int | None

    def same_device(self, other: Pci) -> bool:
        """Whether both name one device, whatever the function: partitions of a card differ in that only."""
        domains = {self.domain, other.domain} - {None}
        return (self.bus, self.device) == (other.bus, other.device) and len(domains) < 2

    def __str__(self) -> str:
        return f"{self.domain or 0:04x}:{self.bus:02x}:{self.device:02x}.{self.function or 0}"


def pci(told: object) -> Pci | None:
    """From "0000:63:00.0", "63:00", "00000000:3B:00.0" and their like; None where it is no address."""
    found = _PCI.fullmatch(told.strip().lower()) if isinstance(told, str) else None
    if not found:
        return None
    domain, bus, device, function = (None if part is None else int(part, 16) for part in found.groups())
    if bus is None or device is None or device > 31:
        return None
    return Pci(domain, bus, device, function)


def pci_text(told: object) -> str | None:
    """The same as a Card holds it."""
    found = pci(told)
    return str(found) if found else None


def unique_id(number: int) -> str | None:
    """AMD's unique id as a Card holds it. 0 is what a GPU without one tells."""
    return f"{number:0{_DIGITS}x}" if 0 < number < 1 << 64 else None


def amd_ids(told: object) -> frozenset[str]:
    """The unique ids that a text can mean; none where it is no unique id.

    HIP fills the 16 bytes of its UUID with the 16 hex digits as ASCII, and torch prints those bytes as a UUID
    of 32 digits. A runtime that fills them with the number itself leaves half of them zero, in either order.
    """
    text = _bare(told)
    if not _HEX.fullmatch(text):
        return frozenset()
    if len(text) <= _DIGITS:
        return _ids(text)
    if len(text) != 2 * _DIGITS:
        return frozenset()
    data = bytes.fromhex(text)
    letters = data.decode("latin-1").lower()
    if _HEX.fullmatch(letters):
        return _ids(letters)
    halves = [half for half in (data[:8], data[8:]) if any(half)]
    return _ids(halves[0].hex(), halves[0][::-1].hex()) if len(halves) == 1 else frozenset()


def _ids(*texts: str) -> frozenset[str]:
    return frozenset(found for text in texts if (found := unique_id(int(text, 16))))


def _bare(told: object) -> str:
    text = told.strip().lower().strip("{}") if isinstance(told, str) else ""
    return _PREFIX.sub("", text).replace("-", "")


def same_uuid(told: object, of_card: str | None, vendor: str) -> bool:
    """Whether a text names the card with this UUID."""
    if not of_card or not told:
        return False
    if vendor == "amd":
        return bool(amd_ids(told) & amd_ids(of_card))
    return _bare(told) == _bare(of_card) != ""


def is_uuid(told: object, vendor: str | None) -> bool:
    """Whether a text names some card at all; an empty one, zeros and "GPU-XX" name none."""
    bare = _bare(told)
    return bool(amd_ids(told)) if vendor == "amd" else bool(bare.strip("0x"))
