"""What the W&B server has of a run, asked in so many words.

Separate from W&B's own client, which says only that it has taken a row, never that the server has it. The
question is the one that client asks when it resumes a run, with a deadline and without its retries.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rankside.secrets import known_values, masked_text
from rankside_agent.sinks import answers, tracker_environ
from rankside_agent.sinks.wandb_rows import STEP

log = logging.getLogger(__name__)

CONNECT_SECONDS, ANSWER_SECONDS = 4.0, 8.0

_LOGIN = ("WANDB_API_KEY", "WANDB_BASE_URL")
# W&B's own client asks for the first four; servers that do not know the others answer with an error
_ASKED = "id historyLineCount historyTail config"
_MORE = "state files(first: 1000) { edges { node { name sizeBytes } } }"
_RUN = """query RanksideRun($entity: String, $project: String, $name: String!) {
  model(name: $project, entityName: $entity) { bucket(name: $name, missingOk: true) { %s } } }"""
_ALIVE = "query RanksideAlive { viewer { id entity } }"


_LONGEST = 500  # characters of a reason


class Away(Exception):
    """The server does not answer, or not as it should. One line, without its address's password."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(masked_text(text, known_values(os.environ)).split())[:_LONGEST])


class Refused(Away):
    """The server has understood the question, and does not answer it."""


class NotAllowed(Away):
    """The server does not know the key."""


class Held(NamedTuple):
    """A run at the server. `last` is -1 where it has no rows, or is not there at all."""

    last: int = -1
    ours: bool = True  # whether the newest row is of our making
    config: Mapping[str, Any] = {}
    files: Mapping[str, int] | None = None  # their sizes, where the server tells
    state: str = ""  # running, finished and others


class Login(NamedTuple):
    """Where to, and with what."""

    base_url: str
    key: str


def login(run_dir: Path) -> Login | None:
    """From the environment, or as `wandb login` has left it; None where nobody has logged in.

    The agent may know a newer environment than the one this process began with: keys are replaced.
    """
    fresh = tracker_environ.load(run_dir)
    os.environ.update({name: fresh[name].strip() for name in _LOGIN if fresh.get(name)})
    base_url = os.environ.get("WANDB_BASE_URL") or _configured()
    key = os.environ.get("WANDB_API_KEY") or _netrc(base_url)
    return Login(base_url.rstrip("/"), key) if key else None


def alive(login: Login) -> None:
    """Raises Away where it is not."""
    _ask(login, _ALIVE, {})


def held(login: Login, entity: str, project: str, run_id: str) -> Held:
    """What the server has of a run. Raises Away."""
    asked = {"entity": entity or None, "project": project, "name": run_id}
    try:
        answer = _ask(login, _RUN % f"{_ASKED} {_MORE}", asked)
    except Refused:
        answer = _ask(login, _RUN % _ASKED, asked)
    bucket = (answer.get("model") or {}).get("bucket")
    if not bucket:
        return Held()
    try:
        return _held(bucket)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise Away(f"{login.base_url} answers in a way nobody understands: {error!r}") from None


def _held(bucket: Mapping[str, Any]) -> Held:
    tail = json.loads(bucket.get("historyTail") or "[]")
    row = (json.loads(tail[-1]) if isinstance(tail[-1], str) else tail[-1]) if tail else {}
    lines = int(bucket.get("historyLineCount") or 0)
    config = json.loads(bucket.get("config") or "{}")
    files = bucket.get("files")
    return Held(
        int(row.get("_step", lines - 1)),
        not row or STEP in row,
        {name: each.get("value") for name, each in config.items() if isinstance(each, dict)},
        {str(each["node"]["name"]): int(each["node"]["sizeBytes"] or 0) for each in files["edges"]}
        if files
        else None,
        str(bucket.get("state") or ""),
    )


def _ask(login: Login, query: str, variables: Mapping[str, Any]) -> Mapping[str, Any]:
    import requests  # comes with wandb, and knows proxies and certificates the way its users expect

    timeouts = (CONNECT_SECONDS, ANSWER_SECONDS)
    body: Any = {"query": query, "variables": dict(variables)}
    try:
        with requests.post(
            f"{login.base_url}/graphql", json=body, auth=("api", login.key), timeout=timeouts, stream=True
        ) as reply:
            status, found = reply.status_code, json.loads(answers.read(reply)) if reply.ok else {}
            answer: Mapping[str, Any] = found if isinstance(found, dict) else {"errors": "no object"}
    except (OSError, ValueError) as error:  # requests' own are OSErrors
        raise Away(f"{login.base_url} does not answer: {type(error).__name__}: {error}") from None
    if status in (401, 403):
        raise NotAllowed(f"{login.base_url} does not accept the API key ({status})")
    if status == 400 or answer.get("errors"):
        raise Refused(f"{login.base_url} answers {answer.get('errors', status)}")
    if status != 200:
        raise Away(f"{login.base_url} answers {status}")
    return answer.get("data") or {}


def _configured() -> str:
    import wandb

    return str(wandb.setup().settings.base_url)


def _netrc(base_url: str) -> str:
    try:
        from wandb.sdk.lib.wbauth import read_netrc_auth

        return read_netrc_auth(host=base_url) or ""
    except Exception as error:  # noqa: BLE001  W&B's inner parts, and a user's file
        log.warning("cannot look for a login of W&B: %s", masked_text(str(error)))
        return ""
