"""A run's parameters as far as they were written, over all attempts.

Separate because three things are compared with them: what a new attempt changes, what the server has, and
what a new offline folder must begin with.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.sinks.wandb_records import plain

log = logging.getLogger(__name__)

OURS = "rankside"
_THEIRS = f"param.{OURS}"
LONGEST = 64 << 10  # characters of one value


class Known:
    """One small file beside the run's folders. `config` holds everything, and is changed in place."""

    def __init__(self, path: Path) -> None:
        found = files.read_json(path)
        self._path = path
        self.config: dict[str, Any] = found if isinstance(found, dict) else {}
        self.changed = False

    @property
    def version(self) -> int:
        """Grows with each change; the server's is compared with it."""
        return int(self.config.get(OURS, {}).get("update", 0))

    def take(self, values: Mapping[str, Any], attempt: int) -> dict[str, Any]:
        """New parameters; what is to be written. A changed one is kept under its attempt's name as well."""
        fresh = {str(plain(name)): _bounded(plain(value)) for name, value in values.items()}
        if OURS in fresh:
            log.warning("the parameter %r is %r in W&B, where %r is the agent's own", OURS, _THEIRS, OURS)
            fresh[_THEIRS] = fresh.pop(OURS)
        if attempt > 1:
            other = [name for name, value in fresh.items() if self.config.get(name, value) != value]
            fresh.update({f"attempt_{attempt}.{name}": fresh[name] for name in other})
        return self._change(fresh, {})

    def note(self, **ours: Any) -> dict[str, Any]:
        """Something of our own, below `rankside`; what is to be written, nothing where it is known."""
        plainly = {name: _bounded(plain(value)) for name, value in ours.items()}
        before = self.config.get(OURS, {})
        return self._change({}, plainly) if {**before, **plainly} != before else {}

    def adopt(self, config: Mapping[str, Any]) -> None:
        """What the server has, where nothing is known here."""
        if not self.config:
            self.config.update({name: value for name, value in config.items() if name != "_wandb"})

    def store(self) -> None:
        """After it was written. Raises OSError."""
        if self.changed:
            files.replace_json(self._path, self.config)
            self.changed = False

    def _change(self, values: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
        written = {**values, OURS: {**self.config.get(OURS, {}), **ours, "update": self.version + 1}}
        self.config.update(written)
        self.changed = True
        return written


def _bounded(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text)} characters)"
