"""What a store of plain files cannot hold: names that cannot be files beside those that are.

Separate because such a store says so only after it has written what came before in the same request, which
would come again and be there twice. There `loss` is a file, and `loss/val` one in a folder of that name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

_LONGEST_PART = 255  # bytes of a part of a path, in the file systems of Linux
_FOLDERS = {"metrics": "metrics", "params": "params", "tags": "tags"}


def misfits(root: Path, run_id: str, kind: str, names: Iterable[str]) -> dict[str, str]:
    """Those that the store below `root` will refuse, and why; of two that exclude each other the later."""
    folder = next(root.glob(f"*/{run_id}"), root / "0" / run_id) / _FOLDERS[kind]
    files: set[PurePosixPath] = set()
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        path = PurePosixPath(name)
        if why := _misfit(folder, path, files):
            found[name] = why
        else:
            files.add(path)
    return found


def _misfit(folder: Path, path: PurePosixPath, files: set[PurePosixPath]) -> str:
    if any(len(os.fsencode(part)) > _LONGEST_PART for part in path.parts):
        return "a store of plain files takes no part of a name that is longer than 255 bytes"
    above = [parent for parent in path.parents if parent.parts]
    if taken := next((each for each in above if each in files or (folder / each).is_file()), None):
        return f"in a store of plain files {str(taken)!r} is a file, and no folder for this one"
    if (folder / path).is_dir() or any(path in each.parents for each in files):
        return "in a store of plain files this is a folder already, of longer names"
    return ""


def root_of(client: Any) -> Path | None:
    """The folder of a client's store; None where it is another kind of store."""
    store = getattr(getattr(client, "_tracking_client", None), "store", None)
    root = getattr(store, "root_directory", None)
    return Path(root) if isinstance(root, str) and os.path.isabs(root) else None
