"""Exceptions of many shapes, raised a few calls deep; separate so that tracebacks have lines to show."""

from __future__ import annotations

import traceback


def of(shape: str) -> BaseException:
    """One that was raised and caught."""
    try:
        SHAPES[shape]()
    except BaseException as error:
        return error
    raise AssertionError(shape)


def _plain():
    value = {"secret": "of a local"}
    return value["missing"]


def _cause():
    try:
        _plain()
    except KeyError as error:
        raise RuntimeError("after it") from error


def _context():
    try:
        _cause()
    except RuntimeError:
        int("no number")


def _silent():
    try:
        _plain()
    except KeyError:
        raise OSError(28, "No space left on device", "/a/file") from None


def _deep(left: int = 30):
    return 1 // left + _deep(left - 1)


def _syntax():
    compile("a = (1,\nb = 2", "config.py", "exec")


def _lines():
    raise ValueError("the first\nand the second {}\n")


class Nothing(Exception):
    """Without a word."""


def _nothing():
    raise Nothing


SHAPES = {
    "plain": _plain,
    "cause": _cause,
    "context": _context,
    "silent": _silent,
    "deep": _deep,
    "syntax": _syntax,
    "lines": _lines,
    "nothing": _nothing,
}


def text_of(error: BaseException) -> str:
    """As Python itself prints it."""
    return "".join(traceback.format_exception(error))
