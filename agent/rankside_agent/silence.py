"""When a last rank has nothing to say while others of its node do.

Separate because only the agent can tell: it knows what a rank still has on its way. It writes what it found
into the points' journal, so that a sink decides by the journal alone, and decides the same again in a replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rankside_agent.progress import Channel

PATIENCE = 30.0  # seconds that others are heard and the last rank is not
_FRESH = 10.0  # seconds since a rank's last sign of life, which says how much it has sent


class Silence:
    """Of one run. Times are monotonic."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}  # by channel: others have been heard alone
        self._told: dict[int, float] = {}

    def found(self, now: float, channels: Iterable[Channel]) -> Iterator[Channel]:
        """Last ranks that are silent, each once for what others have said meanwhile."""
        all_ = list(channels)
        for channel in all_:
            if channel.speaks and not channel.ended and self._is_silent(now, channel, all_):
                self._told[channel.index] = now
                yield channel

    def _is_silent(self, now: float, channel: Channel, channels: list[Channel]) -> bool:
        others = [each for each in channels if each.attempt == channel.attempt and each is not channel]
        heard = max((each.progress.metrics_at for each in others), default=0.0)
        if heard <= max(channel.progress.metrics_at, self._told.get(channel.index, 0.0)):
            self._since.pop(channel.index, None)
            return False
        long = now - self._since.setdefault(channel.index, now) >= PATIENCE
        return long and channel.progress.has_sent_all(now, channel.last, _FRESH)
