"""AMD's GPUs through ROCm's `amdsmi`: the library is started once, and its handles are kept.

Separate from the other sources because it is foreign code in this process: it may refuse, lie, leak or crash,
so each call is caught alone, and one that is refused is not repeated at every poll.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from rankside_agent.gpu import amdsmi_package
from rankside_agent.gpu.amdsmi_calls import LASTING, STATE, Way
from rankside_agent.gpu.apu import is_apu
from rankside_agent.gpu.card import Card
from rankside_agent.gpu.partitions import counted_once, numbered
from rankside_agent.gpu.refusals import Refusals
from rankside_agent.gpu.source import Source, Unavailable

# Of amdsmi_status_t, alike in all versions
_INVALID, _NOT_SUPPORTED, _NOT_IMPLEMENTED, _NO_SYMBOL, _NO_PERMISSION = 1, 2, 3, 5, 10
_LASTING = {_INVALID, _NOT_SUPPORTED, _NOT_IMPLEMENTED, _NO_SYMBOL, _NO_PERMISSION}
_NO_DRIVER = 34  # since 6.2


class AmdSmi(Source):
    """Every GPU and partition that the library shows, in its order."""

    name: ClassVar[str] = "amdsmi"

    def __init__(
        self,
        load: Callable[[], Any] = amdsmi_package.load,
        devices: Path = Path("/dev"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._devices = devices
        self._clock = clock
        self._package: Any = None
        self._started = False
        self._handles: list[Any] = []
        self._lasting: list[dict[str, Any]] = []
        self._refusals = Refusals(clock)
        self._complaint: Exception | None = None

    def __repr__(self) -> str:
        return f"<AmdSmi handles={len(self._handles)} {self._refusals!r}>"

    def open(self) -> None:
        """Start the library, get the handles, and read once to see whether any memory is told."""
        self._package = self._package or self._load()
        try:
            self._package.amdsmi_init()
            self._started = True
            self._handles = list(self._package.amdsmi_get_processor_handles())
        except Exception as error:
            self.close()
            raise Unavailable(self._sentence(error)) from error
        self._lasting = [{} for _ in self._handles]
        self._refusals = Refusals(self._clock)
        try:
            self.read()
        except Unavailable:
            self.close()
            raise

    def read(self) -> list[Card]:
        """The state of every GPU now; raises Unavailable where none tells its memory."""
        self._complaint = None
        cards = [self._card(at) for at in range(len(self._handles))]
        if not any(card.vram for card in cards):
            raise Unavailable(self._sentence(self._complaint))
        cards = numbered(cards, [bool(known.get("split")) for known in self._lasting])
        return counted_once(cards, lambda at: self._ask(at, "vram", STATE["vram"]))

    def close(self) -> None:
        """Stop the library, if it was started."""
        self._handles = []
        if self._started:
            self._started = False
            with contextlib.suppress(Exception):
                self._package.amdsmi_shut_down()

    def _card(self, at: int) -> Card:
        known = self._lasting[at]
        for name, ways in LASTING.items():
            if known.get(name) is None:
                known[name] = self._ask(at, name, ways)
        state = {name: self._ask(at, name, ways) for name, ways in STATE.items()}
        correctable, uncorrectable = state.pop("ecc") or (None, None)
        apu = known["apu"]
        return Card(
            pci=known["pci"],
            uuid=known["uuid"],
            name=known["name"] or "",
            partition=known["partition"],
            apu=is_apu(None, None, state["vram"], state["gtt"]) if apu is None else apu,
            ecc_correctable=correctable,
            ecc_uncorrectable=uncorrectable,
            **state,
        )

    def _ask(self, at: int, name: str, ways: tuple[Way, ...]) -> Any:
        """What the first way tells that tells anything; None where none does."""
        for way in ways:
            question = (at, name, way.__name__)
            if not self._refusals.due(question):
                continue
            try:
                told = way(self._package, self._handles[at])
            except Exception as error:  # noqa: BLE001  foreign code; one value is lost and no other
                self._complain(error)
                self._refusals.refused(question, _is_lasting(error))
            else:
                self._refusals.answered(question)
                if told is not None:
                    return told
        return None

    def _complain(self, error: Exception) -> None:
        if self._complaint is None or _status(error) == _NO_PERMISSION:
            self._complaint = error

    def _sentence(self, error: Exception | None) -> str:
        if _status(error) == _NO_PERMISSION:
            return no_permission(self._devices)
        if _status(error) == _NO_DRIVER:
            return "the amdgpu driver is not loaded"
        if not self._handles and error is None:
            return "the library shows no AMD GPU"
        said = " ".join(str(error).split()) if error else "no reason was given"
        return f"no GPU of {len(self._handles)} tells its memory: {said}" if self._handles else said


def _may_open(device: Path) -> bool:
    return os.access(device, os.R_OK | os.W_OK)


def no_permission(devices: Path, may_open: Callable[[Path], bool] = _may_open) -> str:
    """Which devices this user may not open, and which groups open them as a rule."""
    found = [devices / "kfd", *sorted((devices / "dri").glob("renderD*"))]
    closed = [str(path) for path in found if path.exists() and not may_open(path)]
    names = ", ".join(closed) or f"{devices}/kfd or {devices}/dri/renderD*"
    return f"no permission for {names}: the agent's user has to be in the groups render and video"


def _status(error: Exception | None) -> int | None:
    found = getattr(error, "err_code", None)
    return abs(found) if isinstance(found, int) else None


def _is_lasting(error: Exception) -> bool:
    """Statuses that will be the same at the next poll, and everything that is no status: another version."""
    status = _status(error)
    return status in _LASTING or status is None
