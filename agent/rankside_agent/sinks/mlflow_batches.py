"""What waits for MLflow, and its way there: requests within the limits, and no refusal that stops the rest.

Separate because MLflow refuses a whole request for one bad entry: here the culprit is found by halving, left
out and counted, and everything else lands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.flat import writable
from rankside_agent.sinks.mlflow_client import Broken, Refused
from rankside_agent.sinks.mlflow_names import Names
from rankside_agent.sinks.mlflow_run import TrackerRun

log = logging.getLogger(__name__)

MOST_METRICS = 1000  # of a request, and
MOST_PARAMS = 100  # or tags; both MLflow's
MOST_BYTES = 500_000  # of a request; MLflow takes 1,000,000, proxies often 1 MiB
_OVERHEAD = 120  # bytes of an entry beside its texts
_TIMES = 3  # a name is refused before it is left out unasked
LONGEST_TAG = 5000  # characters; the limit of MLflow's first versions
_MOST_TOLD = 100
SUSPICIOUS = 6  # failures at the same request; with the forwarder's pauses about a minute
_failures: dict[tuple[Any, ...], int] = {}  # of this process, for a sink is made anew after each

Metric = tuple[str, float, int, int]
Text = tuple[str, str]
Again = Callable[[Text], Text | None]


class Batches:
    """Entries for one run. Nothing is sent before `flush`, except when a request is full."""

    def __init__(self, run: TrackerRun, counts: Counts) -> None:
        self._run = run
        self._counts = counts
        self._metrics: list[Metric] = []  # under their original names
        self._metric_bytes = 0
        self._tags: dict[str, str] = {}
        self._refusals: dict[str, int] = {}
        self._revived = 0
        self._suspicious = False  # looking for what the server fails at
        self.names = Names(self._changed)

    def metric(self, name: str, value: float, ms: int, step: int) -> None:
        """One number. Raises Away when a request is full and cannot be sent."""
        self._metrics.append((name, value, ms, step))
        self._metric_bytes += _OVERHEAD + _bytes(name)
        if len(self._metrics) >= MOST_METRICS or self._metric_bytes >= MOST_BYTES:
            self.flush_metrics()

    def tag(self, key: str, value: object) -> None:
        """A tag under a legal key; its last value counts."""
        self._tags[key] = plain(value)[:LONGEST_TAG]

    def flush(self) -> None:
        """Send what waits. Raises Away."""
        self.flush_metrics()
        tags, self._tags = self._tags, {}
        self.texts("tags", list(tags.items()), lambda _tag: None)

    def flush_metrics(self) -> None:
        """Send the metrics that wait. Raises Away."""
        metrics, self._metrics, self._metric_bytes = self._metrics, [], 0
        if metrics:
            self._send("metrics", metrics, lambda _metric: None)

    def texts(self, kind: str, items: list[Text], again: Again) -> None:
        """Send params or tags. `again` gives another form of one that was refused, or None. Raises Away."""
        for batch in _chunks(items):
            self._send(kind, batch, again)

    def _send(self, kind: str, items: list[Any], again: Callable[[Any], Any]) -> None:
        run_id = self._run.id
        if kind == "metrics" and self._refusals:
            items = self._worth_asking(items)
        try:
            self._run.tracker.log_batch(run_id, kind, self._legal(kind, items))
        except Refused as refusal:
            self._refused(kind, items, again, refusal)
        except Broken as failure:
            if not self._poisoned((run_id, kind, *items[0]), failure):
                raise
            self._refused(kind, items, again, Refused(str(failure)))

    def _poisoned(self, first: tuple[Any, ...], failure: Broken) -> bool:
        """Whether the server fails at this request again and again while it takes others.

        A database that cannot hold a text (an emoji, say) is no refusal but error 500, and would be for ever.
        """
        _failures[first] = _failures.pop(first, 0) + 1
        while len(_failures) > _MOST_TOLD:
            _failures.pop(next(iter(_failures)))
        if not self._suspicious and _failures[first] < SUSPICIOUS:
            return False
        self._run.tracker.call("set_tag", self._run.id, "rankside.probe", str(failure)[:100])
        self._suspicious = True
        return True

    def _worth_asking(self, metrics: list[Metric]) -> list[Metric]:
        worth = [metric for metric in metrics if self._refusals.get(metric[0], 0) < _TIMES]
        self._counts.points -= len(metrics) - len(worth)
        self._counts.refused += len(metrics) - len(worth)
        return worth

    def _legal(self, kind: str, items: list[Any]) -> list[tuple[Any, ...]]:
        if kind != "metrics":
            return items
        legal = self.names.legal
        return [(legal(name), value, ms, step) for name, value, ms, step in items]

    def _refused(self, kind: str, items: list[Any], again: Callable[[Any], Any], refusal: Refused) -> None:
        if self._run.gone():
            self._revived += 1
            if self._revived > 3:
                raise refusal  # somebody deletes it as fast as it is restored
            self._send(kind, items, again)
            return
        if len(items) > 1:
            middle = len(items) // 2
            self._send(kind, items[:middle], again)
            self._send(kind, items[middle:], again)
        elif kind == "metrics" and ":" in items[0][0] and self.names.colons:
            log.info("the server takes no colons in names: %s", refusal)
            self.names.forbid_colons()
            self._send(kind, items, again)
        elif (other := again(items[0])) is not None:
            self._send(kind, [other], again)
        else:
            self._leave_out(kind, items[0], refusal)

    def _leave_out(self, kind: str, item: Any, refusal: Refused) -> None:
        self._counts.points -= kind == "metrics"
        self._counts.refused += 1
        known = self._refusals.get(item[0], 0)
        if len(self._refusals) < _MOST_TOLD or known:
            self._refusals[item[0]] = known + 1
            if not known:
                log.error("%s %r is refused by the tracker and left out: %s", kind, item[0], refusal)

    def _changed(self, legal: str, original: str) -> None:
        log.info("the name %r is not legal in MLflow, there it is %r", original, legal)
        self.tag(f"rankside.name.{legal}", original)


def _chunks(items: list[Text]) -> Iterator[list[Text]]:
    chunk: list[Text] = []
    size = 0
    for item in items:
        mine = _OVERHEAD + _bytes(item[0]) + _bytes(item[1])
        if chunk and (len(chunk) >= MOST_PARAMS or size + mine > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += mine
    if chunk:
        yield chunk


def _bytes(text: str) -> int:
    """At most, as JSON."""
    return len(text) if text.isascii() else 12 * len(text)


def plain(value: object) -> str:
    """As text that can be sent: a lone surrogate is written out."""
    return writable(str(value))
