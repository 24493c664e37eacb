"""Parameters as MLflow takes them: flat, text, of bounded length, and never changed.

Separate because MLflow refuses what a training does every day. A parameter has one value for ever, so what a
later attempt has changed becomes `attempt_2.world_size`; a value is cut at 6,000 characters (500 or 250 in
old servers) with a mark, and whole in the artifact `params/attempt-{n}.json`, as all of the attempt's are.
`env__{NAME}` is the environment's; a parameter of the training's with such a name is `param.env__{NAME}`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rankside_agent import files
from rankside_agent.sinks.flat import flat
from rankside_agent.sinks.mlflow_batches import Batches, Text, plain
from rankside_agent.sinks.mlflow_run import TrackerRun
from rankside_agent.sinks.points import Source

log = logging.getLogger(__name__)

LIMITS = (6000, 500, 250)  # characters: of MLflow now, before 2.8, and before 1.28
_ENVIRONMENT = "env__"
_MEETS_ENVIRONMENT = re.compile(rf"(param\.)*{_ENVIRONMENT}")
MOST = 20_000  # of an attempt; more are in the artifact only


class Parameters:
    """The parameters of one run. `folder` keeps them whole until they are uploaded."""

    def __init__(self, run: TrackerRun, batches: Batches, folder: Path) -> None:
        self._run = run
        self._batches = batches
        self._folder = folder
        self._waiting: dict[int, dict[str, str]] = {}  # by attempt
        self._limit = LIMITS[0]
        self._full: set[int] = set()

    def take(self, source: Source, values: Mapping[str, Any]) -> None:
        """Parameters of an attempt, nested or not."""
        self._take(source, ((_beside_environment(name), value) for name, value in flat(values)))

    def environment(self, source: Source) -> None:
        """The attempt's environment, whose secrets were left out by the rank already."""
        environ = source.launch.get("environ")
        if isinstance(environ, dict) and environ:
            self._take(source, flat({f"{_ENVIRONMENT}{name}": value for name, value in environ.items()}))

    def _take(self, source: Source, values: Iterable[tuple[str, str]]) -> None:
        waiting = self._waiting.setdefault(source.attempt, {})
        for name, value in values:
            if len(waiting) < MOST or name in waiting:
                waiting[plain(name)] = plain(value)
            elif source.attempt not in self._full:
                self._full.add(source.attempt)
                log.error("more than %d parameters: the others are left out", MOST)

    def flush(self) -> Iterator[tuple[str, Path]]:
        """Send what waits; gives the artifacts that are new. Raises Away."""
        waiting, self._waiting = self._waiting, {}
        for attempt, values in sorted(waiting.items()):
            if path := self._keep(attempt, values):
                yield f"params/attempt-{attempt}.json", path
            self._send(attempt, values)

    def _keep(self, attempt: int, values: Mapping[str, str]) -> Path | None:
        path = self._folder / f"params-attempt-{attempt}.json"
        known = files.read_json(path)
        try:
            files.replace_json(path, {**(known if isinstance(known, dict) else {}), **values})
        except OSError as error:  # a full disk must not keep the metrics back
            log.warning("%s cannot be written: %s", path, error)
            return None
        return path

    def _send(self, attempt: int, values: Mapping[str, str]) -> None:
        _ = self._run.id  # open: now it is known what it holds
        whole: dict[str, str] = {}
        for name, value in values.items():
            key = self._free_key(name, value, attempt)
            if key is not None:
                whole[key] = value
        items = [(key, cut(value, self._limit)) for key, value in whole.items()]
        self._batches.texts("params", items, lambda item: self._again(item, whole, attempt))
        self._run.params.update({key: cut(value, self._limit) for key, value in whole.items()})

    def _free_key(self, name: str, value: str, attempt: int) -> str | None:
        """Under which key a value can still be told; None where it has been, or cannot be any more."""
        legal, held = self._batches.names.legal, self._run.params
        for key in (legal(name), legal(f"attempt_{attempt}.{name}")):
            if key not in held:
                return key
            if _is(held[key], value):
                return None
        log.warning("parameter %r has changed more than once in attempt %d; see params/", name, attempt)
        return None

    def _again(self, item: Text, whole: dict[str, str], attempt: int) -> Text | None:
        """Another form of a refused parameter: another has told a value meanwhile, or it is too long."""
        key, value = item
        prefix = f"attempt_{attempt}."
        held = self._run.tracker.call("get_run", self._run.id).data.params.get(key)
        if held is not None and not _is(held, whole[key]) and not key.startswith(prefix):
            other = self._batches.names.legal(prefix + key)
            whole[other] = whole.pop(key)
            return other, cut(whole[other], self._limit)
        shorter = [limit for limit in LIMITS if limit < len(value)]
        if not shorter:
            return None
        self._limit = shorter[0]
        return key, cut(whole[key], self._limit)


def _beside_environment(name: str) -> str:
    """A parameter that is called as a variable of the environment would be: both are kept."""
    return f"param.{name}" if _MEETS_ENVIRONMENT.match(name) else name


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, with a mark where some are missing."""
    if len(text) <= limit:
        return text
    mark = f" ... [rankside: {len(text)} characters, whole in params/]"
    return text[: limit - len(mark)] + mark


def _is(held: str, value: str) -> bool:
    """Whether the tracker has this value, perhaps cut."""
    return held == value or held in {cut(value, limit) for limit in LIMITS}
