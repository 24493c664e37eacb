"""Whether what is being printed has been recorded already: by the captures of logging, or by rankside itself.

Separate because three ask it (the captures of print and of the descriptors, and the console, which shows such
records itself), and the answer lies in other libraries' frames. They tell whose record is on its way; whether
it is what is printed, its text does: a handler may print something of its own, and a signal handler may come
in between.
"""

from __future__ import annotations

import logging
import os
import sys
from _thread import get_ident
from collections.abc import Callable
from types import CodeType, FrameType
from typing import NamedTuple

from rankside import console, logs, stdlib_tap, transport, twins, wording

_NEAR = 24  # frames between a handler and the stream it writes to; rich takes some ten
_LONGEST = 64 << 10  # characters of a record's line that goes on in pieces
_EMIT = logging.StreamHandler.emit.__code__
_SINKS = "_simple_sinks.py"  # where loguru writes; what it says of a sink's errors comes from elsewhere


class Telling(NamedTuple):
    """What is on its way to a stream. `message` is None where all that comes is of it."""

    ours: bool = False  # a line of rankside's own
    message: str | None = None
    beside: str = ""  # what may be printed with it: of its exception, its level, its time
    more: bool = False  # its exception may follow, in whatever form

    def is_in(self, text: str) -> bool:
        """Whether the whole record is, in some form."""
        return self.message is None or wording.is_told(self.message, text, self.beside, self.more)

    def has(self, text: str) -> bool:
        """Whether `text` is the record, or a part of it."""
        if self.message is None or self.is_in(text):
            return True
        return wording.is_part(self.message, text, self.beside)


def teller(frame: FrameType | None) -> Telling | None:
    """Whose record `frame` writes, or what of rankside; None where it writes for the program."""
    direct = frame
    for _ in range(_NEAR):
        if frame is None:
            return None
        tells = _tells(frame.f_code, frame is direct)
        if tells is not None:
            return tells(frame)
        frame = frame.f_back
    return None


def _tells(code: CodeType, direct: bool) -> Callable[[FrameType], Telling | None] | None:
    known = _BY_CODE.get(id(code))
    if known is not None:
        return known
    name = code.co_filename
    ours = _BY_FILE.get(name)
    if ours is not None:
        return ours.get(code.co_name)
    if name.endswith(_SINKS) and "loguru" in name:
        return _all_of_it if direct else _of_loguru
    return _all_of_stdlib if direct and code is _EMIT else None


Decided = tuple[str, Telling | None] | None


class Pieces:
    """What one thread writes to one stream, call by call.

    print() writes each of its parts by itself, and only all together they are a record or something else.
    Nothing but what a handler has begun is held back.
    """

    def __init__(self) -> None:
        self._held = ""
        self._call: object = None
        self._telling = Telling()
        self._open = ""  # a record's line that is under way: what ends it is its own

    @property
    def under_way(self) -> bool:
        """Whether more is to come of what a handler has begun."""
        return bool(self._held or self._open)

    def take(self, frame: FrameType | None, text: str) -> tuple[str, Decided]:
        """A call writes `text`: what another has left undecided and is no record, and what this one comes to.

        That is all of the call so far, and whose it is; None where it cannot be said yet.
        """
        return self.left(frame), self._decide(frame, text)

    def left(self, frame: FrameType | None) -> str:
        """What another call has left undecided, and is no record."""
        if not self._held or call_of(frame) == self._call:
            return ""
        held, self._held = self._held, ""
        return "" if self._telling.has(held) else held

    def _decide(self, frame: FrameType | None, text: str) -> Decided:
        if not self._held:
            call = call_of(frame)
            if self._open and (call == self._call or text == "\n"):
                line = self._open + text
                self._open = "" if text.endswith("\n") or len(line) > _LONGEST else line
                goes_on = any(map(self._telling.has, (line, f"{self._telling.message} {text}")))
                return text, self._telling if goes_on or not text.strip() else None
            telling = teller(frame)
            if telling is None or telling.message is None:
                self._open = ""
                return text, telling
            self._telling, self._call = telling, call
        self._held += text
        if not self._held.endswith("\n") and not self._telling.is_in(self._held):
            return None
        held, self._held = self._held, ""
        told = self._telling if self._telling.has(held) else None
        self._open = held if told is not None and not held.endswith("\n") else ""
        return held, told


