"""Under which names a run's artifacts lie in a tracker: two paths never become one.

Separate because trackers share the rule, and a sink made anew must give each path the name it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath

_MOST = 5000  # remembered


class Places:
    """`known` is what `plain()` gave: names, and the paths that they were given to."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._paths = dict(known)

    def plain(self) -> dict[str, str]:
        """To be kept."""
        return self._paths

    def name(self, path: Path, wished: str) -> str:
        """As wished, unless another path has that name; then with a short hash of the path."""
        found = wished
        if self._paths.setdefault(found, str(path)) != str(path):
            found = hashed(PurePosixPath(wished), str(path))
        while len(self._paths) > _MOST:
            self._paths.pop(next(iter(self._paths)))
        return found


def hashed(path: PurePosixPath, of: str) -> str:
    """A name that no other one becomes."""
    digest = sha256(of.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return str(path.with_name(f"{path.stem}-{digest}{path.suffix}"))
