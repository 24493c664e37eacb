"""One log by its name, in whichever files it lies: the live one, rotated siblings, packed ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rankside_agent.tail import names
from rankside_agent.tail.assembly import Kind
from rankside_agent.tail.lines import CHUNK
from rankside_agent.tail.names import LIVE, Order
from rankside_agent.tail.piece import Packed, Piece, Plain, packed_size, unpack_beginning

_HEAD = 256  # bytes that tell one packed file from another; every line begins with its time
_ONE_READ = 100  # entries that one read of a folder gives at least, be the names as long as they may

T = TypeVar("T")


@dataclass(frozen=True)
class Log:
    """A log: folder and stem say which files are its own."""

    folder: Path
    stem: str
    kind: Kind
    say: Callable[[str], None]  # takes what the reader should know beside the records

    @property
    def path(self) -> Path:
        """The live file."""
        return self.folder / f"{self.stem}.log"

    def __str__(self) -> str:
        return str(self.path)

    def siblings(self) -> list[Order]:
        """The rotated files, oldest first; a packed one and the plain one it was made of are the same."""
        listed = os.listdir(self.folder)
        if len(listed) > _ONE_READ:
            # long folders are read in parts: a file packed meanwhile may show under neither name, but once
            listed += os.listdir(self.folder)
        found = (names.split(name) for name in listed)
        ours = {name.order for name in found if name is not None and name.stem == self.stem}
        return sorted(ours - {LIVE})

    def open_live(self) -> Plain | None:
        """The file being written, where there is one."""
        with suppress(FileNotFoundError):
            return Plain(self.path)
        return None

    def open(self, order: Order) -> Piece | None:
        """A rotated file, plain or packed; None when it is there no more."""
        plain: Callable[[Path], Piece] = Plain
        return self._either(order, plain, lambda path: Packed(path, self.say))

    def beginning(self, order: Order, count: int = CHUNK) -> bytes:
        """The first bytes of a rotated file; none when it is there no more."""

        def read(path: Path) -> bytes:
            with closing(Plain(path)) as piece:
                return piece.read(0, count)

        return self._either(order, read, lambda path: unpack_beginning(path, count)) or b""

    def is_live(self, piece: Plain) -> bool:
        """Whether the live name leads to this file still."""
        try:
            return identity(self.path) == piece.identity
        except FileNotFoundError:
            return False

    def is_same(self, order: Order, piece: Plain | None, head: bytes) -> bool:
        """Whether a rotated file is the one behind this handle or, without a handle, one that begins so."""

        def plain(path: Path) -> bool:
            if piece is not None:
                return identity(path) == piece.identity
            with closing(Plain(path)) as other:
                return other.read(0, len(head)) == head

        def packed(path: Path) -> bool:
            same_size = piece is None or packed_size(path) == piece.size() % 2**32
            return same_size and unpack_beginning(path, len(head)) == head

        return bool(self._either(order, plain, packed))

    def snapshot(self) -> tuple[Plain | None, list[Order]]:
        """The live file and all that were rotated before, as of the moment of opening. Raises OSError."""
        live = self.open_live()
        if live is None:
            return None, self.siblings()
        try:
            older = self.siblings()
            if not self.is_live(live):
                # it was rotated since, and others after it: of a list that is sure to hold it, the older part
                older = self._before(live, self.siblings())
        except OSError:
            live.close()
            raise
        return live, older

    def _before(self, live: Plain, listed: list[Order]) -> list[Order]:
        head = live.read(0, _HEAD)
        own = next((order for order in reversed(listed) if self.is_same(order, live, head)), None)
        return [order for order in listed if own is not None and order < own]  # deleted: so are older ones

    def _either(self, order: Order, plain: Callable[[Path], T], packed: Callable[[Path], T]) -> T | None:
        for _ in range(2):  # it may be packed between the two looks, but only once
            with suppress(FileNotFoundError):
                return plain(self.folder / names.join(self.stem, order))
            with suppress(FileNotFoundError):
                return packed(self.folder / names.join(self.stem, order, packed=True))
        return None


def identity(path: Path) -> tuple[int, int]:
    """Device and number of the file under a name."""
    found = os.stat(path)
    return found.st_dev, found.st_ino
