"""How this process is about to end: by an exception that nobody caught, by an exit code, or well.

Separate from the monitor because it is of the interpreter and not of a run: what `sys.excepthook` became
meanwhile, or whether anything is captured, does not change how a training ended.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, NoReturn


def _last_error() -> BaseException | None:
    """What the interpreter reported last; set whatever hook stands."""
    found = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


class Exits:
    """Of this process, watched from its first monitor on."""

    def __init__(self) -> None:
        self._exit: Any = None  # sys.exit, as it was
        self._ours: Any = None
        self._before: BaseException | None = None
        self._code: object = None

    def watch(self) -> None:
        """Hear of `sys.exit` from here on; only an exception from here on counts."""
        if self._exit is not None:
            return
        self._exit = before = sys.exit
        self._before = _last_error()

        def exit(status: Any = None, /) -> NoReturn:
            if threading.current_thread() is threading.main_thread():
                self._code = status
            before(status)
            raise AssertionError  # for the type: it does not return

        exit.__doc__ = sys.exit.__doc__
        self._ours = sys.exit = exit

    def rest(self) -> None:
        """No monitor is open any more: `sys.exit` is what it was, unless somebody else has wrapped it."""
        if self._exit is not None and sys.exit is self._ours:
            sys.exit, self._exit, self._code = self._exit, None, None

    def error(self) -> BaseException | None:
        """The exception that ends this process. At a prompt the last one was shown, and work went on."""
        found = _last_error()
        if found is self._before or hasattr(sys, "ps1") or sys.flags.interactive:
            return None
        return found

    def status(self) -> str | None:
        """ "failed" or "killed"; None where nothing speaks against "finished"."""
        error = self.error()
        if error is not None:
            return "killed" if isinstance(error, KeyboardInterrupt) else "failed"
        return "failed" if self._code not in (None, 0) else None


exits = Exits()
