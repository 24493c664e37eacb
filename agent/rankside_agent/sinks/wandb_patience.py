"""When to look for W&B's server again.

Separate because it outlives the sink, which is made anew with each failure: one for a process.
"""

from __future__ import annotations

import random
import time

FIRST_WAIT, LONGEST_WAIT = 5.0, 300.0  # seconds between two looks


class Patience:
    """When to look for the server again; one for a process."""

    def __init__(self) -> None:
        self._next, self._delay = 0.0, FIRST_WAIT
        self._next_wall = 0.0
        self.why = ""  # it was not there the last time
        self.went_back = False  # and has not been online since
        self.ends = 0  # that were told, and that the server did not show

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._next

    @property
    def words(self) -> str:
        """When that is, for people; a clock time, as it stands in a file for a while."""
        if self.due:
            return "looking for it again"
        return f"next try at {time.strftime('%H:%M:%S', time.localtime(self._next_wall))}"

    def failed(self, why: str) -> None:
        """Not yet."""
        self.went_back, self.why = False, why
        wait = self._delay * (0.75 + 0.5 * random.random())  # nodes must not come in step
        self._next, self._next_wall = time.monotonic() + wait, time.time() + wait
        self._delay = min(self._delay * 2, LONGEST_WAIT)

    def succeeded(self) -> None:
        """The server is there."""
        self._next, self._delay, self.why = 0.0, FIRST_WAIT, ""
        self.went_back = False
