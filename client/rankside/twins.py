"""One message in two loggings: loguru's that is forwarded to stdlib, stdlib's that is forwarded to loguru.

Separate because both captures ask it, each of them while the other's record is on its way through handlers or
sinks. It is a twin where it is the other's text, or that with a format around it; handlers also log things of
their own, and about the record they have in hand.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from rankside import wording

_NEAR = 30  # frames between who passes a record on, and the other logging's call of us
_LOGGING = logging.__file__
_WRITER = "loguru-writer"  # loguru's threads, of sinks with enqueue=True
_ESCAPED = (("{{", "{"), ("}}", "}"), ("\\<", "<"))  # what a handler may do so that loguru formats nothing


class _Now(threading.local):
    """What is under way in a thread."""

    # The newest record that was taken, by its id (it may hold tensors), and its message: its handlers may be
    # getting it now, and who finds that they are not says so
    handed: tuple[int, str] | None = None
    in_loguru = False  # a call of loguru has begun, and may have ended, likewise

    def __init__(self) -> None:  # in each thread
        self.is_writer = threading.current_thread().name.startswith(_WRITER)
        self.in_loguru = self.is_writer


NOW = _Now()


def is_of_stdlib(text: str) -> bool:
    """Whether this loguru message is a stdlib record that a handler passes on."""
    if NOW.handed is None:
        return False
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_NEAR):
        if frame is None:
            break
        if frame.f_code.co_filename == _LOGGING:
            if frame.f_code.co_name == "getMessage":
                return False  # an argument's __str__ logs
            if frame.f_code.co_name == "callHandlers":
                return _is_twin(_handed(frame), text, frame)
        frame = frame.f_back
    NOW.handed = None  # all handlers had it: nobody need look again
    return False


def is_of_loguru(text: str) -> bool:
    """Whether this stdlib message is one of loguru's that a sink passes on. Ask only where NOW.in_loguru."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_NEAR):
        if frame is None:
            break
        if frame.f_code.co_filename.endswith("_handler.py") and "loguru" in frame.f_code.co_filename:
            said = _said(frame)
            if said is not None:
                return _is_twin(said, text, frame)
        frame = frame.f_back
    NOW.in_loguru = NOW.is_writer
    return False


def _handed(frame: FrameType) -> str:
    record = frame.f_locals.get("record")
    if NOW.handed is not None and id(record) == NOW.handed[0]:
        return NOW.handed[1]
    try:  # a handler before this one has logged something of its own
        return str(record.getMessage()) if isinstance(record, logging.LogRecord) else ""
    except Exception:  # noqa: BLE001  a wrong format; the handler could not have passed it on formatted
        return str(getattr(record, "msg", ""))


def _said(frame: FrameType) -> str | None:
    """The message that loguru's frame is about, where it is about one."""
    entry = frame.f_locals.get("record") or getattr(frame.f_locals.get("message"), "record", None)
    said = entry.get("message") if isinstance(entry, dict) else None
    return said if isinstance(said, str) else None


def _is_twin(said: str, text: str, frame: FrameType) -> bool:
    if said == text:
        return True
    record = frame.f_locals.get("record")
    if isinstance(record, logging.LogRecord):
        beside = " ".join(str(each) for each in vars(record).values() if isinstance(each, str | int | float))
    else:
        beside = str(frame.f_locals.get("str_record") or frame.f_locals.get("message") or "")
        if beside.strip() == text.strip():
            return True
        beside += " ".join(_fields(record or getattr(frame.f_locals.get("message"), "record", {})))
    return wording.is_dressed(_plain(said), _plain(text), beside)


def _fields(entry: dict[str, Any]) -> Iterator[str]:
    """What a function that passes loguru's records on may put around the message."""
    for name in ("name", "function", "line", "module", "file", "level", "process", "thread"):
        field = entry.get(name)
        yield f" {getattr(field, 'name', field)} {getattr(field, 'path', '')} {getattr(field, 'id', '')}"


def _plain(text: str) -> str:
    for written, meant in _ESCAPED:
        text = text.replace(written, meant)
    return text
