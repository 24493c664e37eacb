"""What waits for MLflow, and its way there: requests within the limits, and no refusal that stops the rest.

Separate because MLflow refuses a whole request for one bad entry: here the culprit is found by halving, left
out and counted, and everything else lands. What counts as a refusal, and what is only a failure, after which
all comes again: see `mlflow_errors.py` and `mlflow_suspects.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from rankside_agent.sinks.base import Counts
from rankside_agent.sinks.flat import writable
from rankside_agent.sinks.mlflow_errors import Away, Broken, Misplaced, Refused
from rankside_agent.sinks.mlflow_names import Names
from rankside_agent.sinks.mlflow_run import TrackerRun
from rankside_agent.sinks.mlflow_suspects import Suspects

log = logging.getLogger(__name__)

MOST_METRICS = 1000  # of a request, and
MOST_PARAMS = 100  # or tags; both MLflow's
MOST_BYTES = 500_000  # of a request; MLflow takes 1,000,000, proxies often 1 MiB
_OVERHEAD = 120  # bytes of an entry beside its texts
LONGEST_TAG = 5000  # characters; the limit of MLflow's first versions
MOST_REFUSED = 2000  # of a flush, one by one; more would look like a hang to the supervisor
_NEIGHBOURS = 4  # that are tried beside one that fails

Metric = tuple[str, float, int, int]
Text = tuple[str, str]
Again = Callable[[Text], Text | None]

_SUSPECTS = Suspects()


class Batches:
    """Entries for one run. Nothing is sent before `flush`, except when a request is full."""

    def __init__(self, run: TrackerRun, counts: Counts, suspects: Suspects = _SUSPECTS) -> None:
        self._run = run
        self._counts = counts
        self._suspects = suspects
        self._metrics: list[Metric] = []  # under their original names
        self._metric_bytes = 0
        self._tags: dict[str, str] = {}
        self._refused_now = 0  # since the last flush
        self._revived = 0
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
        self._refused_now = 0

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
        fresh = [item for item in items if not self._suspects.refused(run_id, kind, item)]
        self._count(kind, len(items) - len(fresh))
        fresh = self._fitting(kind, fresh)
        if not fresh:
            return
        try:
            self._ask(kind, fresh)
            self._suspects.landed(run_id, kind, fresh[0])
        except Misplaced as refusal:
            self._revive(refusal)
            self._send(kind, fresh, again)
        except Refused as refusal:
            self._refused(kind, fresh, again, refusal)
        except Broken as failure:
            if not self._suspects.looked_into(run_id, kind, fresh[0]):
                raise
            self._look_into(kind, fresh, again, fresh)
            log.info("%s that the tracker failed at together were sent apart: %s", kind, failure)

    def _fitting(self, kind: str, items: list[Any]) -> list[Any]:
        """Without those whose names the store is known not to take."""
        legal = [name for name, *_ in self._legal(kind, items)]
        misfits = self._run.tracker.misfits(self._run.id, kind, legal)
        fitting = []
        for item, name in zip(items, legal, strict=True):
            if name in misfits:
                self._left_out(kind, item, misfits[name])
            else:
                fitting.append(item)
        return fitting

    def _ask(self, kind: str, items: list[Any]) -> None:
        self._run.tracker.log_batch(self._run.id, kind, self._legal(kind, items))
        self._suspects.accepted(self._run.id, kind, items)

    def _legal(self, kind: str, items: list[Any]) -> list[tuple[Any, ...]]:
        if kind != "metrics":
            return items
        legal = self.names.legal
        return [(legal(name), value, ms, step) for name, value, ms, step in items]

    # -- verdicts: left out where it was refused alone -------------------------------------------------

    def _refused(self, kind: str, items: list[Any], again: Callable[[Any], Any], refusal: Refused) -> None:
        if self._run.gone():
            self._revive(refusal, known=True)
            self._send(kind, items, again)
        elif len(items) > 1:
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
            self._suspects.refuse(self._run.id, kind, items[0])
            self._leave_out(kind, items[0], refusal)

    def _revive(self, refusal: Refused, known: bool = False) -> None:
        """The run itself was the trouble, and is there again. Raises Away where it was not."""
        if not known and not self._run.gone():
            raise Away(f"refused: {refusal}")
        self._revived += 1
        if self._revived > 3:
            raise refusal  # somebody deletes it as fast as it is restored

    def _left_out(self, kind: str, item: Any, why: object) -> None:
        self._count(kind, 1)
        if self._suspects.first_of(self._run.id, kind, item[0]):
            log.error("%s %r is refused by the tracker and left out: %s", kind, item[0], why)

    def _leave_out(self, kind: str, item: Any, why: Exception) -> None:
        self._left_out(kind, item, why)
        self._refused_now += 1
        if self._refused_now >= MOST_REFUSED:
            raise Away(f"{MOST_REFUSED} entries were refused one by one, and others wait: {why}")

    def _count(self, kind: str, refused: int) -> None:
        self._counts.points -= refused if kind == "metrics" else 0
        self._counts.refused += refused

    # -- failures: sent apart; left out only by the rule of the suspects -------------------------------

    def _look_into(self, kind: str, items: list[Any], again: Callable[[Any], Any], whole: list[Any]) -> None:
        """Send the parts of a request that fails. Raises Broken when a part fails for no fault of its own."""
        if len(items) == 1:
            self._suspect(kind, items[0], again, whole)
            return
        middle = len(items) // 2
        for part in (items[:middle], items[middle:]):
            try:
                self._ask(kind, part)
            except Broken:
                self._look_into(kind, part, again, whole)
            except Refused:
                self._send(kind, part, again)

    def _suspect(self, kind: str, item: Any, again: Callable[[Any], Any], whole: list[Any]) -> None:
        """One that fails alone: is it the server, or is it this one? Raises Broken while that is open."""
        beside = any(self._takes(kind, each) for each in self._neighbours(kind, item, whole))
        try:
            self._ask(kind, [item])
        except Refused:
            self._send(kind, [item], again)
        except Broken as failure:
            if not beside or not self._suspects.guilty(self._run.id, kind, item):
                raise
            if (other := again(item)) is not None:
                self._send(kind, [other], again)
            else:
                self._leave_out(kind, item, failure)

    def _neighbours(self, kind: str, item: Any, whole: list[Any]) -> list[Any]:
        """Some of the same request, and what was accepted last: MLflow ignores what comes again."""
        others = [each for each in whole if each != item]
        some = others[:: max(1, len(others) // _NEIGHBOURS)][:_NEIGHBOURS]
        taken = self._suspects.taken(self._run.id, kind)
        return some if taken is None or taken == item else [taken, *some]

    def _takes(self, kind: str, item: Any) -> bool:
        try:
            self._ask(kind, [item])
        except (Broken, Refused):
            return False
        return True

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
