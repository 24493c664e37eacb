"""A small disk of its own that can be made full and free again: a tmpfs where mounting is allowed.

Separate because everything else only wants a folder. Without the right to mount it is a plain folder that is
never full; the plan's `size_limit` still makes writes fail then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_SIZE = 1 << 30  # bytes; memory is taken only for what is written


class Disk:
    """Mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_full = False
        path.mkdir()
        self.small = _mount("-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(path))

    def fill(self, left: int) -> bool:
        """Leave about `left` bytes; False where this disk has no end."""
        if not self.small:
            return False
        seen = os.statvfs(self.path)
        used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
        self.was_full = True
        return self._resize(max(used + left // 4096 * 4096, 4096))

    def free(self) -> None:
        """Room again."""
        if self.small:
            self._resize(_SIZE)

    def close(self, keep: bool) -> None:
        """Unmount; `keep`: what is on it stays as a plain folder."""
        if not self.small:
            return
        if keep:
            shutil.copytree(self.path, f"{self.path}.kept", symlinks=True, dirs_exist_ok=True)
        subprocess.run(["umount", "--lazy", str(self.path)], check=False)
        if keep:
            self.path.rmdir()
            os.rename(f"{self.path}.kept", self.path)

    def _resize(self, size: int) -> bool:
        return _mount("-o", f"remount,size={size}", str(self.path))


def _mount(*options: str) -> bool:
    try:
        return subprocess.run(["mount", *options], capture_output=True).returncode == 0
    except OSError:
        return False
