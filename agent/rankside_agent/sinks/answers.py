"""Answers of trackers' servers, read within limits, and told from those of something on the way.

Separate because two sinks ask over HTTP, and because a login page or a gateway's error with status 200 loses
points where it is taken for the server's word. What W&B's own client reads is not seen here: that client is
never believed that a row has arrived.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests

MOST_BYTES = 128 << 20  # a run with 20,000 parameters of full length has about as much
SECONDS = 60.0  # for an answer's body; a byte now and then keeps any time limit of a socket from passing
_PIECE = 64 << 10
_ODD = 120  # characters that are shown of an answer that is none

_UPLOAD = "artifacts"
# What MLflow's REST calls answer with: one of these keys; "" stands for an empty object, which is a real one
_MLFLOW: dict[str, frozenset[str]] = {
    _UPLOAD: frozenset(("",)),
    "runs/log-batch": frozenset(("",)),
    "runs/set-tag": frozenset(("",)),
    "runs/delete": frozenset(("",)),
    "runs/restore": frozenset(("",)),
    "experiments/restore": frozenset(("",)),
    "runs/create": frozenset(("run",)),
    "runs/get": frozenset(("run",)),
    "runs/update": frozenset(("run_info",)),
    "runs/search": frozenset(("", "runs", "next_page_token")),
    "experiments/create": frozenset(("experiment_id",)),
    "experiments/get": frozenset(("experiment",)),
    "experiments/get-by-name": frozenset(("experiment",)),
}
_CALL = re.compile(r"/api/\d\.\d/mlflow/([\w-]+/[\w-]+)$")
_ARTIFACT = re.compile(r"/api/\d\.\d/mlflow-artifacts/artifacts/")


class NoAnswer(OSError):
    """What came is not the server's answer, or has no end."""


def read(response: requests.Response, most: int = MOST_BYTES, seconds: float = SECONDS) -> bytes:
    """The body of an answer asked for with `stream`, which then has it too. Raises NoAnswer."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    size = 0
    for part in _pieces(response):
        parts.append(part)
        size += len(part)
        if size > most:
            response.close()
            raise NoAnswer(f"an answer of more than {most >> 20} MiB")
        if time.monotonic() > deadline:
            response.close()
            raise NoAnswer(f"an answer that is not whole after {seconds:.0f} s")
    response._content = b"".join(parts)
    response._content_consumed = True
    return response._content


def watch_mlflow() -> None:
    """Have the sessions of MLflow's client look at each answer. Where it has no such sessions, nothing."""
    module: Any = importlib.import_module("mlflow.utils.request_utils")
    make = getattr(module, "_get_request_session", None)
    if make is None or getattr(make, "watched", False):
        return

    def watched(*arguments: Any, **named: Any) -> Any:
        session = make(*arguments, **named)
        if _of_mlflow not in session.hooks["response"]:
            session.hooks["response"].append(_of_mlflow)
        return session

    watched.watched = True  # type: ignore[attr-defined]
    module._get_request_session = watched


def _of_mlflow(response: requests.Response, **named: Any) -> None:
    """A hook: called with the headers, before anybody has read the body."""
    if named.get("stream"):
        return
    body = read(response)
    call = _call(response)
    if call and response.status_code == 200:
        _check(call, body)


def _call(response: requests.Response) -> str:
    path = (response.request.path_url or "").partition("?")[0]
    if found := _CALL.search(path):
        return found[1]
    return _UPLOAD if response.request.method == "PUT" and _ARTIFACT.search(path) else ""


def _check(call: str, body: bytes) -> None:
    """An empty body is none either: MLflow's client takes it for an empty object, its server sends `{}`.

    Except for an upload, to which it answers with nothing.
    """
    if call == _UPLOAD and not body:
        return
    expected = _MLFLOW.get(call)
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NoAnswer(f"status 200 with what is no answer of MLflow's: {_shown(body)}")
    if expected is not None and not (expected & found.keys() if found else "" in expected):
        raise NoAnswer(f"status 200 with what is no answer of MLflow's to {call}: {_shown(body)}")


def _shown(body: bytes) -> str:
    return repr(body[:_ODD].decode("utf-8", "replace")) if body else "nothing"


def _pieces(response: requests.Response) -> Any:
    """As they come in: `iter_content` would wait until a piece is full."""
    raw = response.raw
    read_some = getattr(raw, "read1", None)
    if read_some is None or getattr(raw, "chunked", False):
        yield from response.iter_content(_PIECE)
        return
    import urllib3

    try:
        while part := read_some(_PIECE, decode_content=True):
            yield part
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise NoAnswer(f"an answer that breaks off: {error}") from None