class ByThread:
    """Of one stream, what each thread has under way. What those that ended have left is given back."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._threads: dict[int, Pieces] = {}

    def mine(self) -> Pieces:
        """This thread's."""
        return self._threads.get(get_ident()) or self._threads.setdefault(get_ident(), Pieces())

    def dead(self) -> list[str]:
        """What threads that have ended have begun and is no record; looked for where there are many."""
        if len(self._threads) < self._most:
            return []
        living = sys._current_frames()
        gone = [ident for ident in list(self._threads) if ident not in living]
        return [left for ident in gone if (left := self._threads.pop(ident).left(None))]

    def all(self) -> list[str]:
        """The same of every thread."""
        return [left for pieces in list(self._threads.values()) if (left := pieces.left(None))]


def call_of(frame: FrameType | None) -> object:
    """One call at one place: the same code may be under way twice, as a signal handler in itself is."""
    return None if frame is None else (id(frame), frame.f_code, frame.f_lasti)


def _nobodys(_frame: FrameType) -> None:
    return None


def _of_ours(_frame: FrameType) -> Telling:
    return Telling(ours=True)


def _all_of_it(_frame: FrameType) -> Telling:
    return Telling()


def _all_of_stdlib(frame: FrameType) -> Telling | None:
    return None if _is_strangers(frame.f_locals.get("record")) else Telling()


def _is_strangers(record: object) -> bool:
    """Whether a QueueListener shows what a process without rankside has said."""
    process = getattr(record, "process", None)
    return process not in (None, os.getpid()) and not hasattr(record, stdlib_tap.RECORDED)


def _of_stdlib(frame: FrameType) -> Telling | None:
    record = frame.f_locals.get("record")
    if not isinstance(record, logging.LogRecord):
        return Telling()
    if _is_strangers(record):
        return None
    now, made = twins.NOW.handed, vars(record).get("message")  # by a formatter
    if isinstance(made, str):
        message = made
    else:
        message = now[1] if now is not None and now[0] == id(record) else logs.message_of(record)
    place = f"{record.name} {record.pathname} {record.lineno} {record.funcName} {record.module}"
    who = f"{record.levelname} {record.process} {record.processName} {record.threadName}"
    more = (vars(record).get("asctime"), record.exc_text, record.stack_info, _format_of(frame))
    beside = " ".join((place, who, *map(str, filter(None, more))))
    return Telling(message=message, beside=beside, more=bool(record.exc_info or record.stack_info))


def _format_of(frame: FrameType) -> str:
    """A handler's own words around each record."""
    formatter = getattr(frame.f_locals.get("self"), "formatter", None)
    return str(getattr(formatter, "_fmt", None) or "")


def _of_loguru(frame: FrameType) -> Telling:
    message = frame.f_locals.get("message")
    entry = getattr(message, "record", None)
    if not isinstance(entry, dict):
        return Telling()
    more = entry.get("exception") is not None
    return Telling(message=str(entry["message"]), beside=str(message), more=more)


_FOREIGN: tuple[tuple[CodeType, Callable[[FrameType], Telling | None]], ...] = (
    (logging.Handler.handle.__code__, _of_stdlib),
    # where a record is made text, or its failure is told: what is printed there is something else
    (logging.Handler.handleError.__code__, _nobodys),
    (logging.LogRecord.getMessage.__code__, _nobodys),
)
# By identity, for every print asks of some twenty frames, and code objects compare slowly
_BY_CODE = {id(code): tells for code, tells in _FOREIGN}
_BY_FILE: dict[str, dict[str, Callable[[FrameType], Telling | None]]] = {
    console.__file__: {"write": _of_ours},
    transport.__file__: {"warn": _of_ours},
    # what they let others print they have recorded
    logs.__file__: dict.fromkeys(("show", "hook", "thread_hook"), _all_of_it),
}
